package sessions

import (
	"cmp"
	"maps"
	"strings"
	"time"

	"tributary/envelopes"
)

// ActiveGap is the longest time between two events of a session that counts as active. After
// a longer one, the session was left alone.
const ActiveGap = 5 * time.Minute

// Cell is a part of the events of a session. An event belongs to one cell; a field is empty if
// the fold does not divide by it.
type Cell struct {
	Part  string // values of Division.By
	Model string // empty before the first model of the session, too
	Tool  string // of a call and its results; empty for all other events
}

// Division says how a fold divides a session into cells, and which events count.
type Division struct {
	By           []Dimension // of events: periods, repositories, branches, hosts, users and labels
	Model, Tool  bool
	Zone         *time.Location // of periods; nil is UTC
	Since, Until time.Time      // only events at or after Since and before Until count; zero is no limit
	Keyed        bool           // keep tokens with a key that is unique in the source by themselves
}

// keyedCell names the tokens of one API call in one cell.
type keyedCell struct {
	Key  string // usage.key, unique in the source
	Cell Cell
}

// Fold sums up one session from its events, added in the order of their sequence. It keeps
// what sums need of calls that are not over, and nothing of an event; its memory depends on
// the number of cells, models and tools, and with Division.Keyed on that of API calls, which are bounded.
//
//   - A tool call is one call, whatever number of events it has: its call, results of a tool that
//     still runs, its result, results that supersede it. It counts in the cell of its first event;
//     its last result that is not in progress says whether it failed.
//   - Tokens belong to the API call and not to a tool: they count in the cell without a tool.
//   - A call without a latency of the vendor is measured: from its event to its first result that is not in progress, if
//     this is later. Where both have one time, they are of one record that does not say how long it took.
//   - An event that names no model counts for the model that the session used last.
//   - The time since the event before counts as active in the cell of an event, if it is at most
//     [ActiveGap].
type Fold struct {
	division Division
	cells    map[Cell]*Sums
	keyed    map[keyedCell]*Billed
	calls    calls
	last     int64  // latest time, in nanoseconds
	part     string // of the step that is added
	model    string // that was used last
	first    string // model that was used first
	size     int
	names    map[string]string // see [Fold.name]

	begin, end uint64 // positions of the first and the last event; see [Fold.Positions]
	unmeasured bool   // latencies are left out, see [Fold.Encode]

	summary Summary
}

// maxCells limits the cells of a session in a fold that divides by nothing but models and tools. Models and tools beyond it
// are [OtherName].
const maxCells = 512

// maxParts limits the cells of a session in a fold that divides by dimensions of events, too. All values beyond it are
// [OtherName].
const maxParts = 16_384

// maxKeys limits the API calls of a session whose tokens a fold keeps by themselves. Those beyond it count as if they had
// no key.
const maxKeys = 65_536

// OtherName stands for the models, tools and other values of a session that has too many of them.
const OtherName = "(other)"

// NewFold returns a fold of no events.
func NewFold(d Division) *Fold {
	if d.Zone == nil {
		d.Zone = time.UTC
	}
	return &Fold{division: d, cells: map[Cell]*Sums{}, names: map[string]string{}, size: 1024}
}

// Add adds the step of the next event of the session and returns by how many bytes the fold has grown, about. It keeps
// copies of strings of the step, and nothing else of it. A step at a position that the fold has already is left out.
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
	if s.Type == envelopes.ToolCall || s.Type == envelopes.ToolResult {
		f.call(s, counts)
	}
	f.summary.conversing.note(s, &f.calls)
	if counts {
		f.count(s, gap)
	}
	return f.size - before
}

// name returns the copy of a name that the fold keeps: a name of a step would keep all texts of the step in memory.
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

// count adds what the event itself adds, beside its call.
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

// counts reports whether the time of a step is within the limits.
func (f *Fold) counts(s *Step) bool {
	d := &f.division
	return (d.Since.IsZero() || s.Time >= d.Since.UnixNano()) && (d.Until.IsZero() || s.Time < d.Until.UnixNano())
}

// cell returns the cell of the step that is added.
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

// bounded returns a cell, or the one for what is beyond [maxCells] or [maxParts].
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

// other is [OtherName] for a name, and nothing for none.
func other(name string) string {
	if name == "" {
		return ""
	}
	return OtherName
}

// Sequence returns the number of the last event in the session, 0 without events.
func (f *Fold) Sequence() uint64 { return f.summary.Sequence }

// Positions returns the positions of the first and of the last event in the events stream, 0 if the events come
// from no stream.
func (f *Fold) Positions() (first, last uint64) { return f.begin, f.end }

// Size returns the memory of the fold in bytes, about.
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

// countedCells returns the sums of all cells. Events before the first model of the session count for
// that model.
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

// keyedCells returns the tokens that have a key which is unique in the source; see [Division].Keyed.
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

// resolve returns the cell with the model of events before the first model.
func (f *Fold) resolve(c Cell) Cell {
	if f.division.Model && c.Model == "" {
		c.Model = f.first
	}
	return c
}
