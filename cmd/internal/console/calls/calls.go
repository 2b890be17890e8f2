// Package calls sums up tool calls, from the newest events to the oldest: failed commands, edited files, errors that
// vendors report, and records of unknown types.
//
// Start with [Query.Run]. Its time and its memory are bounded.
//
// The invariant: a result states what it leaves out, by [Result.Oldest] and [Result.Complete] and in each [Top].
package calls

import (
	"bytes"
	"cmp"
	"context"
	"path"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/drift"
	"tributary/envelopes"
	"tributary/envelopes/jsonscan"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
)

// Query selects the events to read, and limits the result.
type Query struct {
	Source envelopes.Source         // empty for all
	Stored time.Time                // only events that were stored since then; zero for all
	Match  func(*events.Event) bool // selects events, which it gets without native JSON; nil for all
	Time   time.Duration            // of reading; 0 for no limit
	Most   int                      // entries of each list
}

// Result sums up calls.
type Result struct {
	Commands Top[Command]
	Files    Top[File]
	Errors   Top[Error]
	Drift    *drift.Counter // unknown types of records, by agent

	Events         int64     // that were read
	Oldest, Newest time.Time // all events that were stored between these times were read
	Unreadable     int64
	Referenced     int64 // meta events without a copy of their record: its type is unknown
	Complete       bool  // all events were read, not only the newest
}

// Command is a command that calls ran.
type Command struct {
	Text     string // its first line
	Calls    int64
	Failures int64
	Last     Place // the last failed call
}

// File is a file that calls edited.
type File struct {
	Path    string
	Project string // root of the project; empty if unknown
	Edits   int64  // calls that did not fail
	Last    Place
}

// Error is a kind of error that a vendor reports.
type Error struct {
	Source   envelopes.Source
	Code     string // the vendor's code, or the message of an error without a code
	Count    int64
	Sessions []Place // the last error in each of the last sessions
	More     bool    // there are more sessions
}

// Place names an event and its time.
type Place struct {
	Source  envelopes.Source
	Session string
	Event   string
	Time    time.Time
}

// In converts all times to a zone.
func (r *Result) In(zone *time.Location) {
	in := func(t *time.Time) { *t = t.In(zone) }
	in(&r.Oldest)
	in(&r.Newest)
	for i := range r.Commands.List {
		in(&r.Commands.List[i].Last.Time)
	}
	for i := range r.Files.List {
		in(&r.Files.List[i].Last.Time)
	}
	for i := range r.Errors.List {
		for s := range r.Errors.List[i].Sessions {
			in(&r.Errors.List[i].Sessions[s].Time)
		}
	}
}

// maxSessions limits the sessions in memory for each kind of error.
const maxSessions = 5

// Run reads the events of a generation. It fails if ctx ends or the broker fails.
func (q *Query) Run(ctx context.Context, js jetstream.JetStream, generation string) (*Result, error) {
	spans, err := events.OpenSpans(ctx, js, generation, events.Query{Source: q.Source})
	if err != nil {
		return nil, err
	}
	r := newReading(q, spans)
	if err := r.run(ctx); err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return r.finish(), nil
}

// reading is the state of a [Query.Run].
type reading struct {
	query  *Query
	spans  *events.Spans
	result Result
	pairs  *pairs

	commands counts[string, Command]
	files    counts[string, File]
	errors   counts[string, Error]
}

func newReading(q *Query, spans *events.Spans) *reading {
	r := &reading{query: q, spans: spans, pairs: newPairs()}
	r.result.Drift = drift.NewCounter()
	return r
}

// cell reads the events stream of a cell, the last part first.
type cell struct {
	parts  *events.Parts
	began  bool      // a part was read
	oldest time.Time // when the oldest message that was read was stored
}

// run reads one part of each cell in rotation, until the time is over.
func (r *reading) run(ctx context.Context) error {
	var open []*cell
	for _, s := range r.spans.Stored {
		open = append(open, &cell{parts: events.NewParts(s)})
	}
	for began := time.Now(); len(open) > 0; {
		c := open[0]
		open = open[1:]
		if r.query.Time > 0 && c.began && time.Since(began) > r.query.Time { // the last part of each cell is always read
			r.result.end(append(open, c))
			return nil
		}
		part, more := c.parts.Next()
		if !more {
			continue
		}
		old, err := r.readPart(ctx, c, part)
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		if !old {
			open = append(open, c)
		}
	}
	r.result.Complete = true
	return nil
}

// end sets Oldest if cells have unread events: the time since which all events of all cells were read.
func (r *Result) end(open []*cell) {
	r.Oldest = time.Time{}
	for _, c := range open {
		if c.oldest.IsZero() {
			r.Oldest = r.Newest
			return
		}
		if c.oldest.After(r.Oldest) {
			r.Oldest = c.oldest
		}
	}
}

// readPart reads a part of a stream. It reports whether a message is too old for the query, so that earlier parts are,
// too.
func (r *reading) readPart(ctx context.Context, c *cell, part events.Span) (old bool, err error) {
	read, first := int64(0), true
	for m, err := range r.spans.Read(ctx, part) {
		if m == nil {
			return old, err
		}
		if first {
			first, c.oldest = false, m.Stored.UTC()
		}
		read += int64(len(m.Data))
		switch {
		case m.Stored.Before(r.query.Stored):
			old = true
		case err != nil:
			r.result.Unreadable++
		default:
			r.count(m)
		}
	}
	c.began = true
	c.parts.Note(part, read)
	r.pairs.endPart(r.called)
	return old, nil
}

var (
	errorMember = []byte(`"error":`)
	inputMember = []byte(`"tool_input":`)
)

// count counts an event, its call, its error and its drift.
func (r *reading) count(m *events.Message) {
	stored := m.Stored.UTC()
	if r.result.Newest.Before(stored) {
		r.result.Newest = stored
	}
	if r.result.Oldest.IsZero() || stored.Before(r.result.Oldest) {
		r.result.Oldest = stored
	}
	r.result.Events++
	data, plain := m.JSON()
	isCall := m.Type == envelopes.ToolCall || m.Type == envelopes.ToolResult
	if !isCall && m.Type != envelopes.Meta && plain && !bytes.Contains(data, errorMember) {
		return
	}
	e, err := m.Outline()
	if err == nil && !plain {
		data, err = e.AppendJSON(nil)
	}
	if err != nil {
		r.result.Unreadable++
		return
	}
	matches := r.query.Match == nil || r.query.Match(&e)
	if isCall {
		if m.Type == envelopes.ToolResult && bytes.Contains(data, inputMember) {
			e.ToolInput = member(data, "tool_input")
		}
		r.pairs.event(&e, matches, r.called)
	}
	if !matches {
		return
	}
	if e.Metadata != nil && e.Metadata.Extensions["error"] != nil {
		r.failed(&e)
	}
	if m.Type == envelopes.Meta {
		r.drift(&e, data, m)
	}
}

// member returns a member of a JSON object, nil if it is missing or null.
func member(data []byte, wanted string) jsontext.Value {
	s := jsonscan.NewScanner(data)
	s.Enter()
	for name, more := s.Name(); more; name, more = s.Name() {
		if v := s.Value(); string(name) == wanted && v.Kind() != jsontext.KindNull {
			return v
		}
	}
	return nil
}

// placeOf returns the place of an event.
func placeOf(e *events.Event) Place {
	p := Place{Source: e.Source, Session: e.SessionID, Event: e.EventID, Time: e.Stored}
	if at, err := e.Timestamp(); err == nil {
		p.Time = at
	}
	return p
}

// called counts the command and the edited files of a call. last is the event that ended it.
func (r *reading) called(c *call, outcome envelopes.ToolStatus, last Place) {
	failed := outcome == envelopes.StatusError
	if c.command != "" {
		if is := r.commands.of(c.command); is != nil {
			is.Text = c.command
			is.Calls++
			if failed {
				is.Failures++
				is.Last = newer(is.Last, last)
			}
		}
	}
	if failed {
		return
	}
	for _, file := range c.edited {
		if !path.IsAbs(file) && path.IsAbs(c.project) {
			file = path.Join(c.project, file)
		}
		key := file
		if !path.IsAbs(file) { // the project is unknown, or the path is of Windows
			key = c.project + "\x00" + file
		}
		if is := r.files.of(key); is != nil {
			is.Path, is.Project = file, cmp.Or(is.Project, c.project)
			is.Edits++
			is.Last = newer(is.Last, last)
		}
	}
}

// newer returns the later of two places.
func newer(a, b Place) Place {
	if a.Event == "" || b.Time.After(a.Time) {
		return b
	}
	return a
}

// failed counts an error that a vendor reports.
func (r *reading) failed(e *events.Event) {
	var code string
	if v := member(e.Metadata.Extensions["error"], "code"); v.Kind() == '"' {
		code = jsonscan.Unquote(v)
	} else if v != nil {
		code = string(v)
	}
	if code == "" && e.Text != nil {
		code = firstLine(*e.Text)
	}
	code = cut(code, maxText)
	is := r.errors.of(string(e.Source) + "\x00" + code)
	if is == nil {
		return
	}
	is.Source, is.Code = e.Source, code
	is.Count++
	at := placeOf(e)
	for i := range is.Sessions {
		if p := &is.Sessions[i]; p.Source == at.Source && p.Session == at.Session {
			*p = newer(*p, at)
			return
		}
	}
	if is.Sessions = append(is.Sessions, at); len(is.Sessions) > maxSessions {
		oldest := 0
		for i, p := range is.Sessions {
			if p.Time.Before(is.Sessions[oldest].Time) {
				oldest = i
			}
		}
		is.Sessions = append(is.Sessions[:oldest], is.Sessions[oldest+1:]...)
		is.More = true
	}
}

// drift counts the record of a meta event if the type of the record is unknown. It normalizes the record without the
// rest of its session, because an unknown type does not depend on other records.
func (r *reading) drift(e *events.Event, data []byte, m *events.Message) {
	raw := member(data, "raw")
	if raw == nil {
		if m.Header.Get("ce-rawreference") == "true" {
			r.result.Referenced++
		}
		return
	}
	s := normalizers.NewSession(e.Source, e.SessionID)
	result, err := normalizers.Normalize(s, core.Record{Source: e.Source, Session: e.SessionID, Sequence: 1, Data: raw})
	if err != nil {
		return // only a record of a known type depends on earlier records
	}
	var found []core.Unknown
	for _, u := range result.Unknown {
		if u.Kind == core.UnknownRecord {
			found = append(found, u)
		}
	}
	if len(found) > 0 {
		r.result.Drift.Count(e.Source, normalizers.VersionOf(s), found)
	}
}

// finish sorts the lists of the result and returns it.
func (r *reading) finish() *Result {
	r.result.Commands = topOf(&r.commands, r.query.Most, func(c *Command) bool { return c.Failures > 0 }, moreFailures)
	r.result.Files = topOf(&r.files, r.query.Most, nil, moreEdits)
	r.result.Errors = topOf(&r.errors, r.query.Most, nil, moreErrors)
	for _, a := range r.result.Drift.Agents {
		a.Settle()
	}
	return &r.result
}
