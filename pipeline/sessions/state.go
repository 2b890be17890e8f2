package sessions

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"tributary/envelopes"
)

// Revision is the revision of the fold. Raise it with every change of sums, of states or of the encoding of a fold:
// stored folds of an older revision are then made again from the events.
const Revision = 4

// WholeSession is the division of a fold with all of a [Summary]. Only such a fold can be encoded.
var WholeSession = Division{Model: true, Tool: true}

// foldState is an encoded fold.
type foldState struct {
	Begin      uint64      `json:"b,omitzero"`
	End        uint64      `json:"e,omitzero"`
	Last       int64       `json:"l,omitzero"`
	Model      string      `json:"m,omitzero"`
	First      string      `json:"f,omitzero"`
	Unmeasured bool        `json:"u,omitzero"`
	Cells      []cellState `json:"c,omitempty"`
	Calls      []int64     `json:"k,omitempty"` // callNumbers for each call, oldest first
	NoID       int         `json:"n,omitzero"`
	NoIDOf     []string    `json:"o,omitempty"`
	Summary    Summary     `json:"s"`
	Conversing conversing  `json:"p,omitzero"`
	Vendor     string      `json:"tv,omitzero"`
	Written    string      `json:"tw,omitzero"`
	FirstTitle string      `json:"tf,omitzero"`
	Models     []string    `json:"mo,omitempty"`
}

// cellState is an encoded cell with its sums.
type cellState struct {
	Model string `json:"m,omitzero"`
	Tool  string `json:"t,omitzero"`
	Sums  Sums   `json:"s"`
}

// callNumbers is how many numbers encode a call: hash of its id, number of its cell, outcome, latency, and its start
// or, once it is done, its duration.
const callNumbers = 5

// outcomes are encoded by index; an index beyond them means that the tool is unknown.
var outcomes = []envelopes.ToolStatus{envelopes.StatusInProgress, envelopes.StatusSuccess, envelopes.StatusError}

// maxState is the length from which an encoded fold omits latencies. Everything else in it is bounded far below the
// largest message of the broker.
const maxState = 512 << 10

// Encode encodes a fold, whose division must be [WholeSession], in at most a megabyte. If the fold has so many
// different latencies that it would get longer, it drops them for good.
func (f *Fold) Encode() ([]byte, error) {
	data, err := f.encode()
	if err == nil && len(data) > maxState && !f.unmeasured {
		f.unmeasured = true
		for _, sums := range f.cells {
			sums.Latencies, sums.Measured = nil, nil
		}
		for _, c := range f.calls.known {
			c.latency, c.took = -1, -1
		}
		data, err = f.encode()
	}
	return data, err
}

func (f *Fold) encode() ([]byte, error) {
	s := foldState{
		Begin: f.begin, End: f.end, Last: f.last, Model: f.model, First: f.first, Unmeasured: f.unmeasured,
		NoID: f.calls.noID, NoIDOf: f.calls.noIDOf,
		Summary: f.summary, Conversing: f.summary.conversing, Vendor: f.summary.vendor, Written: f.summary.written,
		FirstTitle: f.summary.first, Models: f.summary.modelOrder,
	}
	numbers := make(map[Cell]int64, len(f.cells))
	for cell, sums := range f.cells {
		numbers[cell] = int64(len(s.Cells))
		s.Cells = append(s.Cells, cellState{cell.Model, cell.Tool, *sums})
	}
	for _, id := range f.calls.order {
		c := f.calls.known[id]
		outcome := int64(0)
		for i, status := range outcomes {
			if status == c.outcome {
				outcome = int64(i)
			}
		}
		if c.tool == "" {
			outcome += int64(len(outcomes))
		}
		began := c.began
		if c.outcome != envelopes.StatusInProgress {
			began = c.took
		}
		s.Calls = append(s.Calls, int64(id), numbers[c.cell], outcome, c.latency, began)
	}
	data, err := json.Marshal(&s)
	if err != nil {
		return nil, fmt.Errorf("encode fold: %w", err)
	}
	return data, nil
}

// DecodeFold is the inverse of [Fold.Encode]. Its error repeats nothing of data.
func DecodeFold(data []byte) (*Fold, error) {
	var s foldState
	if json.Unmarshal(data, &s) != nil || len(s.Calls)%callNumbers != 0 || len(s.NoIDOf)%2 != 0 {
		return nil, errDamaged
	}
	f := NewFold(WholeSession)
	f.begin, f.end, f.last, f.model, f.first, f.unmeasured = s.Begin, s.End, s.Last, s.Model, s.First, s.Unmeasured
	f.summary = s.Summary
	f.summary.conversing, f.summary.vendor, f.summary.written = s.Conversing, s.Vendor, s.Written
	f.summary.first, f.summary.modelOrder = s.FirstTitle, s.Models
	cells := make([]Cell, len(s.Cells))
	for i, c := range s.Cells {
		cells[i] = Cell{Model: c.Model, Tool: c.Tool}
		*f.sums(cells[i]) = c.Sums
	}
	f.calls.noID, f.calls.noIDOf = s.NoID, s.NoIDOf
	for n := s.Calls; len(n) > 0; n = n[callNumbers:] {
		cell, outcome := n[1], int(n[2])
		if cell < 0 || int(cell) >= len(cells) || outcome < 0 || outcome >= 2*len(outcomes) {
			return nil, errDamaged
		}
		c := &call{counts: true, cell: cells[cell], tool: cells[cell].Tool, outcome: outcomes[outcome%len(outcomes)], latency: n[3], took: -1}
		if c.outcome == envelopes.StatusInProgress {
			c.began = n[4]
		} else {
			c.took = n[4]
		}
		if outcome >= len(outcomes) {
			c.tool = ""
		}
		f.calls.add(uint64(n[0]), c)
		f.size += callBytes
	}
	f.size += len(data) / 4
	return f, nil
}
