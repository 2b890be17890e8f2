package calls

import (
	"hash/maphash"
	"strings"

	"tributary/envelopes"
	"tributary/pipeline/events"
)

// Limits of unmatched calls and results in memory.
const (
	maxResults = 100_000
	maxFiles   = 64 // of one call
)

// call is what an event states about a call.
type call struct {
	command string // its first line
	project string
	edited  []string // files
	at      Place
}

// ended is a result without its call.
type ended struct {
	outcome envelopes.ToolStatus
	at      Place
}

// pairs matches calls and results. Within a part of the stream events come in order, but an earlier part comes after
// a later one.
type pairs struct {
	seed    maphash.Seed
	calls   map[uint64]*call // of this part, without a result; nil for a call to leave out
	results map[uint64]ended // of later parts, without a call
}

func newPairs() *pairs {
	return &pairs{maphash.MakeSeed(), map[uint64]*call{}, map[uint64]ended{}}
}

// calledFunc gets a call and its outcome, in_progress if it has no result.
type calledFunc func(c *call, outcome envelopes.ToolStatus, last Place)

// event matches the next event of a call. It leaves out calls that do not match, and their results.
func (p *pairs) event(e *events.Event, matches bool, called calledFunc) {
	var id string
	if e.ToolCallID != nil {
		id = *e.ToolCallID
	}
	key := maphash.Comparable(p.seed, [3]string{string(e.Source), e.SessionID, id})
	if e.EventType == envelopes.ToolCall {
		p.call(key, e, matches, called)
		return
	}
	var outcome envelopes.ToolStatus
	if e.ToolStatus != nil {
		outcome = *e.ToolStatus
	}
	switch c, ok := p.calls[key]; {
	case outcome == envelopes.StatusInProgress:
	case ok && id != "":
		delete(p.calls, key)
		if c != nil {
			called(c, outcome, placeOf(e))
		}
	case e.ToolInput != nil: // no event has its call
		if matches {
			called(callOf(e), outcome, placeOf(e))
		}
	case id != "" && len(p.results) < maxResults:
		p.results[key] = ended{outcome, placeOf(e)}
	}
}

// call matches the event of a call with its result, or keeps it until that is read.
func (p *pairs) call(key uint64, e *events.Event, matches bool, called calledFunc) {
	r, ok := p.results[key]
	if e.ToolCallID == nil {
		ok = false
	}
	if ok {
		delete(p.results, key)
	}
	switch {
	case !matches && !ok && e.ToolCallID != nil:
		p.calls[key] = nil
	case !matches:
	case ok:
		called(callOf(e), r.outcome, r.at)
	case e.ToolCallID == nil:
		called(callOf(e), envelopes.StatusInProgress, placeOf(e))
	default:
		p.calls[key] = callOf(e)
	}
}

// endPart ends a part of the stream: all parts with results of its calls have been read.
func (p *pairs) endPart(called calledFunc) {
	for _, c := range p.calls {
		if c == nil {
			continue
		}
		called(c, envelopes.StatusInProgress, c.at)
	}
	clear(p.calls)
}

// callOf returns what an event states about a call.
func callOf(e *events.Event) *call {
	c := &call{at: placeOf(e)}
	if command, ok := e.Command(); ok {
		c.command = cut(firstLine(command), maxText)
	}
	if e.ProjectRoot != nil {
		c.project = strings.Clone(*e.ProjectRoot)
	}
	edit := func(path string, op envelopes.FileOp) {
		if path != "" && op != envelopes.OpRead && len(c.edited) < maxFiles {
			c.edited = append(c.edited, strings.Clone(path))
		}
	}
	for _, f := range e.Files {
		edit(f.Path, f.Op)
	}
	if len(e.Files) == 0 && e.FilePath != nil && e.FileOp != nil {
		edit(*e.FilePath, *e.FileOp)
	}
	return c
}
