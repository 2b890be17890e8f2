package sessions

import (
	"hash/fnv"
	"strconv"
	"time"

	"tributary/envelopes"
)

// maxCalls is how many calls of a session a fold remembers. A result of an older call counts as another call.
const maxCalls = 4096

// callBytes is the approximate memory of a call.
const callBytes = 160

// calls are the last calls of a session, remembered so that each counts once.
type calls struct {
	known  map[uint64]*call // by hash of their ids
	order  []uint64         // hashes, oldest first
	noID   int              // calls without an id
	noIDOf []string         // their tools and assigned ids while they have no result, oldest first
}

// call is what a fold has counted for a call.
type call struct {
	counts  bool // its first event passes the filters of the fold
	cell    Cell
	tool    string
	outcome envelopes.ToolStatus // success, error, or in_progress before both
	latency int64                // milliseconds stated by the vendor; -1 if unknown
	began   int64                // start in milliseconds since 1970, until it is done; 0 if unknown
	took    int64                // measured milliseconds; -1 if unknown
}

// call counts an event of a call. counts says whether a call that begins with it counts.
func (f *Fold) call(s *Step, counts bool) {
	c, begins := f.calls.find(s)
	if begins {
		f.size += callBytes
		c.counts, c.cell = counts, f.cell(s.Tool)
	} else {
		f.uncount(c)
	}
	if c.tool == "" && s.Tool != "" {
		c.tool = s.Tool
		if f.division.Tool {
			c.cell.Tool = s.Tool
			c.cell = f.bounded(c.cell)
		}
	}
	c.measure(s)
	if s.Type == envelopes.ToolResult && s.Status != envelopes.StatusInProgress {
		c.outcome = envelopes.StatusSuccess
		if s.Status == envelopes.StatusError {
			c.outcome = envelopes.StatusError
		}
	}
	if s.Latency != nil && !f.unmeasured {
		c.latency = *s.Latency
	}
	f.countCall(c, 1)
}

// latency takes over the latency of a call from a log: telemetry may state what neither the call nor its result does.
func (f *Fold) latency(s *Step) {
	c := f.calls.known[callID(s.Call)]
	if c == nil || c.latency >= 0 || f.unmeasured {
		return
	}
	f.uncount(c)
	c.latency = *s.Latency
	f.countCall(c, 1)
}

func (f *Fold) uncount(c *call) { f.countCall(c, -1) }

// countCall adds a call n times to the sums of its cell.
func (f *Fold) countCall(c *call, n int64) {
	if !c.counts {
		return
	}
	sums := f.sums(c.cell)
	sums.Calls += n
	if c.outcome == envelopes.StatusError {
		sums.Failures += n
	}
	switch {
	case f.unmeasured:
	case c.latency >= 0:
		sums.Latencies.add(c.latency, n)
	case c.took >= 0:
		sums.Measured.add(c.took, n)
	}
}

// measure measures the time of a call from its event to its first final result.
func (c *call) measure(s *Step) {
	at := s.Time / int64(time.Millisecond)
	switch {
	case c.outcome != envelopes.StatusInProgress:
	case s.Type == envelopes.ToolCall && c.began == 0:
		c.began = at
	case s.Type == envelopes.ToolResult && s.Status != envelopes.StatusInProgress:
		if c.began != 0 && at > c.began {
			c.took = at - c.began
		}
		c.began = 0
	}
}

// find returns the call of an event, and whether this is its first event.
func (c *calls) find(s *Step) (of *call, begins bool) {
	id := s.Call
	if id == "" {
		id = c.withoutID(s)
	}
	key := callID(id)
	if of := c.known[key]; of != nil {
		return of, false
	}
	of = &call{tool: s.Tool, outcome: envelopes.StatusInProgress, latency: -1, took: -1}
	c.add(key, of)
	return of, true
}

// callID returns the hash of the id of a call; 0 for an empty id.
func callID(id string) uint64 {
	if id == "" {
		return 0
	}
	hash := fnv.New64a()
	hash.Write([]byte(id)) // never fails
	return hash.Sum64()
}

// add remembers a call, and forgets the oldest if there are too many.
func (c *calls) add(key uint64, of *call) {
	if c.known == nil {
		c.known = map[uint64]*call{}
	}
	if len(c.order) >= maxCalls {
		delete(c.known, c.order[0])
		c.order = c.order[1:]
	}
	c.known[key] = of
	c.order = append(c.order, key)
}

// withoutID assigns an id to a call without one. A result belongs to the oldest call of its tool that has neither id
// nor result.
func (c *calls) withoutID(s *Step) string {
	if s.Type == envelopes.ToolResult {
		for i := 0; i < len(c.noIDOf); i += 2 {
			if s.Tool == "" || c.noIDOf[i] == s.Tool {
				id := c.noIDOf[i+1]
				c.noIDOf = append(c.noIDOf[:i:i], c.noIDOf[i+2:]...)
				return id
			}
		}
	}
	c.noID++
	id := "\x00" + strconv.Itoa(c.noID)
	if s.Type == envelopes.ToolCall && len(c.noIDOf) < 2*64 {
		c.noIDOf = append(c.noIDOf, s.Tool, id)
	}
	return id
}
