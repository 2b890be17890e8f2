package normalizers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// acp normalizes what the Agent Communication Protocol says of runs: the events of a
// stream, runs and messages on their own, arrays of them, and what is sent to an agent
// (vendor-formats.md section 9). Every message is told once, wherever it is found first:
// in the parts of a stream, in the message that completes them, or in the output of a run.
type acp struct{}

// Limits of what a session remembers of ACP.
const (
	maxACPParts    = 32 << 10 // bytes of the parts of a message that is not complete; beyond it they are told
	maxACPRuns     = 8        // runs
	maxACPStreamed = 64       // messages of a run that came in its stream
	maxACPSaid     = 256      // messages that may come again without an id
)

// acpState is what a session remembers beyond what all vendors do. The events of a stream
// do not name their run: it is the last that was named.
type acpState struct {
	Run   string          `json:"run,omitzero"`
	Agent string          `json:"agent,omitzero"` // that runs
	Runs  window[acpRun]  `json:"runs,omitzero"`
	Open  acpOpen         `json:"open,omitzero"`
	Said  window[acpSaid] `json:"said,omitzero"`
}

// acpRun is how far a run has been told.
type acpRun struct {
	Run  fingerprint `json:"r"`
	From int         `json:"f,omitzero"` // messages of the output from here ...
	Next int         `json:"n,omitzero"` // ... up to here came in the stream; the next one of the stream
	// Streamed are the words of the last of these; zero where they are not known.
	Streamed window[fingerprint] `json:"s,omitzero"`
	Last     fingerprint         `json:"l,omitzero"` // the run, as it was last stated
	Asked    fingerprint         `json:"a,omitzero"` // the question that it awaits the answer of
}

// streamed is what came in the stream as the i-th message of the run. known is false
// where no message did; the words are zero where they are not known.
func (r *acpRun) streamed(i int) (words fingerprint, known bool) {
	if i < r.From || i >= r.Next {
		return fingerprint{}, false
	}
	if at := i - (r.Next - len(r.Streamed)); at >= 0 {
		return r.Streamed[at], true
	}
	return fingerprint{}, true
}

// acpOpen is a message of the stream that is not complete.
type acpOpen struct {
	Active    bool                   `json:"on,omitzero"`
	Role      string                 `json:"role,omitzero"`
	CreatedAt string                 `json:"at,omitzero"`
	Parts     window[jsontext.Value] `json:"parts,omitzero"` // those that are not told
	Told      int                    `json:"told,omitzero"`  // how many were told before them
	Announced int                    `json:"ann,omitzero"`   // how many stood in message.created; the stream repeats them
	Repeated  int                    `json:"rep,omitzero"`   // how many of these it has repeated
	From      held                   `json:"from,omitzero"`  // the last record of the message
}

func (s *acpState) size() int {
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
func (o *acpOpen) size() int {
	n := 0
	for _, p := range o.Parts {
		n += len(p) + 1
	}
	return n
}

// acpKind tells what a record is.
type acpKind int

const (
	acpUnknown   acpKind = iota // and generic: kept as meta
	acpRunStated                // an event run.*, or a run on its own
	acpCreated
	acpPart
	acpCompleted
	acpError
	acpMessage // on its own: the history of a session
	acpRequest // of a run
	acpResume  // of a run that awaits an answer
	acpArray
)

// acpWire are the members of records, of any kind.
type acpWire struct {
	Type        text             `json:"type"`
	Run         jsontext.Value   `json:"run"`
	Message     jsontext.Value   `json:"message"`
	Part        jsontext.Value   `json:"part"`
	Parts       kind             `json:"parts"`
	Input       jsontext.Value   `json:"input"`
	AwaitResume object[acpAwait] `json:"await_resume"`
}

// acpRunWire are the members of a run, and of the request of one.
type acpRunWire struct {
	RunID        text             `json:"run_id"`
	AgentName    text             `json:"agent_name"`
	SessionID    text             `json:"session_id"`
	Status       text             `json:"status"`
	AwaitRequest object[acpAwait] `json:"await_request"`
	Output       jsontext.Value   `json:"output"`
	Error        jsontext.Value   `json:"error"`
	CreatedAt    text             `json:"created_at"`
	FinishedAt   text             `json:"finished_at"`
}

type acpAwait struct {
	Message jsontext.Value `json:"message"`
}

// acpRecord is a record with all messages in it checked and decoded.
type acpRecord struct {
	kind     acpKind
	value    jsontext.Value // the run, where it is one
	run      acpRunWire
	messages []envelopes.ACPMessage // the output of a run, the input of a request, or the one message
	question *envelopes.ACPMessage  // that a run asks
	part     envelopes.ACPPart
	elements []acpRecord
}

// readACP reads a record by itself. An error is [ErrMalformed]: a message or a part is
// none by the protocol's own model (seed-features.md section 5.1).
func readACP(data jsontext.Value) (acpRecord, error) {
	if data.Kind() == '[' {
		rec := acpRecord{kind: acpArray}
		for _, e := range elementsOf(data) {
			var element acpRecord
			if e.Kind() == '{' {
				var err error
				if element, err = readACP(e); err != nil {
					return acpRecord{}, err
				}
			}
			rec.elements = append(rec.elements, element)
		}
		return rec, nil
	}
	var w acpWire
	rec := acpRecord{value: data}
	readObject(data, &w)
	readObject(data, &rec.run)
	var err error
	switch {
	case strings.HasPrefix(string(w.Type), "run.") && w.Run.Kind() == '{':
		rec.value, rec.run = w.Run, acpRunWire{}
		readObject(w.Run, &rec.run)
		rec.run.Status = w.Type[len("run."):]
		err = rec.readRun()
	case w.Type == "message.created" && w.Message.Kind() == '{':
		rec.kind, err = acpCreated, rec.readMessage(w.Message)
	case w.Type == "message.completed" && w.Message.Kind() == '{':
		rec.kind, err = acpCompleted, rec.readMessage(w.Message)
	case w.Type == "message.part" && w.Part.Kind() == '{':
		rec.kind = acpPart
		rec.part, err = envelopes.DecodeACPPart(strictACP(w.Part))
	case w.Type == "error":
		rec.kind = acpError
	case w.Type != "":
	case w.Parts == '[':
		rec.kind, err = acpMessage, rec.readMessage(data)
	case w.AwaitResume.ok && w.AwaitResume.value.Message.Kind() == '{':
		rec.kind, err = acpResume, rec.readMessage(w.AwaitResume.value.Message)
	case w.Input.Kind() == '[' && rec.run.AgentName != "":
		rec.kind, err = acpRequest, rec.readMessages(w.Input)
	case (rec.run.AgentName != "" || rec.run.RunID != "") && (rec.run.Status != "" || rec.run.Output.Kind() == '['):
		err = rec.readRun()
	}
	if err != nil {
		return acpRecord{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return rec, nil
}

// isReadableACP reports whether a record that is JSON is no dead letter.
func isReadableACP(data jsontext.Value) bool {
	_, err := readACP(data)
	return err == nil
}

// readRun reads the messages of a run.
func (r *acpRecord) readRun() error {
	r.kind = acpRunStated
	if v := r.run.AwaitRequest.value.Message; r.run.Status == "awaiting" && v.Kind() == '{' {
		m, err := envelopes.DecodeACPMessage(strictACP(v))
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
func (r *acpRecord) readMessages(array jsontext.Value) error {
	for _, v := range elementsOf(array) {
		if err := r.readMessage(v); err != nil {
			return err
		}
	}
	return nil
}

func (r *acpRecord) readMessage(v jsontext.Value) error {
	m, err := envelopes.DecodeACPMessage(strictACP(v))
	r.messages = append(r.messages, m)
	return err
}

// strictACP is a value of a vendor in the strict JSON that the model is read from.
func strictACP(v jsontext.Value) jsontext.Value {
	if v.IsValid() {
		return v
	}
	return strict(v)
}

// acpFold is the work on one record of ACP.
type acpFold struct {
	*fold
	st       *acpState
	mirrored bool // something was told before, by other words than an id
}

// Normalize maps one record.
func (acp) Normalize(s *Session, r Record) (Result, error) {
	a := &acpFold{fold: s.begin(r, ""), st: &s.ACP}
	if r.Origin.End {
		a.flush()
		return a.done("")
	}
	if err := readRecord(r.Data, &struct{}{}); err != nil {
		return Result{}, err
	}
	rec, err := readACP(r.Data)
	if err != nil {
		return Result{}, err
	}
	skip := a.record(&rec)
	if a.mirrored {
		skip = SkipMirror
	}
	return a.done(skip)
}

// record maps a record; the result is why it has no event, where it has none.
func (a *acpFold) record(r *acpRecord) SkipReason {
	switch r.kind {
	case acpRunStated:
		return a.run(r)
	case acpCreated:
		return a.create(&r.messages[0])
	case acpPart:
		return a.grow(&r.part)
	case acpCompleted:
		return a.complete(&r.messages[0])
	case acpError:
		a.flush()
		var e struct {
			Error jsontext.Value `json:"error"`
		}
		readObject(r.value, &e)
		a.fail(e.Error)
	case acpMessage:
		return a.alone(&r.messages[0])
	case acpRequest:
		return a.request(r)
	case acpResume:
		a.flush()
		a.about(&r.run)
		a.say(&acpTelling{message: &r.messages[0], speaker: acpHuman})
		return SkipEmpty
	case acpArray:
		return a.array(r.elements)
	case acpUnknown:
		a.keep()
	}
	return SkipDuplicate
}

// keep emits a meta event for the record.
func (a *acpFold) keep() {
	d := draft{on: envelopes.ChannelSystem}
	d.EventType = envelopes.Meta
	a.emit(d)
}

// fail emits an error that the vendor states.
func (a *acpFold) fail(problem jsontext.Value) {
	code, message := problemOf(problem)
	d := draft{on: envelopes.ChannelSystem}
	d.EventType, d.Text = envelopes.Log, text(cmp.Or(message, code)).ptr()
	d.Metadata = a.s.metadataWithError(code, message)
	a.emit(d)
}

// about notes what a run, or the request of one, says of its session.
func (a *acpFold) about(r *acpRunWire) {
	a.s.setResumeID(string(r.SessionID))
	a.s.setTextExtension("agentName", r.AgentName)
	if r.AgentName != "" {
		a.st.Agent = cut(string(r.AgentName), maxName)
	}
}

// create begins a message of the stream. Its parts may be there already; then the stream
// repeats them.
func (a *acpFold) create(m *envelopes.ACPMessage) SkipReason {
	a.flush()
	a.setTime(m.CreatedAt)
	a.st.Open = a.opened(m)
	for i := range m.Parts {
		a.add(&m.Parts[i])
	}
	a.st.Open.Announced = len(m.Parts)
	return SkipProgress
}

// opened is a message of the stream without parts.
func (a *acpFold) opened(m *envelopes.ACPMessage) acpOpen {
	o := acpOpen{Active: true, Role: m.Role, From: a.hold()}
	if len(o.Role) > maxIdentity {
		o.Role = "agent"
	}
	o.CreatedAt, _ = acpTime(m.CreatedAt)
	return o
}

// grow adds a part to the message of the stream; one that message.created announced is
// there already.
func (a *acpFold) grow(p *envelopes.ACPPart) SkipReason {
	if !a.st.Open.Active {
		a.st.Open = a.opened(&envelopes.ACPMessage{Role: "agent"})
	}
	a.st.Open.From = a.hold()
	if o := &a.st.Open; o.Repeated < o.Announced {
		i := o.Repeated - o.Told
		if i < 0 || string(o.Parts[i]) == string(waiting(p)) {
			o.Repeated++
			return SkipProgress
		}
		o.Announced = 0 // the stream goes another way
	}
	a.add(p)
	return SkipProgress
}

// add lets a part wait for the end of its message. What is too much to be remembered is
// told at once, the parts before it first.
func (a *acpFold) add(p *envelopes.ACPPart) {
	v := waiting(p)
	if a.st.Open.size()+len(v) > maxACPParts {
		a.tellOpen(nil, nil)
	}
	a.st.Open.Parts = a.st.Open.Parts.push(v, maxACPParts, nil)
	if a.st.Open.size() > maxACPParts {
		a.tellOpen(nil, nil)
	}
}

// waiting is a part as a session remembers it: with a digest for the bytes of what is no
// text, of which no event tells. A part that was remembered stays what it is.
func waiting(p *envelopes.ACPPart) jsontext.Value {
	const digest = "sha256:" // no base64 has a colon
	part := *p
	if _, ok := part.Text(); !ok && part.Content != nil && part.ContentEncoding == envelopes.ACPBase64 && !strings.HasPrefix(*part.Content, digest) {
		part.Content = new(digest + hexHash(*part.Content))
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
func (a *acpFold) tellOpen(whole *envelopes.ACPMessage, from *held) (words fingerprint) {
	o := a.st.Open
	t := acpTelling{message: &envelopes.ACPMessage{Role: o.Role, CreatedAt: text(o.CreatedAt).ptr()}, run: a.st.Run, first: o.Told, from: from}
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
		words = acpWords(acpByRole, whole)
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
		words = acpWords(acpByRole, t.message)
	}
	a.say(&t)
	a.st.Open.Parts, a.st.Open.Told = nil, max(total, o.Told+len(t.message.Parts))
	return words
}

// closeOpen ends the message of the stream, of the given words.
func (a *acpFold) closeOpen(words fingerprint) {
	a.st.Open = acpOpen{}
	if a.st.Run != "" {
		p := a.progress()
		p.Next++
		p.Streamed = p.Streamed.push(words, maxACPStreamed, nil)
		a.setProgress(p)
	}
}

// flush tells a message of the stream that was never completed.
func (a *acpFold) flush() {
	if !a.st.Open.Active {
		return
	}
	from := a.st.Open.From
	a.closeOpen(a.tellOpen(nil, &from))
}

// complete tells the message of the stream.
func (a *acpFold) complete(m *envelopes.ACPMessage) SkipReason {
	if !a.st.Open.Active {
		a.st.Open = a.opened(m)
	}
	a.setTime(m.CompletedAt, m.CreatedAt)
	a.closeOpen(a.tellOpen(m, nil))
	return SkipEmpty
}

// setTime makes the first of these that is one the time of the record.
func (a *acpFold) setTime(times ...*string) {
	if ts, ok := acpTime(times...); ok {
		a.ts = ts
	}
}

// acpTime is the first of these that is a time. One without a zone is in UTC, as the SDK
// has it.
func acpTime(times ...*string) (string, bool) {
	for _, t := range times {
		if t == nil {
			continue
		}
		if ts, ok := parseTime(*t); ok {
			return ts, true
		}
		if ts, ok := parseTime(*t + "Z"); ok {
			return ts, true
		}
	}
	return "", false
}

// progress is how far the run at work has been told.
func (a *acpFold) progress() acpRun {
	key := fingerprintOf(a.st.Run)
	for _, r := range a.st.Runs {
		if r.Run == key {
			return r
		}
	}
	return acpRun{Run: key}
}

// setProgress remembers it.
func (a *acpFold) setProgress(p acpRun) {
	others := a.st.Runs.without(func(r acpRun) bool { return r.Run == p.Run })
	a.st.Runs = others.push(p, maxACPRuns, &a.s.state.Forgotten)
}

// run maps a run: the messages that it holds and that were not told, what became of it,
// and what it asks.
func (a *acpFold) run(r *acpRecord) SkipReason {
	id := boundID(string(r.run.RunID))
	if id != a.st.Run {
		a.flush() // it was of the run before
		a.st.Run = id
	}
	a.about(&r.run)
	p, is := a.progress(), fingerprintOf(compactText(r.value))
	if id != "" && p.Last == is {
		return SkipDuplicate
	}
	a.ts = a.runTime(&r.run)
	if last := len(r.messages) - 1; last >= 0 && a.st.Open.beginning(&r.messages[last]) {
		a.closeOpen(a.tellOpen(&r.messages[last], nil))
	}
	a.flush()
	if id != "" {
		p = a.progress()
	}
	a.output(r.messages, &p, id)
	a.ts = a.runTime(&r.run) // its messages may be later than it was
	if r.run.Status == "failed" {
		a.fail(r.run.Error)
	} else {
		a.keep()
	}
	asks := fingerprint{}
	if r.question != nil {
		asks = acpWords(acpAgent, r.question)
		if asks != p.Asked {
			a.say(&acpTelling{message: r.question, speaker: acpAgent})
		}
	}
	if p.Last, p.Asked = is, asks; id != "" {
		a.setProgress(p)
	}
	return SkipDuplicate
}

// beginning reports whether the message of the stream is, as far as it came, this one.
func (o *acpOpen) beginning(m *envelopes.ACPMessage) bool {
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
func (a *acpFold) output(messages []envelopes.ACPMessage, p *acpRun, id string) {
	words := make([]fingerprint, len(messages))
	for i := range messages {
		words[i] = acpWords(acpByRole, &messages[i])
	}
	left := p.Streamed
	for i := range messages {
		if at := slices.Index(left, words[i]); at >= 0 {
			left = slices.Delete(slices.Clone(left), at, at+1)
			continue
		}
		run := id
		if told, known := p.streamed(i); known && told == (fingerprint{}) {
			continue
		} else if known && slices.Contains(words, told) {
			run = ""
		}
		a.say(&acpTelling{message: &messages[i], run: run, index: i})
	}
	if n := len(messages); n > p.Next {
		p.From, p.Next, p.Streamed = n, n, nil
	}
}

// runTime is when a run was in the state that it states: the end of one that has ended,
// the creation of one that was created; one that goes on is as late as what was told of
// its session.
func (a *acpFold) runTime(r *acpRunWire) string {
	created, finished := string(r.CreatedAt), string(r.FinishedAt)
	ts, ok := acpTime(&finished, &created)
	if !ok {
		return a.ts
	}
	if _, ended := acpTime(&finished); ended || r.Status == "created" || a.s.TS == "" {
		return ts
	}
	now, err := time.Parse(time.RFC3339Nano, ts)
	last, lastErr := time.Parse(time.RFC3339Nano, a.s.TS)
	if err == nil && lastErr == nil && now.Before(last) {
		return a.s.TS
	}
	return ts
}
