package sessions

import (
	"cmp"
	"maps"
	"strings"
	"time"

	"tributary/envelopes"
)

// ActiveGap is the longest time between two events of a session that counts as active. After a longer one, the
// session counts as left alone.
const ActiveGap = 5 * time.Minute

// Cell identifies a group of events within a session. An event belongs to one cell. A field is empty if the fold does
// not divide by it.
type Cell struct {
	Part  string // values of Division.By
	Model string // also empty before the first model of the session
	Tool  string // of a call and its results; empty for other events
}

// Division is how a fold divides a session into cells, and which events count.
type Division struct {
	By           []Dimension // event dimensions: periods, repositories, branches, hosts, users and labels
	Model, Tool  bool
	Zone         *time.Location // of periods; nil is UTC
	Since, Until time.Time      // only events at or after Since and before Until count; zero is no limit
	Keyed        bool           // keep tokens separate by their key, if it is unique in the source
}

// keyedCell identifies the tokens of one API call in one cell.
type keyedCell struct {
	Key  string // usage.key, unique in the source
	Cell Cell
}

// Fold sums up one session from its events, added in the order of their sequence. It keeps only what sums need of
// unfinished calls, and nothing of events. Its memory depends on the number of cells, models and tools and, with
// Division.Keyed, of API calls, all of which are bounded.
//
//   - A tool call counts once, however many events it has: the call, results of a running tool, its result, results
//     that supersede it. It counts in the cell of its first event. Its last final result decides whether it failed.
//   - Tokens belong to the API call and not to a tool, so they count in the cell without a tool.
//   - A log with the id and the latency of a call states the latency that the events of the call do not.
//   - A call without a latency from the vendor is measured from its event to its first final result, if that is
//     later. If both have the same time, they are from one record that does not say how long the call took.
//   - An event without a model counts for the last model of the session.
//   - The time since the previous event counts as active in the cell of an event, if it is at most [ActiveGap].
type Fold struct {
	division Division
	cells    map[Cell]*Sums
	keyed    map[keyedCell]*Billed
	calls    calls
	last     int64  // latest time in nanoseconds
	part     string // of the step being added
	model    string // last model used
	first    string // first model used
	size     int
	names    map[string]string // see [Fold.name]

	begin, end uint64 // positions of the first and last event; see [Fold.Positions]
	unmeasured bool   // latencies are omitted, see [Fold.Encode]

	summary Summary
}

// maxCells limits the cells of a session in a fold that only divides by models and tools. Further models and tools
// count as [OtherName].
const maxCells = 512

// maxParts limits the cells of a session in a fold that also divides by event dimensions. Further values count as
// [OtherName].
const maxParts = 16_384

// maxKeys limits the API calls of a session whose tokens a fold keeps separate. Further ones count as if they had no
// key.
const maxKeys = 65_536

// OtherName stands for the models, tools and other values beyond the limits of a session.
const OtherName = "(other)"

// NewFold returns a fold of no events.
func NewFold(d Division) *Fold {
	if d.Zone == nil {
		d.Zone = time.UTC
	}
	return &Fold{division: d, cells: map[Cell]*Sums{}, names: map[string]string{}, size: 1024}
}

// Add adds the step of the next event of the session, and returns by about how many bytes the fold has grown. It
// copies the strings that it keeps, and retains nothing else of the step. It ignores a step at a position that the
// fold already has.
func (f *Fold) Add(step *Step) (grown int) {
	before := f.size
	if step.Position > 0 {
		if step.Position <= f.end {
			return 0
		}
		f.end = step.Position
		f.begin = cmp.Or(f.begin, step.Position)
	}
	s := new(*step)
	s.Type, s.Model, s.Tool = envelopes.EventType(f.name(string(s.Type))), f.name(s.Model), f.name(s.Tool)
	if s.Model != "" {
		f.model = s.Model
		if f.first == "" {
			f.first = s.Model
		}
	}
	gap := time.Duration(s.Time - f.last)
	if f.last == 0 || gap < 0 || gap > ActiveGap {
		gap = 0
	}
	f.last = max(f.last, s.Time)
	f.part = f.name(f.division.part(s))
	f.summary.note(s, f)
	counts := f.counts(s)
	switch {
	case s.Type == envelopes.ToolCall || s.Type == envelopes.ToolResult:
		f.call(s, counts)
	case s.Type == envelopes.Log && s.Latency != nil:
		f.latency(s)
	}
	f.summary.conversing.note(s, &f.calls)
	if counts {
		f.count(s, gap)
	}
	return f.size - before
}

// name returns the fold's copy of a name, because a name in a step would retain all texts of the step.
func (f *Fold) name(s string) string {
	if s == "" {
		return ""
	}
	own, known := f.names[s]
	if !known {
		own = strings.Clone(s)
		if len(f.names) < maxCells {
			f.names[own] = own
			f.size += 2 * len(own)
		}
	}
	return own
}

// count counts the event itself, without its call.
func (f *Fold) count(s *Step, gap time.Duration) {
	sums := f.sums(f.cell(s.Tool))
	sums.Events++
	sums.ActiveNS += int64(gap)
	if s.Failed {
		sums.Errors++
	}
	if s.isPrompt() {
		sums.Prompts++
	}
	if s.Usage == nil {
		return
	}
	cell := f.cell("")
	sums = f.sums(cell)
	key := keyedCell{s.Usage.Key, cell}
	if !f.division.Keyed || !s.Usage.KeyIsUnique(s.Source) || f.keyed[key] == nil && len(f.keyed) >= maxKeys {
		sums.Usage.Add(s.Usage)
		sums.Large.Add(s.Usage)
		return
	}
	if f.keyed == nil {
		f.keyed = map[keyedCell]*Billed{}
	}
	if f.keyed[key] == nil {
		f.keyed[key] = &Billed{}
		f.size += 500 + len(key.Key)
	}
	f.keyed[key].Add(s.Usage)
}

// counts reports whether the time of a step is within Since and Until.
func (f *Fold) counts(s *Step) bool {
	d := &f.division
	return (d.Since.IsZero() || s.Time >= d.Since.UnixNano()) && (d.Until.IsZero() || s.Time < d.Until.UnixNano())
}

// cell returns the cell of the step being added.
func (f *Fold) cell(tool string) Cell {
	c := Cell{Part: f.part}
	if f.division.Model {
		c.Model = f.model
	}
	if f.division.Tool {
		c.Tool = tool
	}
	return f.bounded(c)
}

// bounded returns the cell, or the one for values beyond [maxCells] or [maxParts].
func (f *Fold) bounded(c Cell) Cell {
	limit := maxCells
	if len(f.division.By) > 0 {
		limit = maxParts
	}
	if len(f.cells) < limit || f.cells[c] != nil {
		return c
	}
	parts := strings.Split(c.Part, separator)
	for i := range parts {
		parts[i] = other(parts[i])
	}
	return Cell{strings.Join(parts, separator), other(c.Model), other(c.Tool)}
}

// other returns [OtherName], or an empty string for an empty name.
func other(name string) string {
	if name == "" {
		return ""
	}
	return OtherName
}

// Sequence returns the sequence of the last event in the session; 0 without events.
func (f *Fold) Sequence() uint64 { return f.summary.Sequence }

// Positions returns the positions of the first and last event in the events stream; 0 for events from no stream.
func (f *Fold) Positions() (first, last uint64) { return f.begin, f.end }

// Size returns the approximate memory of the fold in bytes.
func (f *Fold) Size() int { return f.size }

// sums returns the sums of a cell.
func (f *Fold) sums(c Cell) *Sums {
	s := f.cells[c]
	if s == nil {
		s = &Sums{}
		f.cells[c] = s
		f.size += 600
	}
	return s
}

// countedCells returns the sums of all cells. Events before the first model of the session count for that model.
func (f *Fold) countedCells() map[Cell]*Sums {
	out := make(map[Cell]*Sums, len(f.cells))
	for c, s := range f.cells {
		c = f.resolve(c)
		if sums := out[c]; sums != nil {
			merged := *sums
			merged.Latencies, merged.Measured = maps.Clone(sums.Latencies), maps.Clone(sums.Measured)
			merged.Merge(s)
			out[c] = &merged
			continue
		}
		out[c] = s
	}
	return out
}

// keyedCells returns the tokens with a key that is unique in the source, see [Division].Keyed.
func (f *Fold) keyedCells() map[keyedCell]*Billed {
	out := make(map[keyedCell]*Billed, len(f.keyed))
	for k, u := range f.keyed {
		k.Cell = f.resolve(k.Cell)
		sum := *u
		if more := out[k]; more != nil {
			sum.Merge(more)
		}
		out[k] = &sum
	}
	return out
}

// resolve returns the cell with the model for events before the first model.
func (f *Fold) resolve(c Cell) Cell {
	if f.division.Model && c.Model == "" {
		c.Model = f.first
	}
	return c
}
