// Package acp normalizes what the Agent Communication Protocol says of runs: the events of a
// stream, runs and messages on their own, arrays of them, and what is sent to an agent
// (vendor-formats.md section 9). Every message is told once, wherever it is found first:
// in the parts of a stream, in the message that completes them, or in the output of a run.
package acp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Limits of what a session remembers of ACP.
const (
	maxParts    = 32 << 10 // bytes of the parts of a message that is not complete; beyond it they are told
	maxRuns     = 8        // runs
	maxStreamed = 64       // messages of a run that came in its stream
	maxSaid     = 256      // messages that may come again without an id
)

// state is what a session remembers beyond what all vendors do. The events of a stream
// do not name their run: it is the last that was named.
type state struct {
	Run   string            `json:"run,omitzero"`
	Agent string            `json:"agent,omitzero"` // that runs
	Runs  core.Window[run]  `json:"runs,omitzero"`
	Open  openMessage       `json:"open,omitzero"`
	Said  core.Window[said] `json:"said,omitzero"`
}

// run is how far a run has been told.
type run struct {
	Run  core.Fingerprint `json:"r"`
	From int              `json:"f,omitzero"` // messages of the output from here ...
	Next int              `json:"n,omitzero"` // ... up to here came in the stream; the next one of the stream
	// Streamed are the words of the last of these; zero where they are not known.
	Streamed core.Window[core.Fingerprint] `json:"s,omitzero"`
	Last     core.Fingerprint              `json:"l,omitzero"` // the run, as it was last stated
	Asked    core.Fingerprint              `json:"a,omitzero"` // the question that it awaits the answer of
}

// streamed is what came in the stream as the i-th message of the run. known is false
// where no message did; the words are zero where they are not known.
func (r *run) streamed(i int) (words core.Fingerprint, known bool) {
	if i < r.From || i >= r.Next {
		return core.Fingerprint{}, false
	}
	if at := i - (r.Next - len(r.Streamed)); at >= 0 {
		return r.Streamed[at], true
	}
	return core.Fingerprint{}, true
}

// openMessage is a message of the stream that is not complete.
type openMessage struct {
	Active    bool                        `json:"on,omitzero"`
	Role      string                      `json:"role,omitzero"`
	CreatedAt string                      `json:"at,omitzero"`
	Parts     core.Window[jsontext.Value] `json:"parts,omitzero"` // those that are not told
	Told      int                         `json:"told,omitzero"`  // how many were told before them
	Announced int                         `json:"ann,omitzero"`   // how many stood in message.created; the stream repeats them
	Repeated  int                         `json:"rep,omitzero"`   // how many of these it has repeated
	From      core.Pending                `json:"from,omitzero"`  // the last record of the message
}

// Size implements [core.State].
func (s *state) Size() int {
	n := len(s.Run) + len(s.Agent) + 32*len(s.Said)
	for _, r := range s.Runs {
		n += 64 + 8*len(r.Streamed)
	}
	if s.Open.Active {
		n += 128 + len(s.Open.Role) + len(s.Open.CreatedAt) + len(s.Open.From.Raw) + len(s.Open.From.TS) + s.Open.size()
		n += len(s.Open.From.Traceparent) + len(s.Open.From.Tracestate)
	}
	return n
}

// size is how many bytes the parts that wait take.
func (o *openMessage) size() int {
	n := 0
	for _, p := range o.Parts {
		n += len(p) + 1
	}
	return n
}

// recordKind tells what a record is.
type recordKind int

const (
	unknown   recordKind = iota // and generic: kept as meta
	runStated                   // an event run.*, or a run on its own
	created
	part
	completed
	acpError
	message // on its own: the history of a session
	request // of a run
	resume  // of a run that awaits an answer
	array
)

// wire are the members of records, of any kind.
type wire struct {
	Type        lenient.Text          `json:"type"`
	Run         jsontext.Value        `json:"run"`
	Message     jsontext.Value        `json:"message"`
	Part        jsontext.Value        `json:"part"`
	Parts       lenient.Kind          `json:"parts"`
	Input       jsontext.Value        `json:"input"`
	AwaitResume lenient.Object[await] `json:"await_resume"`
}

// runWire are the members of a run, and of the request of one.
type runWire struct {
	RunID        lenient.Text          `json:"run_id"`
	AgentName    lenient.Text          `json:"agent_name"`
	SessionID    lenient.Text          `json:"session_id"`
	Status       lenient.Text          `json:"status"`
	AwaitRequest lenient.Object[await] `json:"await_request"`
	Output       jsontext.Value        `json:"output"`
	Error        jsontext.Value        `json:"error"`
	CreatedAt    lenient.Text          `json:"created_at"`
	FinishedAt   lenient.Text          `json:"finished_at"`
}

type await struct {
	Message jsontext.Value `json:"message"`
}

// record is a record with all messages in it checked and decoded.
type record struct {
	kind     recordKind
	value    jsontext.Value // the run, where it is one
	run      runWire
	messages []envelopes.ACPMessage // the output of a run, the input of a request, or the one message
	question *envelopes.ACPMessage  // that a run asks
	part     envelopes.ACPPart
	elements []record
}

// read reads a record by itself. An error is [ErrMalformed]: a message or a part is
// none by the protocol's own model (seed-features.md section 5.1).
func read(data jsontext.Value) (record, error) {
	if data.Kind() == '[' {
		rec := record{kind: array}
		for _, e := range lenient.Elements(data) {
			var element record
			if e.Kind() == '{' {
				var err error
				if element, err = read(e); err != nil {
					return record{}, err
				}
			}
			rec.elements = append(rec.elements, element)
		}
		return rec, nil
	}
	var w wire
	rec := record{value: data}
	lenient.ReadObject(data, &w)
	lenient.ReadObject(data, &rec.run)
	var err error
	switch {
	case strings.HasPrefix(string(w.Type), "run.") && w.Run.Kind() == '{':
		rec.value, rec.run = w.Run, runWire{}
		lenient.ReadObject(w.Run, &rec.run)
		rec.run.Status = w.Type[len("run."):]
		err = rec.readRun()
	case w.Type == "message.created" && w.Message.Kind() == '{':
		rec.kind, err = created, rec.readMessage(w.Message)
	case w.Type == "message.completed" && w.Message.Kind() == '{':
		rec.kind, err = completed, rec.readMessage(w.Message)
	case w.Type == "message.part" && w.Part.Kind() == '{':
		rec.kind = part
		rec.part, err = envelopes.DecodeACPPart(strict(w.Part))
	case w.Type == "error":
		rec.kind = acpError
	case w.Type != "":
	case w.Parts == '[':
		rec.kind, err = message, rec.readMessage(data)
	case w.AwaitResume.OK && w.AwaitResume.Value.Message.Kind() == '{':
		rec.kind, err = resume, rec.readMessage(w.AwaitResume.Value.Message)
	case w.Input.Kind() == '[' && rec.run.AgentName != "":
		rec.kind, err = request, rec.readMessages(w.Input)
	case (rec.run.AgentName != "" || rec.run.RunID != "") && (rec.run.Status != "" || rec.run.Output.Kind() == '['):
		err = rec.readRun()
	}
	if err != nil {
		return record{}, fmt.Errorf("%w: %w", core.ErrMalformed, err)
	}
	return rec, nil
}

// readRun reads the messages of a run.
func (r *record) readRun() error {
	r.kind = runStated
	if v := r.run.AwaitRequest.Value.Message; r.run.Status == "awaiting" && v.Kind() == '{' {
		m, err := envelopes.DecodeACPMessage(strict(v))
		if err != nil {
			return err
		}
		r.question = &m
	}
	if r.run.Output.Kind() != '[' {
		return nil
	}
	return r.readMessages(r.run.Output)
}

// readMessages reads an array of messages.
func (r *record) readMessages(array jsontext.Value) error {
	for _, v := range lenient.Elements(array) {
		if err := r.readMessage(v); err != nil {
			return err
		}
	}
	return nil
}

func (r *record) readMessage(v jsontext.Value) error {
	m, err := envelopes.DecodeACPMessage(strict(v))
	r.messages = append(r.messages, m)
	return err
}

// strict is a value of a vendor in the strict JSON that the model is read from.
func strict(v jsontext.Value) jsontext.Value {
	if v.IsValid() {
		return v
	}
	return lenient.Strict(v)
}

// mapper is the work on one record of ACP.
type mapper struct {
	*core.Builder
	st       *state
	mirrored bool // something was told before, by other words than an id
}

// normalize maps one record.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	a := &mapper{Builder: s.Begin(r, ""), st: stateOf(s)}
	if r.Origin.End {
		a.flush()
		return a.Finish("")
	}
	if err := core.ReadRecord(r.Data, &struct{}{}); err != nil {
		return core.Result{}, err
	}
	rec, err := read(r.Data)
	if err != nil {
		return core.Result{}, err
	}
	skip := a.record(&rec)
	if a.mirrored {
		skip = core.SkipMirror
	}
	return a.Finish(skip)
}

// record maps a record; the result is why it has no event, where it has none.
func (a *mapper) record(r *record) core.SkipReason {
	switch r.kind {
	case runStated:
		return a.run(r)
	case created:
		return a.create(&r.messages[0])
	case part:
		return a.grow(&r.part)
	case completed:
		return a.complete(&r.messages[0])
	case acpError:
		a.flush()
		var e struct {
			Error jsontext.Value `json:"error"`
		}
		lenient.ReadObject(r.value, &e)
		a.fail(e.Error)
	case message:
		return a.alone(&r.messages[0])
	case request:
		return a.request(r)
	case resume:
		a.flush()
		a.about(&r.run)
		a.say(&telling{message: &r.messages[0], speaker: acpHuman})
		return core.SkipEmpty
	case array:
		return a.array(r.elements)
	case unknown:
		a.keep()
	}
	return core.SkipDuplicate
}

// keep emits a meta event for the record.
func (a *mapper) keep() {
	d := core.Draft{OnChannel: envelopes.ChannelSystem}
	d.EventType = envelopes.Meta
	a.Emit(d)
}

// fail emits an error that the vendor states.
func (a *mapper) fail(problem jsontext.Value) {
	code, message := core.VendorError(problem)
	d := core.Draft{OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.Log, lenient.Text(cmp.Or(message, code)).Ptr()
	d.Metadata = a.Session.MetadataWithError(code, message)
	a.Emit(d)
}

// about notes what a run, or the request of one, says of its session.
func (a *mapper) about(r *runWire) {
	a.Session.SetResumeID(string(r.SessionID))
	a.Session.SetTextExtension("agentName", r.AgentName)
	if r.AgentName != "" {
		a.st.Agent = core.Cut(string(r.AgentName), core.MaxName)
	}
}

// create begins a message of the stream. Its parts may be there already; then the stream
// repeats them.
func (a *mapper) create(m *envelopes.ACPMessage) core.SkipReason {
	a.flush()
	a.setTime(m.CreatedAt)
	a.st.Open = a.opened(m)
	for i := range m.Parts {
		a.add(&m.Parts[i])
	}
	a.st.Open.Announced = len(m.Parts)
	return core.SkipProgress
}

// opened is a message of the stream without parts.
func (a *mapper) opened(m *envelopes.ACPMessage) openMessage {
	o := openMessage{Active: true, Role: m.Role, From: a.PendingRecord()}
	if len(o.Role) > core.MaxIdentity {
		o.Role = "agent"
	}
	o.CreatedAt, _ = acpTime(m.CreatedAt)
	return o
}

// grow adds a part to the message of the stream; one that message.created announced is
// there already.
func (a *mapper) grow(p *envelopes.ACPPart) core.SkipReason {
	if !a.st.Open.Active {
		a.st.Open = a.opened(&envelopes.ACPMessage{Role: "agent"})
	}
	a.st.Open.From = a.PendingRecord()
	if o := &a.st.Open; o.Repeated < o.Announced {
		i := o.Repeated - o.Told
		if i < 0 || string(o.Parts[i]) == string(waiting(p)) {
			o.Repeated++
			return core.SkipProgress
		}
		o.Announced = 0 // the stream goes another way
	}
	a.add(p)
	return core.SkipProgress
}

// add lets a part wait for the end of its message. What is too much to be remembered is
// told at once, the parts before it first.
func (a *mapper) add(p *envelopes.ACPPart) {
	v := waiting(p)
	if a.st.Open.size()+len(v) > maxParts {
		a.tellOpen(nil, nil)
	}
	a.st.Open.Parts = a.st.Open.Parts.Push(v, maxParts, nil)
	if a.st.Open.size() > maxParts {
		a.tellOpen(nil, nil)
	}
}

// digest begins what stands for the bytes of what is no text; no base64 has a colon.
const digest = "sha256:"

// waiting is a part as a session remembers it: with a digest for the bytes of what is no
// text, of which no event tells. A part that was remembered stays what it is.
func waiting(p *envelopes.ACPPart) jsontext.Value {
	part := *p
	if _, ok := part.Text(); !ok && part.Content != nil && part.ContentEncoding == envelopes.ACPBase64 && !strings.HasPrefix(*part.Content, digest) {
		part.Content = new(digest + core.HexHash(*part.Content))
	}
	v, err := json.Marshal(part)
	if err != nil {
		return jsontext.Value(`{}`) // it has been read once, and cannot fail
	}
	return v
}

// tellOpen tells the parts that wait; whole, where it is there, is the message that they
// are of, with all of its parts. They come from the given record, nil for the one at work.
// The result is the words of the message; zero where they are not known any more.
func (a *mapper) tellOpen(whole *envelopes.ACPMessage, from *core.Pending) (words core.Fingerprint) {
	o := a.st.Open
	t := telling{message: &envelopes.ACPMessage{Role: o.Role, CreatedAt: lenient.Text(o.CreatedAt).Ptr()}, run: a.st.Run, first: o.Told, from: from}
	if a.st.Run != "" {
		t.index = a.progress().Next
	}
	total := o.Told + len(o.Parts)
	if whole != nil {
		t.message.Role = whole.Role
		t.message.CreatedAt, t.message.CompletedAt = cmp.Or(whole.CreatedAt, t.message.CreatedAt), whole.CompletedAt
	}
	if whole != nil && (len(whole.Parts) >= total || o.Told == 0 && len(whole.Parts) > 0) {
		t.message.Parts = whole.Parts[o.Told:]
		words = acpWords(byRole, whole)
	} else {
		for _, v := range o.Parts {
			p, err := envelopes.DecodeACPPart(v)
			if err != nil {
				p = envelopes.ACPPart{} // it was made by waiting, and cannot fail
			}
			t.message.Parts = append(t.message.Parts, p)
		}
	}
	if o.Told == 0 {
		words = acpWords(byRole, t.message)
	}
	a.say(&t)
	a.st.Open.Parts, a.st.Open.Told = nil, max(total, o.Told+len(t.message.Parts))
	return words
}

// closeOpen ends the message of the stream, of the given words.
func (a *mapper) closeOpen(words core.Fingerprint) {
	a.st.Open = openMessage{}
	if a.st.Run != "" {
		p := a.progress()
		p.Next++
		p.Streamed = p.Streamed.Push(words, maxStreamed, nil)
		a.setProgress(p)
	}
}

// flush tells a message of the stream that was never completed.
func (a *mapper) flush() {
	if !a.st.Open.Active {
		return
	}
	from := a.st.Open.From
	a.closeOpen(a.tellOpen(nil, &from))
}

// complete tells the message of the stream.
func (a *mapper) complete(m *envelopes.ACPMessage) core.SkipReason {
	if !a.st.Open.Active {
		a.st.Open = a.opened(m)
	}
	a.setTime(m.CompletedAt, m.CreatedAt)
	a.closeOpen(a.tellOpen(m, nil))
	return core.SkipEmpty
}

// setTime makes the first of these that is one the time of the record.
func (a *mapper) setTime(times ...*string) {
	if ts, ok := acpTime(times...); ok {
		a.TS = ts
	}
}

// acpTime is the first of these that is a time. One without a zone is in UTC, as the SDK
// has it.
func acpTime(times ...*string) (string, bool) {
	for _, t := range times {
		if t == nil {
			continue
		}
		if ts, ok := core.ParseTime(*t); ok {
			return ts, true
		}
		if ts, ok := core.ParseTime(*t + "Z"); ok {
			return ts, true
		}
	}
	return "", false
}

// progress is how far the run at work has been told.
func (a *mapper) progress() run {
	key := core.FingerprintOf(a.st.Run)
	for _, r := range a.st.Runs {
		if r.Run == key {
			return r
		}
	}
	return run{Run: key}
}

// setProgress remembers it.
func (a *mapper) setProgress(p run) {
	others := a.st.Runs.Without(func(r run) bool { return r.Run == p.Run })
	a.st.Runs = others.Push(p, maxRuns, &a.Session.Lost)
}

// run maps a run: the messages that it holds and that were not told, what became of it,
// and what it asks.
func (a *mapper) run(r *record) core.SkipReason {
	id := core.BoundID(string(r.run.RunID))
	if id != a.st.Run {
		a.flush() // it was of the run before
		a.st.Run = id
	}
	a.about(&r.run)
	p, is := a.progress(), core.FingerprintOf(lenient.CompactText(r.value))
	if id != "" && p.Last == is {
		return core.SkipDuplicate
	}
	a.TS = a.runTime(&r.run)
	if last := len(r.messages) - 1; last >= 0 && a.st.Open.beginning(&r.messages[last]) {
		a.closeOpen(a.tellOpen(&r.messages[last], nil))
	}
	a.flush()
	if id != "" {
		p = a.progress()
	}
	a.output(r.messages, &p, id)
	a.TS = a.runTime(&r.run) // its messages may be later than it was
	if r.run.Status == "failed" {
		a.fail(r.run.Error)
	} else {
		a.keep()
	}
	asks := core.Fingerprint{}
	if r.question != nil {
		asks = acpWords(agent, r.question)
		if asks != p.Asked {
			a.say(&telling{message: r.question, speaker: agent})
		}
	}
	if p.Last, p.Asked = is, asks; id != "" {
		a.setProgress(p)
	}
	return core.SkipDuplicate
}

// beginning reports whether the message of the stream is, as far as it came, this one.
func (o *openMessage) beginning(m *envelopes.ACPMessage) bool {
	if !o.Active || len(m.Parts) < o.Told+len(o.Parts) {
		return false
	}
	for i, v := range o.Parts {
		if string(v) != string(waiting(&m.Parts[o.Told+i])) {
			return false
		}
	}
	return true
}

// output tells the messages in the output of a run that were not told. Those that came in
// the stream are known by their words, for records of the stream may be missing; where
// the id of a message was taken by another one for that reason, its events have ids of
// their record.
func (a *mapper) output(messages []envelopes.ACPMessage, p *run, id string) {
	words := make([]core.Fingerprint, len(messages))
	for i := range messages {
		words[i] = acpWords(byRole, &messages[i])
	}
	left := p.Streamed
	for i := range messages {
		if at := slices.Index(left, words[i]); at >= 0 {
			left = slices.Delete(slices.Clone(left), at, at+1)
			continue
		}
		run := id
		if told, known := p.streamed(i); known && told == (core.Fingerprint{}) {
			continue
		} else if known && slices.Contains(words, told) {
			run = ""
		}
		a.say(&telling{message: &messages[i], run: run, index: i})
	}
	if n := len(messages); n > p.Next {
		p.From, p.Next, p.Streamed = n, n, nil
	}
}

// runTime is when a run was in the state that it states: the end of one that has ended,
// the creation of one that was created; one that goes on is as late as what was told of
// its session.
func (a *mapper) runTime(r *runWire) string {
	created, finished := string(r.CreatedAt), string(r.FinishedAt)
	ts, ok := acpTime(&finished, &created)
	if !ok {
		return a.TS
	}
	if _, ended := acpTime(&finished); ended || r.Status == "created" || a.Session.TS == "" {
		return ts
	}
	now, err := time.Parse(time.RFC3339Nano, ts)
	last, lastErr := time.Parse(time.RFC3339Nano, a.Session.TS)
	if err == nil && lastErr == nil && now.Before(last) {
		return a.Session.TS
	}
	return ts
}
