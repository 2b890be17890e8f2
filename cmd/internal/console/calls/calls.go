// Package calls finds out what calls of tools did, from the newest events to the oldest: which commands fail, which files
// are edited, which errors vendors report, and which records no rule reads.
//
// Start with [Query.Run]. It reads for a bounded time, and remembers a bounded number of everything.
//
// The invariant: what is left out is stated, in time by [Result.Oldest] and [Result.Complete], in number beside each list.
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

// Query says of which events calls are read.
type Query struct {
	Source envelopes.Source         // empty for all
	Stored time.Time                // only events that were stored since then; zero for all
	Match  func(*events.Event) bool // only events that it selects, which have no native JSON; nil for all
	Time   time.Duration            // to read; 0 for no limit
	Most   int                      // of each list
}

// Result is what calls did.
type Result struct {
	Commands Top[Command]
	Files    Top[File]
	Errors   Top[Error]
	Drift    *drift.Counter // of record types

	Events         int64     // that were looked at
	Oldest, Newest time.Time // when the oldest and the newest of them were stored
	Unreadable     int64
	Referenced     int64 // events whose records are in the raw stream alone: it is not known which types they have
	Complete       bool  // all events were read, not only the newest
}

// Command is a command that calls ran.
type Command struct {
	Text     string // its first line
	Calls    int64
	Failures int64
	Last     Place // of the last call that failed
}

// File is a file that calls edited.
type File struct {
	Path    string
	Project string // root of the session; empty if it is unknown
	Edits   int64  // calls that did not fail
	Last    Place
}

// Error is a kind of errors that a vendor reports.
type Error struct {
	Source   envelopes.Source
	Code     string // as the vendor states it; its message if it states none
	Count    int64
	Sessions []Place // the last error of each of the last sessions
	More     bool    // there are more sessions
}

// Place is an event.
type Place struct {
	Source  envelopes.Source
	Session string
	Event   string
	Time    time.Time
}

// In has all times in a zone.
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

// maxSessions is how many sessions of an error are remembered.
const maxSessions = 5

// Run reads the events of a generation. It ends early with ctx, and with an error of the broker.
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

// reading is a reading of calls.
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

// cell is what is left of the stream of a cell.
type cell struct {
	parts  *events.Parts
	began  bool
	oldest time.Time // when its first message was stored
}

// run reads all cells in turns, until the time is over.
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

// end notes up to when all events were read, where the cells are not read to their ends.
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

// readPart reads a part of a stream, and reports whether a message is too old.
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
			r.look(m)
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

// look reads what an event has of calls.
func (r *reading) look(m *events.Message) {
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

// member returns a member of an event in JSON, nil for none and for null.
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

// called counts a call with its outcome.
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
		if !path.IsAbs(file) { // of a project that is not known, or on Windows
			key = c.project + "\x00" + file
		}
		if is := r.files.of(key); is != nil {
			is.Path, is.Project = file, cmp.Or(is.Project, c.project)
			is.Edits++
			is.Last = newer(is.Last, last)
		}
	}
}

// newer returns the later one of two places.
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

// drift counts the record of a meta event if no rule reads its type. The record is normalized by itself: of a record that
// is of another type nothing is counted.
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
		return // it needs the records before it, so its type is known
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

// finish returns the result with its lists in order.
func (r *reading) finish() *Result {
	r.result.Commands = topOf(&r.commands, r.query.Most, func(c *Command) bool { return c.Failures > 0 }, moreFailures)
	r.result.Files = topOf(&r.files, r.query.Most, nil, moreEdits)
	r.result.Errors = topOf(&r.errors, r.query.Most, nil, moreErrors)
	for _, a := range r.result.Drift.Agents {
		a.Settle()
	}
	return &r.result
}
