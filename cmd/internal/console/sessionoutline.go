package console

import (
	"context"
	"strconv"
	"strings"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/transcript"
)

// Limits of the page of a whole session.
const (
	outlineEvents = 200_000
	outlineTurns  = 2_000
	outlineMarks  = 500 // errors and edits, each
)

// outlinePage is the data of the template "outline": what a session did, turn by turn.
type outlinePage struct {
	*sessionHeading

	Turns     []*outlineTurn
	TurnsLeft int   // how many are not shown
	Problems  marks // calls that failed, and errors
	Changes   marks // edits
	Timeline  []timelineRow
	Read      int  // events
	Unread    int  // events that cannot be read
	Cut       bool // more events exist than were read
}

// outlineTurn is a turn without content.
type outlineTurn struct {
	Number   int
	Sequence uint64
	Prompt   string // its beginning
	Facts    *sectionFacts

	models map[string]*sessions.Billed
	end    time.Time

	prompted bool // it begins with a prompt
	spoken   bool // it has more than noise
}

// marks are events to jump to, and how many more there are.
type marks struct {
	List []mark
	Left int
}

// Total returns how many there are.
func (m marks) Total() int { return len(m.List) + m.Left }

// mark is an event to jump to.
type mark struct {
	Sequence uint64
	At       time.Time
	Name     string // of the tool
	Text     string
}

func (m *marks) add(e *envelopes.AgentEventV1, at time.Time, name, text string) {
	if len(m.List) == outlineMarks {
		m.Left++
		return
	}
	m.List = append(m.List, mark{e.Sequence, at, strings.Clone(name), cutLine(text)})
}

// outlineLine is the length of a text in an outline.
const outlineLine = 160

// cutLine returns the beginning of a text on one line.
func cutLine(text string) string {
	text = text[:boundary(text, min(len(text), 8*outlineLine))]
	return strings.Clone(terminal.Cut(terminal.OneLine(text), outlineLine))
}

// outline answers with the turns, the tools, the errors and the edits of a whole session.
func (r sessionRequest) outline() error {
	ctx := r.Context()
	generation, id, heading, err := r.opened(ctx)
	if err != nil {
		return err
	}
	o := &outliner{outlinePage: &outlinePage{sessionHeading: heading}, zone: r.filter.Zone, open: map[thread]*outlineTurn{}, began: map[string]*outlineCall{}}
	for e, err := range events.Outlines(ctx, r.config.JetStream, generation, events.Query{Source: id.Source, Session: id.Session}) {
		if err != nil && e.Position > 0 {
			o.Unread++
			continue
		}
		if err != nil {
			return err
		}
		if o.Cut = o.Read == outlineEvents; o.Cut {
			break
		}
		o.add(&e.AgentEventV1)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	o.finish()
	for _, t := range o.Turns {
		t.Facts.Cost = r.costOf(t.models)
	}
	o.Timeline = o.calls.rows(o.Address)
	return r.page("outline", heading.Name, o.outlinePage)
}

// Address returns the address of an event in the conversation, by its sequence.
func (h *sessionHeading) Address(sequence uint64) string {
	return h.Path + "?at=" + strconv.FormatUint(sequence, 10)
}

// thread is the main conversation, or that of a subagent.
type thread struct {
	internal bool
	agent    string
}

// outliner makes the page of a whole session from its events in order.
type outliner struct {
	*outlinePage

	zone  *time.Location
	main  []*outlineTurn
	runs  []*outlineTurn          // of subagents
	open  map[thread]*outlineTurn // the last turn of each thread
	began map[string]*outlineCall // by the id of a call
	model string                  // the last used one
	calls timedCalls
}

// outlineCall is a call that has begun. What is stated of it again counts once, and its last result decides.
type outlineCall struct {
	turn            *outlineTurn // in which it began
	changed, failed bool
}

// add adds the next event. It does not keep the event.
func (o *outliner) add(e *envelopes.AgentEventV1) {
	o.Read++
	o.calls.note(e)
	at, err := e.Timestamp()
	if err == nil {
		at = at.In(o.zone)
	}
	t := o.turn(e)
	if err == nil {
		if t.Facts.Begin.IsZero() {
			t.Facts.Begin = at
		}
		if at.After(t.end) {
			t.end = at
		}
	}
	o.spend(t, e)
	o.mark(t, e, at)
}

// turn returns the turn of an event, or the run of its subagent. Later events of a call are of the turn in which it
// began.
func (o *outliner) turn(e *envelopes.AgentEventV1) *outlineTurn {
	call := ""
	if e.EventType == envelopes.ToolCall || e.EventType == envelopes.ToolResult {
		call = orZero(e.ToolCallID)
	}
	if c := o.began[call]; c != nil {
		return c.turn
	}
	key, list := thread{}, &o.main
	if e.IsInternal {
		key, list = thread{true, strings.Clone(orZero(e.AgentID))}, &o.runs
	}
	t := o.open[key].next(e, e.EventType == envelopes.UserMessage && e.Supersedes == "")
	if t != o.open[key] {
		o.open[key] = t
		*list = append(*list, t)
	}
	if call != "" {
		o.began[strings.Clone(call)] = &outlineCall{turn: t}
	}
	return t
}

// next returns the turn of an event after those of the turn t; nil for the first. A prompt begins one, unless nothing
// but noise precedes it.
func (t *outlineTurn) next(e *envelopes.AgentEventV1, prompt bool) *outlineTurn {
	switch {
	case t != nil && !prompt:
		t.spoken = t.spoken || transcript.Speaks(e)
		return t
	case t == nil || t.prompted || t.spoken:
		number := 0
		if t != nil {
			number = t.Number
		}
		t = &outlineTurn{Number: number, Sequence: e.Sequence, Facts: &sectionFacts{}, models: map[string]*sessions.Billed{}}
	default:
		t.Sequence, t.Facts.Begin = e.Sequence, time.Time{}
	}
	t.Facts.Copied, t.spoken, t.prompted = e.Origin == envelopes.OriginCopied, transcript.Speaks(e), prompt
	if prompt {
		t.Number++
		t.Prompt = cutLine(orZero(e.Text))
	}
	return t
}

// finish adds the runs of subagents to the turns in which they began. A log can have them anywhere.
func (o *outliner) finish() {
	if len(o.main) == 0 { // the session belongs to a subagent
		o.main, o.runs = o.runs, nil
		for n, t := range o.main {
			t.Number = n + 1
		}
	}
	for _, run := range o.runs {
		n := len(o.main) - 1
		for n > 0 && o.main[n].Facts.Begin.After(run.Facts.Begin) {
			n--
		}
		t := o.main[n]
		t.Facts.Calls += run.Facts.Calls
		t.Facts.Failures += run.Facts.Failures
		t.Facts.Errors += run.Facts.Errors
		t.Facts.Tokens.Add(&run.Facts.Tokens)
		for model, b := range run.models {
			t.billed(model).Merge(b)
		}
	}
	for _, t := range o.main {
		t.Facts.Duration = t.end.Sub(t.Facts.Begin)
		t.Facts.Total = t.Facts.Tokens.Total()
	}
	o.Turns = o.main[:min(len(o.main), outlineTurns)]
	o.TurnsLeft = len(o.main) - len(o.Turns)
}

// billed returns the tokens of a model.
func (t *outlineTurn) billed(model string) *sessions.Billed {
	if t.models[model] == nil {
		t.models[model] = &sessions.Billed{}
	}
	return t.models[model]
}

// spend adds the tokens of an event.
func (o *outliner) spend(t *outlineTurn, e *envelopes.AgentEventV1) {
	model := orZero(e.Model)
	if model == "" && e.Metadata != nil {
		model = orZero(e.Metadata.Model)
	}
	if model != "" && model != o.model {
		o.model = strings.Clone(model)
	}
	if e.Usage == nil {
		return
	}
	t.billed(o.model).Add(e.Usage)
	t.Facts.Tokens.Add(e.Usage)
	if e.Usage.Prompt > 0 {
		t.Facts.Context = e.Usage.Prompt
	}
}

// mark notes calls, failures, errors and edits.
func (o *outliner) mark(t *outlineTurn, e *envelopes.AgentEventV1, at time.Time) {
	f := t.Facts
	c := o.began[orZero(e.ToolCallID)]
	if c == nil {
		c = &outlineCall{}
	}
	switch e.EventType {
	case envelopes.ToolCall:
		if e.Supersedes == "" {
			f.Calls++
		}
		switch orZero(e.FileOp) {
		case envelopes.OpWrite, envelopes.OpModify, envelopes.OpDelete, envelopes.OpCreate, envelopes.OpMove:
			if !c.changed {
				o.Changes.add(e, at, orZero(e.ToolName), orZero(e.FilePath))
			}
			c.changed = true
		default:
		}
	case envelopes.ToolResult:
		failed := orZero(e.ToolStatus) == envelopes.StatusError
		switch {
		case failed && !c.failed:
			f.Failures++
			o.Problems.add(e, at, orZero(e.ToolName), orZero(e.Text))
		case !failed && c.failed:
			f.Failures--
		}
		c.failed = failed
	case envelopes.Log:
		if e.Metadata == nil {
			return
		}
		if _, is := e.Metadata.Extensions["error"]; is {
			f.Errors++
			o.Problems.add(e, at, "error", orZero(e.Text))
		}
	default:
	}
}
