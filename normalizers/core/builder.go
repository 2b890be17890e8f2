package core

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/lenient"
)

// Builder is the work on one record: what a vendor's normalizer hands its events to, and
// what gives each of them its place in the session. A normalizer fills in what the
// vendor says; identity, order, parents, roles and sizes are settled here, once for all
// vendors.
type Builder struct {
	Session   *Session
	Record    Record
	TS        string         // time of the record, in the form of an event
	Raw       jsontext.Value // what the events are made of; the record unless the vendor says otherwise
	Events    []Emitted
	First     int  // the first event of the record at work, -1 before there is one
	unnamed   int  // its events without an id of their own so far
	Duplicate bool // an event was not emitted because the session had told it before
	err       error

	revised map[string]*revisions // by id: of one record they may be many
}

// revisions are the events of one id that the session has told.
type revisions struct {
	last     int // number of the last one that superseded another
	contents map[Fingerprint]bool
}

// Begin starts the work on a record whose own time is ts, empty when it states none
// (semantics.md section 2, law 1).
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

// Draft is an event that a normalizer has filled in as far as the vendor knows, with
// what decides about its place.
type Draft struct {
	envelopes.AgentEventV1
	Thread    Fingerprint // zero for the main conversation
	InRole    envelopes.Role
	OnChannel envelopes.Channel
	Identity  string   // further content that tells this event from another of its id
	From      *Pending // the record it comes from, where that is not the one at work
}

// Pending is a record whose events wait for a later record, as a session remembers it.
type Pending struct {
	Record      uint64         `json:"n"` // its number in the session
	TS          string         `json:"ts"`
	Sequence    uint64         `json:"seq,omitzero"`
	Traceparent string         `json:"tp,omitzero"`
	Tracestate  string         `json:"tst,omitzero"`
	Raw         jsontext.Value `json:"raw,omitzero"` // nil when it is too long to remember
}

// PendingRecord makes the record at work one that waits.
func (f *Builder) PendingRecord() Pending {
	h := Pending{
		Record:      f.Session.Records,
		TS:          f.TS,
		Sequence:    f.Record.Sequence,
		Traceparent: f.Record.Origin.Traceparent,
		Tracestate:  f.Record.Origin.Tracestate,
	}
	if raw := EventRaw(f.Raw); len(raw) <= MaxPendingRaw {
		h.Raw = raw
	}
	return h
}

// OrdinalID is the id of an event whose record has none (semantics.md section 4). A record
// that was held has one event.
func (f *Builder) OrdinalID(from *Pending) string {
	id := "@" + strconv.FormatUint(from.Record, 10)
	if from.Record != f.Session.Records {
		return id
	}
	if f.unnamed > 0 {
		id += "." + strconv.Itoa(f.unnamed)
	}
	f.unnamed++
	return id
}

// Emit gives d its place in the session. It reports false, and changes nothing, when the
// session has told this event before.
func (f *Builder) Emit(d Draft) bool {
	e := &d.AgentEventV1
	s := f.Session
	if f.err != nil {
		return false
	}
	if len(f.Events) >= MaxEvents {
		f.err = fmt.Errorf("%w: the limit is %d", ErrTooManyEvents, MaxEvents)
		return false
	}
	from := d.From
	if from == nil {
		from = &Pending{
			Record: s.Records, TS: f.TS, Sequence: f.Record.Sequence,
			Traceparent: f.Record.Origin.Traceparent, Tracestate: f.Record.Origin.Tracestate,
		}
	}
	if e.EventID == "" {
		e.EventID = f.OrdinalID(from)
	}
	e.EventID = BoundID(e.EventID)
	if !f.identify(e, d.Identity) {
		f.Duplicate = true
		return false
	}
	e.SchemaVersion = envelopes.SchemaVersion
	e.Source = s.source
	e.SessionID = s.id
	e.ProjectRoot = lenient.Text(s.Root).Ptr()
	e.ProjectHash = s.projectHash()
	if e.TS == "" {
		e.TS = from.TS
	}
	if d.InRole == "" {
		d.InRole = envelopes.RolesOf(e.EventType)[0]
	}
	e.Role = &d.InRole
	if d.OnChannel != "" {
		e.Channel = &d.OnChannel
	}
	if e.EventType == envelopes.UserMessage {
		s.setParent(d.Thread, e.EventID)
	} else {
		e.ParentEventID = s.parent(d.Thread)
	}
	if e.Metadata == nil {
		e.Metadata = s.standardMetadata()
	}
	s.TS = e.TS
	s.Events++
	e.Sequence = s.Events
	if d.From != nil {
		e.Raw = from.Raw
	} else if f.First < 0 {
		f.First = len(f.Events)
	}
	f.Events = append(f.Events, Emitted{
		Event:       *e,
		Sequence:    from.Sequence,
		Traceparent: from.Traceparent,
		Tracestate:  from.Tracestate,
	})
	return true
}

// identify settles what happens to an event whose id the session has told before
// (semantics.md section 4): the same event again is none, another one supersedes.
func (f *Builder) identify(e *envelopes.AgentEventV1, identity string) bool {
	content := contentOf(e, identity)
	base := e.EventID
	r := f.revised[base]
	if r == nil {
		key := FingerprintOf(base)
		told, ok := f.Session.IDs.Get(key)
		if !ok {
			f.Session.IDs.Put(key, content)
			return true
		}
		if told == content {
			return false
		}
		r = f.revisions(base, told)
	}
	if r.contents[content] {
		return false
	}
	e.Supersedes = revisionID(base, r.last)
	r.last++
	r.contents[content] = true
	e.EventID = revisionID(base, r.last)
	f.Session.IDs.Put(FingerprintOf(e.EventID), content)
	return true
}

// revisions finds the revisions of an id, of which the first is told, once for a record.
func (f *Builder) revisions(base string, told Fingerprint) *revisions {
	r := &revisions{contents: map[Fingerprint]bool{told: true}}
	for {
		next, ok := f.Session.IDs.Get(FingerprintOf(revisionID(base, r.last+1)))
		if !ok {
			break
		}
		r.last++
		r.contents[next] = true
	}
	if f.revised == nil {
		f.revised = make(map[string]*revisions)
	}
	f.revised[base] = r
	return r
}

// revisionID is the id of the nth event that supersedes another of its id.
func revisionID(base string, n int) string {
	if n == 0 {
		return base
	}
	return base + "#r" + strconv.Itoa(n)
}

// contentOf is what makes two events of the same id the same event.
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

// BoundID keeps an id as it is, but for one that no header could carry.
func BoundID(id string) string {
	if len(id) <= MaxIdentity {
		return id
	}
	return "~~" + HexHash(id)
}

// AddUsage puts what the record adds to the bill on its first event; set writes the vendor's
// own figures.
func (f *Builder) AddUsage(u *envelopes.Usage, set func(*envelopes.AgentEventV1)) {
	if f.First >= 0 {
		f.AddUsageAt(f.First, u, set)
	}
}

// AddUsageAt is bill for another event of f.
func (f *Builder) AddUsageAt(i int, u *envelopes.Usage, set func(*envelopes.AgentEventV1)) {
	e := &f.Events[i].Event
	e.Usage = u
	e.TokensTotal = new(u.Total())
	set(e)
}

// NextElement begins the next of several records that came as one document.
func (f *Builder) NextElement() { f.First, f.unnamed, f.Duplicate = -1, 0, false }

// Finish is the result of the record: its events, or skip when it has none. The first
// event carries the raw record, and every event is brought under [MaxEventBytes] and
// checked.
func (f *Builder) Finish(skip SkipReason) (Result, error) {
	if f.err != nil {
		return Result{}, f.err
	}
	if f.First >= 0 {
		skip = "" // the record has an event of its own
	}
	if len(f.Events) == 0 {
		return Result{Skip: skip}, nil
	}
	if f.First >= 0 {
		f.Events[f.First].Event.Raw = EventRaw(f.Raw)
	}
	for i := range f.Events {
		e := &f.Events[i].Event
		fit(e)
		if err := e.Validate(); err != nil {
			return Result{}, err
		}
	}
	return Result{Events: f.Events, Skip: skip}, nil
}
