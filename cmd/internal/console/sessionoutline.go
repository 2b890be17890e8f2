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
)

// What the page of a whole session shows at most.
const (
	outlineEvents = 200_000
	outlineTurns  = 2_000
	outlineMarks  = 500 // errors, and edits
)

// outlinePage is the data of the template "outline": what a session did, turn by turn.
type outlinePage struct {
	*sessionHeading

	Turns     []*outlineTurn
	TurnsLeft int   // that are not shown
	Problems  marks // calls that failed, and errors
	Changes   marks // edits
	Timeline  []timelineRow
	Read      int  // events
	Cut       bool // there are more events than are read
}

// outlineTurn is a turn without its content.
type outlineTurn struct {
	Number   int
	Sequence uint64
	Prompt   string // the beginning of it
	Facts    *sectionFacts

	models map[string]*sessions.Billed
	end    time.Time
}

// marks are events to jump to, and how many of them are not shown.
type marks struct {
	List []mark
	Left int
}

// Total is how many there are.
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

// outlineLine is the length of the line that an outline has of a text.
const outlineLine = 160

// cutLine returns the beginning of a text on one line.
func cutLine(text string) string {
	text = text[:boundary(text, min(len(text), 8*outlineLine))]
	return strings.Clone(terminal.Cut(terminal.OneLine(text), outlineLine))
}

// outline answers with the turns, the tools, the errors and the edits of a whole session.
func (r *request) outline() error {
	ctx := r.Context()
	id, err := r.sessionID()
	if err != nil {
		return err
	}
	generation, err := r.generation(ctx)
	if err != nil {
		return err
	}
	heading, err := r.heading(ctx, generation, id)
	if err != nil {
		return err
	}
	o := &outliner{outlinePage: &outlinePage{sessionHeading: heading}, zone: r.filter.Zone}
	for e, err := range events.Outlines(ctx, r.config.JetStream, generation, events.Query{Source: id.Source, Session: id.Session}) {
		if err != nil && e.Position > 0 {
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
	for _, t := range o.Turns {
		t.Facts.Cost = r.costOf(t.models)
	}
	o.Timeline = o.calls.rows(o.Address)
	return r.page("outline", heading.Name, o.outlinePage)
}

// Address returns the address of the event of a sequence in the conversation.
func (h *sessionHeading) Address(sequence uint64) string {
	return h.Path + "?at=" + strconv.FormatUint(sequence, 10)
}

// outliner makes the page of a whole session from its events, in their order.
type outliner struct {
	*outlinePage

	zone  *time.Location
	turn  *outlineTurn
	model string // that was used last
	calls timedCalls
}

// add adds the next event. It keeps no memory of the event.
func (o *outliner) add(e *envelopes.AgentEventV1) {
	o.Read++
	o.calls.note(e)
	at, err := e.Timestamp()
	if err == nil {
		at = at.In(o.zone)
	}
	prompt := e.EventType == envelopes.UserMessage && !e.IsInternal && e.Supersedes == ""
	if o.turn == nil || prompt {
		o.begin(e, prompt)
	}
	t := o.turn
	if err == nil {
		if t.Facts.Begin.IsZero() {
			t.Facts.Begin = at
		}
		if at.After(t.end) {
			t.end = at
		}
		t.Facts.Duration = t.end.Sub(t.Facts.Begin)
	}
	o.spend(e)
	o.mark(e, at)
}

// begin begins a turn.
func (o *outliner) begin(e *envelopes.AgentEventV1, prompt bool) {
	number := 0
	if prompt {
		number = 1
	}
	if o.turn != nil {
		number = o.turn.Number + 1
	}
	o.turn = &outlineTurn{Number: number, Sequence: e.Sequence, Facts: &sectionFacts{Copied: e.Origin == envelopes.OriginCopied}, models: map[string]*sessions.Billed{}}
	if prompt {
		o.turn.Prompt = cutLine(orZero(e.Text))
	}
	if len(o.Turns) == outlineTurns {
		o.TurnsLeft++
		return
	}
	o.Turns = append(o.Turns, o.turn)
}

// spend adds the tokens of an event.
func (o *outliner) spend(e *envelopes.AgentEventV1) {
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
	f := o.turn.Facts
	if o.turn.models[o.model] == nil {
		o.turn.models[o.model] = &sessions.Billed{}
	}
	o.turn.models[o.model].Add(e.Usage)
	f.Tokens.Add(e.Usage)
	f.Total = f.Tokens.Total()
	if e.Usage.Prompt > 0 && !e.IsInternal {
		f.Context = e.Usage.Prompt
	}
}

// mark notes calls, failures, errors and edits.
func (o *outliner) mark(e *envelopes.AgentEventV1, at time.Time) {
	f := o.turn.Facts
	switch e.EventType {
	case envelopes.ToolCall:
		f.Calls++
		switch orZero(e.FileOp) {
		case envelopes.OpWrite, envelopes.OpModify, envelopes.OpDelete, envelopes.OpCreate, envelopes.OpMove:
			o.Changes.add(e, at, orZero(e.ToolName), orZero(e.FilePath))
		default:
		}
	case envelopes.ToolResult:
		if orZero(e.ToolStatus) == envelopes.StatusError {
			f.Failures++
			o.Problems.add(e, at, orZero(e.ToolName), orZero(e.Text))
		}
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
