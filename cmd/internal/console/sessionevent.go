package console

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/genai"
)

const (
	neighbours  = 3        // events shown before and after an event
	shownWhole  = 64 << 10 // of the texts of one event
	spanEvents  = 2_000    // events of a turn that are read to find a span
	indentedMax = 4 << 20  // a longer record is not indented
)

// eventPage is the data of the template "event": an event and its raw record.
type eventPage struct {
	Session  string // address of its session
	Name     string // of its session
	Address  string // of the event
	Context  string // address of the event in the conversation
	Event    *envelopes.AgentEventV1
	At       time.Time
	Stored   time.Time
	Cell     int
	Position uint64
	Origin   envelopes.Provenance
	Text     *shownText
	JSON     *shownText // without the raw record
	Raw      *shownText
	RawSize  int
	RawGone  string // why there is no raw record; empty if there is one
	Trace    string
	Span     string // empty if the event has no span of its own
	SpanName string
	Around   []neighbour
	Previous string // addresses of the events before and after
	Next     string
}

// neighbour is an event before or after another one.
type neighbour struct {
	Sequence uint64
	Type     string
	Tool     string
	Text     string
	At       time.Time
	Address  string
	Current  bool
}

// findEvent returns the event that the address names.
func (r sessionRequest) findEvent(ctx context.Context) (generation string, e events.Event, err error) {
	id, err := r.sessionID()
	if err != nil {
		return "", e, err
	}
	event, ok := parsePathID(r.PathValue("id"))
	if !ok {
		return "", e, notFound("there is no such event", "choose one in the session")
	}
	if generation, err = r.generation(ctx); err != nil {
		return "", e, err
	}
	e, err = events.FindEvent(ctx, r.config.JetStream, generation, id, event)
	if errors.Is(err, events.ErrNoEvent) {
		err = notFound("there is no such event in generation "+generation, "choose one in the session")
	}
	return generation, e, err
}

// event answers with the page of an event, or with the part of it that a script shows beside the conversation.
func (r sessionRequest) event() error {
	ctx := r.Context()
	generation, e, err := r.findEvent(ctx)
	if err != nil {
		return err
	}
	p := &eventPage{
		Session: sessionPath(e.Source, e.SessionID), Name: e.SessionID, Address: eventPath(e.Source, e.SessionID, e.EventID),
		Event: &e.AgentEventV1, Stored: e.Stored.In(r.filter.Zone), Cell: e.Cell, Position: e.Position, Origin: e.Provenance,
	}
	p.Context = p.Session + "?at=" + strconv.FormatUint(e.Sequence, 10)
	if at, err := e.Timestamp(); err == nil {
		p.At = at.In(r.filter.Zone)
	}
	texts := &conversationPage{left: 8 * shownWhole}
	p.Text = texts.text(orZero(e.Text), shownWhole, p.Address+"/text")
	p.loadRaw(r.request, &e, texts)
	slim := e.AgentEventV1
	slim.Raw = nil // it is shown separately
	data, err := json.Marshal(&slim, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	p.JSON = texts.text(indented(data), shownWhole, p.Address+"/json")
	if r.URL.Query().Get("part") == "beside" {
		html, err := r.fragment("event", "record", p)
		if err != nil {
			return err
		}
		return r.json(map[string]string{"html": html})
	}
	if err := p.readNeighbours(ctx, r.request, generation, &e); err != nil {
		return err
	}
	if err := p.readSpan(ctx, r.request, generation, &e); err != nil {
		return err
	}
	return r.page("event", "Event "+strconv.FormatUint(e.Sequence, 10), p)
}

// loadRaw loads the raw record. A missing or forbidden record does not fail the page.
func (p *eventPage) loadRaw(r *request, e *events.Event, texts *conversationPage) {
	data, err := e.LoadRecord(r.Context(), r.config.JetStream)
	if err != nil {
		p.RawGone = r.problemOf(r.Context(), err).Error()
		return
	}
	p.RawSize = len(data)
	p.Raw = texts.text(indented(data), shownWhole, p.Address+"/raw")
}

// indented returns JSON with one member per line, and other texts unchanged.
func indented(data []byte) string {
	if len(data) > indentedMax {
		return string(data)
	}
	v := jsontext.Value(data).Clone()
	if v.Indent(jsontext.WithIndent("  "), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return string(data)
	}
	return string(v)
}

// readNeighbours reads the events around an event.
func (p *eventPage) readNeighbours(ctx context.Context, r *request, generation string, e *events.Event) error {
	first := e.Sequence - min(e.Sequence-1, neighbours)
	id := events.SessionID{Source: e.Source, Session: e.SessionID}
	begin, err := events.EventAt(ctx, r.config.JetStream, generation, id, first)
	if err != nil {
		return err
	}
	for n, err := range events.Outlines(ctx, r.config.JetStream, generation, onward(&begin)) {
		if err != nil && n.Position == 0 {
			return err
		}
		if err != nil {
			continue
		}
		if n.Sequence > e.Sequence+neighbours {
			break
		}
		one := neighbour{
			Sequence: n.Sequence, Type: strings.ReplaceAll(string(n.EventType), "_", " "), Tool: orZero(n.ToolName), Text: cutLine(orZero(n.Text)),
			Address: eventPath(n.Source, n.SessionID, n.EventID), Current: n.Sequence == e.Sequence,
		}
		if at, err := n.Timestamp(); err == nil {
			one.At = at.In(r.filter.Zone)
		}
		switch n.Sequence {
		case e.Sequence - 1:
			p.Previous = one.Address
		case e.Sequence + 1:
			p.Next = one.Address
		}
		p.Around = append(p.Around, one)
	}
	return context.Cause(ctx)
}

// readSpan finds the trace and the span of an event, as the command trace names them. It reads the turn up to the
// event.
func (p *eventPage) readSpan(ctx context.Context, r *request, generation string, e *events.Event) error {
	id := events.SessionID{Source: e.Source, Session: e.SessionID}
	turns, err := turnStarts(ctx, r, generation, id)
	if err != nil {
		return err
	}
	from := uint64(1)
	w := newWindow(r, generation, id, from, 0)
	if n := turnsBefore(turns, e.Sequence+1); n > 0 {
		from = turns[n-1].sequence
		w.begin(turns[n-1])
		from++
	}
	from = max(from, e.Sequence-min(e.Sequence-1, spanEvents))
	begin, err := events.EventAt(ctx, r.config.JetStream, generation, id, from)
	if err != nil && !errors.Is(err, events.ErrNoEvent) {
		return err
	}
	if err == nil {
		if err := w.addSpans(ctx, &begin, e.Sequence); err != nil {
			return err
		}
	}
	call := orZero(e.ToolCallID)
	var found *genai.Span
	for _, s := range w.spans.Spans() {
		if s.Parent == nil && found == nil {
			p.Trace = s.TraceID.String()
		}
		if s.EventID == e.EventID || call != "" && callOf(s) == call {
			found = s
		}
	}
	if found != nil {
		p.Trace, p.Span, p.SpanName = found.TraceID.String(), found.SpanID.String(), found.Name
	}
	return context.Cause(ctx)
}

// addSpans adds the events from begin up to a sequence to the spans.
func (w *window) addSpans(ctx context.Context, begin *events.Event, last uint64) error {
	for e, err := range events.Outlines(ctx, w.config.JetStream, w.generation, onward(begin)) {
		if err != nil && e.Position == 0 {
			return err
		}
		if e.Sequence > last {
			break
		}
		if err == nil {
			w.spans.Add(&e.AgentEventV1)
		}
	}
	return context.Cause(ctx)
}

// callOf returns the id of the call of a span; empty for other spans.
func callOf(s *genai.Span) string {
	for _, a := range s.Attributes {
		if a.Key == "gen_ai.tool.call.id" {
			return a.Value.AsString()
		}
	}
	return ""
}

// eventPart answers with the whole text, the JSON or the raw record of an event, as plain text for any browser.
func (r sessionRequest) eventPart() error {
	ctx := r.Context()
	_, e, err := r.findEvent(ctx)
	if err != nil {
		return err
	}
	switch r.PathValue("part") {
	case "text":
		text := orZero(e.Text)
		if o := e.ToolOutput; o != nil && text == "" {
			text = orZero(o.Stdout) + orZero(o.Stderr)
		}
		return r.plain([]byte(text))
	case "json":
		data, err := json.Marshal(&e.AgentEventV1, jsontext.AllowInvalidUTF8(true))
		if err != nil {
			return err
		}
		return r.plain(data)
	case "raw":
		data, err := e.LoadRecord(ctx, r.config.JetStream)
		if errors.Is(err, events.ErrRecordGone) {
			return notFound("the raw record of this event is gone", "the event has what was made of it")
		}
		if err != nil {
			return err
		}
		return r.plain(data)
	default:
		return notFound("an event has no such part", "its parts are text, json and raw")
	}
}

// plain answers with bytes of a log, which every browser takes for plain text.
func (r sessionRequest) plain(data []byte) error {
	h := r.w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	r.w.WriteHeader(http.StatusOK)
	_, _ = r.w.Write(data) // fails if the browser has gone away
	return nil
}

// Role is the role of the event.
func (p *eventPage) Role() envelopes.Role { return orZero(p.Event.Role) }

// Latency returns the latency that the vendor states.
func (p *eventPage) Latency() string { return terminal.Millis(p.Event.ToolLatencyMS) }

// ShownName returns the name of the session on one line.
func (p *eventPage) ShownName() string { return terminal.Cut(terminal.OneLine(p.Name), 60) }
