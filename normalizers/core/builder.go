package core

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/envelopes/jsonscan"
	"tributary/normalizers/lenient"
)

// Builder turns one record into events. The normalizer of a vendor fills in a [Draft] for each event and emits it.
// The Builder adds identity, order, parent, role and size by the rules common to all vendors (README.md of package
// normalizers).
type Builder struct {
	Session   *Session
	Record    Record
	TS        string         // time of the record in the form of an event
	Raw       jsontext.Value // raw of the first event: the record, unless the vendor sets a part of it
	Events    []Emitted
	First     int           // index of the first event of the record itself; -1 if there is none yet
	Via       envelopes.Via // of the record; empty for the log
	Duplicate bool          // an event was not emitted because the session had emitted it before

	unnamed int // events of the record without an id of their own, so far
	err     error
	revised map[string]*revisions // by id
	unknown []Unknown
}

// revisions describes the events of one id that the session has emitted.
type revisions struct {
	last     int // number of the last one that superseded another
	contents map[Fingerprint]bool
}

// Begin returns the Builder of a record whose own time is ts, empty if it states none. The record then has the time
// of the session's last event, else the time stated by its producer, else the time at which the broker stored it
// (README.md, Time).
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

// Draft is an event as stated by the vendor, with what decides its place in the session.
type Draft struct {
	envelopes.AgentEventV1
	Thread    Fingerprint       // zero for the main conversation
	InRole    envelopes.Role    // empty for the first role that the event type allows
	OnChannel envelopes.Channel // empty for none
	Strict    bool              // ToolMetadata is strict and compact, because it was made from texts
	Identity  string            // further content that distinguishes events of the same id
	From      *Pending          // record of the event; nil for the Builder's own
	Unknown   bool              // from a record of an unknown type: its time does not apply to later records
}

// Pending is a record whose events are emitted with a later record, as kept in the session.
type Pending struct {
	Record      uint64          `json:"n"` // number of the record in the session
	TS          string          `json:"ts"`
	Sequence    uint64          `json:"seq,omitzero"`
	Traceparent string          `json:"tp,omitzero"`
	Tracestate  string          `json:"tst,omitzero"`
	Edge        *envelopes.Edge `json:"edge,omitzero"`
	Via         envelopes.Via   `json:"via,omitzero"`
	Raw         jsontext.Value  `json:"raw,omitzero"` // nil if it is too long to keep
}

// Size returns the approximate bytes of the texts of p; JSON takes at most six times as many.
func (p *Pending) Size() int {
	return len(p.TS) + len(p.Traceparent) + len(p.Tracestate) + len(p.Raw) + edgeSize(p.Edge)
}

// edgeSize returns the approximate bytes of the texts of a sender.
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

// PendingRecord returns the Builder's record for events that are emitted later.
func (b *Builder) PendingRecord() Pending {
	h := b.ownRecord()
	if raw, _ := b.eventRaw(b.Raw); len(raw) <= MaxPendingRaw {
		h.Raw = raw.Clone() // kept beyond the record
	}
	return h
}

// eventRaw is [eventRaw] for the record, a part of it, or a line of text, which is quoted. Parts of strict JSON are
// strict.
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

// OrdinalID returns the id of an event without a vendor's id: the number of the record in the session and, from the
// second event on, the number of the event. A pending record has one event.
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

// Emit gives d its place in the session. If the session has emitted this event before, it returns false and only sets
// Duplicate.
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
		Via:         b.Via,
	}
}

// describe fills in what the session knows about an event, and counts the event.
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
	e.Via, e.Edge, e.VCS = from.Via, from.Edge, s.VCS
	s.Events++
	e.Sequence = s.Events
}

// setRole gives the event its role and channel.
func (d *Draft) setRole() {
	if d.InRole == "" {
		d.InRole = envelopes.RolesOf(d.EventType)[0]
	}
	d.Role = new(d.InRole) // a pointer into the draft would keep all of it in memory
	if d.OnChannel != "" {
		d.Channel = new(d.OnChannel)
	}
}

// identify remembers the id of an event. It returns false if the session has emitted the event before. An event with
// a known id but other content gets an id of its own and supersedes the previous one (README.md, Identity).
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

// revisions finds the events of an id that the session has emitted; first is the content of the first one. It
// searches once for each id of a record.
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

// revisionID returns the id of the n-th superseding event of an id.
func revisionID(base string, n int) string {
	if n == 0 {
		return base
	}
	return base + "#r" + strconv.Itoa(n)
}

// contentOf hashes what makes two events with the same id equal.
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

// BoundID returns an id unchanged, or its digest if it is too long for a header.
func BoundID(id string) string {
	if len(id) <= MaxIdentity {
		return id
	}
	return "~~" + HexHash(id)
}

// AddUsage puts the tokens of the record on its first event; set writes the vendor's own numbers. Without an event it
// does nothing.
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

// CarryRaw makes the i-th event carry its record, or its element of a document; or refer to the record, if the
// session does that.
func (b *Builder) CarryRaw(i int, raw jsontext.Value) {
	if b.Session.refer {
		b.Events[i].Referenced = raw != nil
		return
	}
	b.Events[i].Event.Raw, b.Events[i].Checked.Raw = b.eventRaw(raw)
}

// NextElement begins the next of several records in one document of the vendor.
func (b *Builder) NextElement() { b.First, b.unnamed, b.Duplicate = -1, 0, false }

// Finish returns the result of the record: its events, or skip if it has none of its own. The first event carries the
// raw record. Every event is reduced to [MaxEventBytes] and validated.
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
