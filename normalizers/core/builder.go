package core

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/envelopes/jsonscan"
	"tributary/normalizers/lenient"
)

// Builder turns one record into events. A vendor's normalizer fills in a [Draft] for each
// event and emits it; the Builder gives the event its identity, order, parent, role and
// size, by the rules that all vendors share (README.md of package normalizers).
type Builder struct {
	Session   *Session
	Record    Record
	TS        string         // time of the record, in the form of an event
	Raw       jsontext.Value // what the first event carries; the record unless the vendor sets a part of it
	Events    []Emitted
	First     int  // index of the record's own first event, -1 before there is one
	Duplicate bool // an event was not emitted because the session has emitted it before

	unnamed int // events of the record without an id of their own so far
	err     error
	revised map[string]*revisions // by id; a record may have many
	unknown []Unknown
}

// revisions are the events of one id that the session has emitted.
type revisions struct {
	last     int // number of the last one that superseded another
	contents map[Fingerprint]bool
}

// Begin returns the Builder of a record whose own time is ts, empty when it states none.
// Then the record has the time of the session's last event, else the one that its producer
// stated, else the one at which the broker stored it (README.md, Time).
func (s *Session) Begin(r Record, ts string) *Builder {
	if ts == "" {
		ts = s.TS
	}
	if ts == "" {
		t := r.Origin.Time
		if t.IsZero() {
			t = r.Stored
		}
		ts = formatTime(t)
	}
	return &Builder{Session: s, Record: r, TS: ts, Raw: r.Data, First: -1}
}

// Draft is an event as far as the vendor states it, with what decides about its place in
// the session.
type Draft struct {
	envelopes.AgentEventV1
	Thread    Fingerprint       // zero for the main conversation
	InRole    envelopes.Role    // empty for the first role that the event type allows
	OnChannel envelopes.Channel // empty for none
	Strict    bool              // ToolMetadata is strict and compact, because it was made of texts
	Identity  string            // further content by which events of the same id differ
	From      *Pending          // the record that the event comes from; nil for the Builder's own
	Unknown   bool              // of a record of an unknown type: its time is not that of later records
}

// Pending is a record whose events are emitted with a later record, as the session
// remembers it.
type Pending struct {
	Record      uint64          `json:"n"` // number of the record in the session
	TS          string          `json:"ts"`
	Sequence    uint64          `json:"seq,omitzero"`
	Traceparent string          `json:"tp,omitzero"`
	Tracestate  string          `json:"tst,omitzero"`
	Edge        *envelopes.Edge `json:"edge,omitzero"`
	Raw         jsontext.Value  `json:"raw,omitzero"` // nil when it is too long to remember
}

// Size returns about how many bytes the texts of p take; JSON takes at most six times as many.
func (p *Pending) Size() int {
	return len(p.TS) + len(p.Traceparent) + len(p.Tracestate) + len(p.Raw) + edgeSize(p.Edge)
}

// edgeSize returns about how many bytes the texts of a sender take.
func edgeSize(e *envelopes.Edge) int {
	if e == nil {
		return 0
	}
	n := len(e.Host) + len(e.User)
	for name, value := range e.Labels {
		n += 16 + len(name) + len(value)
	}
	return n
}

// PendingRecord returns the Builder's record as one whose events are emitted later.
func (b *Builder) PendingRecord() Pending {
	h := b.ownRecord()
	if raw, _ := b.eventRaw(b.Raw); len(raw) <= MaxPendingRaw {
		h.Raw = raw.Clone() // kept beyond the record
	}
	return h
}

// eventRaw is [eventRaw] for the record, a part of it, or the quoted text of a record that is a line of text. What
// is strict JSON has strict parts.
func (b *Builder) eventRaw(raw jsontext.Value) (_ jsontext.Value, checked bool) {
	if raw == nil {
		return nil, false
	}
	form := b.Record.form
	if !form.Strict && !isSame(raw, b.Record.checked) {
		form = jsonscan.Check(raw, MaxDepth)
	}
	return eventRaw(raw, form)
}

// OrdinalID returns the id of an event whose record has none: the number of the record in
// the session, and from the second event on the number of the event. A pending record has one
// event.
func (b *Builder) OrdinalID(from *Pending) string {
	id := "@" + strconv.FormatUint(from.Record, 10)
	if from.Record != b.Session.Records {
		return id
	}
	if b.unnamed > 0 {
		id += "." + strconv.Itoa(b.unnamed)
	}
	b.unnamed++
	return id
}

// Emit gives d its place in the session. It reports false, and changes nothing but
// Duplicate, when the session has emitted this event before.
func (b *Builder) Emit(d Draft) bool {
	if b.err != nil {
		return false
	}
	if len(b.Events) >= MaxEvents {
		b.err = fmt.Errorf("%w: the limit is %d", ErrTooManyEvents, MaxEvents)
		return false
	}
	from := b.ownRecord()
	if d.From != nil {
		from = *d.From
	}
	e := &d.AgentEventV1
	if e.EventID == "" {
		e.EventID = b.OrdinalID(&from)
	}
	e.EventID = BoundID(e.EventID)
	if !b.identify(e, d.Identity) {
		b.Duplicate = true
		return false
	}
	b.describe(e, &from)
	if !d.Unknown {
		b.Session.TS = e.TS
	}
	d.setRole()
	if e.EventType == envelopes.UserMessage {
		b.Session.Threads = b.Session.Threads.withParent(d.Thread, e.EventID, &b.Session.Lost)
	} else {
		e.ParentEventID = b.Session.Threads.parent(d.Thread)
	}
	refer := b.Session.refer && from.Raw != nil
	if d.From != nil && !refer {
		e.Raw = from.Raw
	} else if d.From == nil && b.First < 0 {
		b.First = len(b.Events)
	}
	b.Events = append(b.Events, Emitted{
		Event:       *e,
		Sequence:    from.Sequence,
		Traceparent: from.Traceparent,
		Tracestate:  from.Tracestate,
		Referenced:  refer,
		Checked:     envelopes.Checked{ToolMetadata: d.Strict},
	})
	return true
}

// ownRecord returns the Builder's record without its bytes.
func (b *Builder) ownRecord() Pending {
	return Pending{
		Record:      b.Session.Records,
		TS:          b.TS,
		Sequence:    b.Record.Sequence,
		Traceparent: b.Record.Origin.Traceparent,
		Tracestate:  b.Record.Origin.Tracestate,
		Edge:        b.Record.Origin.Edge,
	}
}

// describe fills in what the session knows of an event, and counts it.
func (b *Builder) describe(e *envelopes.AgentEventV1, from *Pending) {
	s := b.Session
	e.SchemaVersion = envelopes.SchemaVersion
	e.Source = s.source
	e.SessionID = s.id
	e.ProjectRoot = lenient.Text(s.Root).Ptr()
	e.ProjectHash = s.projectHash()
	if e.TS == "" {
		e.TS = from.TS
	}
	if e.Metadata == nil {
		e.Metadata = s.standardMetadata()
	}
	e.Edge, e.VCS = from.Edge, s.VCS
	s.Events++
	e.Sequence = s.Events
}

// setRole gives the event its role and channel.
func (d *Draft) setRole() {
	if d.InRole == "" {
		d.InRole = envelopes.RolesOf(d.EventType)[0]
	}
	d.Role = new(d.InRole) // a pointer into the draft would keep all of it
	if d.OnChannel != "" {
		d.Channel = new(d.OnChannel)
	}
}

// identify remembers the id of an event. It reports false for an event that the session has
// emitted before; an event of the same id with other content gets an id of its own and
// supersedes the one before it (README.md, Identity).
func (b *Builder) identify(e *envelopes.AgentEventV1, identity string) bool {
	content := contentOf(e, identity)
	base := e.EventID
	r := b.revised[base]
	if r == nil {
		key := FingerprintOf(base)
		first, ok := b.Session.IDs.Get(key)
		if !ok {
			b.Session.IDs.Put(key, content)
			return true
		}
		if first == content {
			return false
		}
		r = b.revisions(base, first)
	}
	if r.contents[content] {
		return false
	}
	e.Supersedes = revisionID(base, r.last)
	r.last++
	r.contents[content] = true
	e.EventID = revisionID(base, r.last)
	b.Session.IDs.Put(FingerprintOf(e.EventID), content)
	return true
}

// revisions finds the events of an id that the session has emitted; first is the content of
// the first of them. It looks once for each id of a record.
func (b *Builder) revisions(base string, first Fingerprint) *revisions {
	r := &revisions{contents: map[Fingerprint]bool{first: true}}
	for {
		next, ok := b.Session.IDs.Get(FingerprintOf(revisionID(base, r.last+1)))
		if !ok {
			break
		}
		r.last++
		r.contents[next] = true
	}
	if b.revised == nil {
		b.revised = make(map[string]*revisions)
	}
	b.revised[base] = r
	return r
}

// revisionID returns the id of the n-th event that supersedes another of its id.
func revisionID(base string, n int) string {
	if n == 0 {
		return base
	}
	return base + "#r" + strconv.Itoa(n)
}

// contentOf hashes what makes two events of the same id the same event.
func contentOf(e *envelopes.AgentEventV1, identity string) Fingerprint {
	str := func(p *string) string {
		if p == nil {
			return "\xfe" // never in a string of a vendor
		}
		return *p
	}
	num := func(p *int64) string {
		if p == nil {
			return ""
		}
		return strconv.FormatInt(*p, 10)
	}
	var status, op string
	if e.ToolStatus != nil {
		status = string(*e.ToolStatus)
	}
	if e.FileOp != nil {
		op = string(*e.FileOp)
	}
	return FingerprintOf(string(e.EventType), str(e.Text), str(e.ToolName), str(e.ToolCallID), status,
		num(e.ToolLatencyMS), num(e.ToolExitCode), str(e.FilePath), op, identity)
}

// BoundID returns an id as it is, or its digest where the id is too long for a header.
func BoundID(id string) string {
	if len(id) <= MaxIdentity {
		return id
	}
	return "~~" + HexHash(id)
}

// AddUsage puts the tokens of the record on its first event; set writes the vendor's own
// figures. It does nothing where the record has no event.
func (b *Builder) AddUsage(u *envelopes.Usage, set func(*envelopes.AgentEventV1)) {
	if b.First >= 0 {
		b.AddUsageAt(b.First, u, set)
	}
}

// AddUsageAt is [Builder.AddUsage] for the i-th event.
func (b *Builder) AddUsageAt(i int, u *envelopes.Usage, set func(*envelopes.AgentEventV1)) {
	e := &b.Events[i].Event
	e.Usage = u
	e.TokensTotal = new(u.Total())
	set(e)
}

// CarryRaw makes the i-th event carry its record, or the element of a document that it is
// made of; or refer to the record, where the session does that.
func (b *Builder) CarryRaw(i int, raw jsontext.Value) {
	if b.Session.refer {
		b.Events[i].Referenced = raw != nil
		return
	}
	b.Events[i].Event.Raw, b.Events[i].Checked.Raw = b.eventRaw(raw)
}

// NextElement begins the next of several records that the vendor wrote as one document.
func (b *Builder) NextElement() { b.First, b.unnamed, b.Duplicate = -1, 0, false }

// Finish returns the result of the record: its events, or skip when it has none of its own.
// The first event carries the raw record; every event is brought under [MaxEventBytes] and
// validated.
func (b *Builder) Finish(skip SkipReason) (Result, error) {
	if b.err != nil {
		return Result{}, b.err
	}
	if b.First >= 0 {
		skip = "" // the record has an event of its own
	}
	if len(b.Events) == 0 {
		return Result{Skip: skip, Unknown: b.unknown}, nil
	}
	if b.First >= 0 {
		b.CarryRaw(b.First, b.Raw)
	}
	for i := range b.Events {
		e := &b.Events[i].Event
		fit(e)
		if err := e.Validate(); err != nil {
			return Result{}, err
		}
	}
	return Result{Events: b.Events, Skip: skip, Unknown: b.unknown}, nil
}
