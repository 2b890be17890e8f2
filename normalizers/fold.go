package normalizers

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// fold is the work on one record: what a vendor's normalizer hands its events to, and
// what gives each of them its place in the session. A normalizer fills in what the
// vendor says; identity, order, parents, roles and sizes are settled here, once for all
// vendors.
type fold struct {
	s      *Session
	r      Record
	ts     string         // time of the record, in the form of an event
	raw    jsontext.Value // what the events are made of; the record unless the vendor says otherwise
	events []Emitted
	first  int  // the first event of the record at work, -1 before there is one
	unids  int  // its events without an id of their own so far
	told   bool // an event was not emitted because the session had told it before
	err    error

	revised map[string]*revisions // by id: of one record they may be many
}

// revisions are the events of one id that the session has told.
type revisions struct {
	last     int // number of the last one that superseded another
	contents map[fingerprint]bool
}

// begin starts the work on a record whose own time is ts, empty when it states none
// (semantics.md section 2, law 1).
func (s *Session) begin(r Record, ts string) *fold {
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
	return &fold{s: s, r: r, ts: ts, raw: r.Data, first: -1}
}

// draft is an event that a normalizer has filled in as far as the vendor knows, with
// what decides about its place.
type draft struct {
	envelopes.AgentEventV1
	thread   fingerprint // zero for the main conversation
	as       envelopes.Role
	on       envelopes.Channel
	identity string // further content that tells this event from another of its id
	from     *held  // the record it comes from, where that is not the one at work
}

// held is a record whose events wait for a later record, as a session remembers it.
type held struct {
	Record      uint64         `json:"n"` // its number in the session
	TS          string         `json:"ts"`
	Sequence    uint64         `json:"seq,omitzero"`
	Traceparent string         `json:"tp,omitzero"`
	Tracestate  string         `json:"tst,omitzero"`
	Raw         jsontext.Value `json:"raw,omitzero"` // nil when it is too long to remember
}

// hold makes the record at work one that waits.
func (f *fold) hold() held {
	h := held{
		Record:      f.s.Records,
		TS:          f.ts,
		Sequence:    f.r.Sequence,
		Traceparent: f.r.Origin.Traceparent,
		Tracestate:  f.r.Origin.Tracestate,
	}
	if raw := carried(f.raw); len(raw) <= maxHeldRaw {
		h.Raw = raw
	}
	return h
}

// ownID is the id of an event whose record has none (semantics.md section 4). A record
// that was held has one event.
func (f *fold) ownID(from *held) string {
	id := "@" + strconv.FormatUint(from.Record, 10)
	if from.Record != f.s.Records {
		return id
	}
	if f.unids > 0 {
		id += "." + strconv.Itoa(f.unids)
	}
	f.unids++
	return id
}

// emit gives d its place in the session. It reports false, and changes nothing, when the
// session has told this event before.
func (f *fold) emit(d draft) bool {
	e := &d.AgentEventV1
	s := f.s
	if f.err != nil {
		return false
	}
	if len(f.events) >= MaxEvents {
		f.err = fmt.Errorf("%w: the limit is %d", ErrTooManyEvents, MaxEvents)
		return false
	}
	from := d.from
	if from == nil {
		from = &held{
			Record: s.Records, TS: f.ts, Sequence: f.r.Sequence,
			Traceparent: f.r.Origin.Traceparent, Tracestate: f.r.Origin.Tracestate,
		}
	}
	if e.EventID == "" {
		e.EventID = f.ownID(from)
	}
	e.EventID = boundID(e.EventID)
	if !f.identify(e, d.identity) {
		f.told = true
		return false
	}
	e.SchemaVersion = envelopes.SchemaVersion
	e.Source = s.source
	e.SessionID = s.id
	e.ProjectRoot = text(s.Root).ptr()
	e.ProjectHash = s.projectHash()
	if e.TS == "" {
		e.TS = from.TS
	}
	if d.as == "" {
		d.as = envelopes.RolesOf(e.EventType)[0]
	}
	e.Role = &d.as
	if d.on != "" {
		e.Channel = &d.on
	}
	if e.EventType == envelopes.UserMessage {
		s.setParent(d.thread, e.EventID)
	} else {
		e.ParentEventID = s.parent(d.thread)
	}
	if e.Metadata == nil {
		e.Metadata = s.standardMetadata()
	}
	s.TS = e.TS
	s.Events++
	e.Sequence = s.Events
	if d.from != nil {
		e.Raw = from.Raw
	} else if f.first < 0 {
		f.first = len(f.events)
	}
	f.events = append(f.events, Emitted{
		Event:       *e,
		Sequence:    from.Sequence,
		Traceparent: from.Traceparent,
		Tracestate:  from.Tracestate,
	})
	return true
}

// identify settles what happens to an event whose id the session has told before
// (semantics.md section 4): the same event again is none, another one supersedes.
func (f *fold) identify(e *envelopes.AgentEventV1, identity string) bool {
	content := contentOf(e, identity)
	base := e.EventID
	r := f.revised[base]
	if r == nil {
		key := fingerprintOf(base)
		told, ok := f.s.ids.get(key)
		if !ok {
			f.s.ids.put(key, content)
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
	f.s.ids.put(fingerprintOf(e.EventID), content)
	return true
}

// revisions finds the revisions of an id, of which the first is told, once for a record.
func (f *fold) revisions(base string, told fingerprint) *revisions {
	r := &revisions{contents: map[fingerprint]bool{told: true}}
	for {
		next, ok := f.s.ids.get(fingerprintOf(revisionID(base, r.last+1)))
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
func contentOf(e *envelopes.AgentEventV1, identity string) fingerprint {
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
	return fingerprintOf(string(e.EventType), str(e.Text), str(e.ToolName), str(e.ToolCallID), status,
		num(e.ToolLatencyMS), num(e.ToolExitCode), str(e.FilePath), op, identity)
}

// boundID keeps an id as it is, but for one that no header could carry.
func boundID(id string) string {
	if len(id) <= maxIdentity {
		return id
	}
	return "~~" + hexHash(id)
}

// bill puts what the record adds to the bill on its first event; set writes the vendor's
// own figures.
func (f *fold) bill(u *envelopes.Usage, set func(*envelopes.AgentEventV1)) {
	if f.first >= 0 {
		f.billAt(f.first, u, set)
	}
}

// billAt is bill for another event of f.
func (f *fold) billAt(i int, u *envelopes.Usage, set func(*envelopes.AgentEventV1)) {
	e := &f.events[i].Event
	e.Usage = u
	e.TokensTotal = new(u.Total())
	set(e)
}

// nextElement begins the next of several records that came as one document.
func (f *fold) nextElement() { f.first, f.unids, f.told = -1, 0, false }

// done is the result of the record: its events, or skip when it has none. The first
// event carries the raw record, and every event is brought under [MaxEventBytes] and
// checked.
func (f *fold) done(skip SkipReason) (Result, error) {
	if f.err != nil {
		return Result{}, f.err
	}
	if f.first >= 0 {
		skip = "" // the record has an event of its own
	}
	if len(f.events) == 0 {
		return Result{Skip: skip}, nil
	}
	if f.first >= 0 {
		f.events[f.first].Event.Raw = carried(f.raw)
	}
	for i := range f.events {
		e := &f.events[i].Event
		fit(e)
		if err := e.Validate(); err != nil {
			return Result{}, err
		}
	}
	return Result{Events: f.events, Skip: skip}, nil
}
