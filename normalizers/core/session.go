package core

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/lenient"
)

// What a session remembers, in count and in bytes. All at their limits together are more
// than maxEncoded: then the oldest are let go until it fits.
const (
	maxEncoded     = 128 << 10
	maxIDs         = 4096    // event ids, 12 bytes each
	maxAPICalls    = 1024    // token counts of API calls, about 20 bytes each
	maxFiles       = 256     // positions in files
	MaxThreads     = 64      // last user messages
	maxCalls       = 96      // tool calls
	MaxIdentity    = 256     // bytes of an event id
	MaxName        = 256     // bytes of a remembered name: tool, model
	MaxPendingRaw  = 4 << 10 // bytes of the raw record that a held event keeps
	MaxPath        = 4096    // bytes of a remembered path
	maxAbout       = 1 << 10 // bytes of what a command is said to be for
	maxAbouts      = 8 << 10 // bytes of that of all open calls
	MaxExtension   = 2 << 10 // bytes of a metadata extension
	maxExtensions  = 16      // metadata extensions
	sessionVersion = 1       // first byte of an encoded session
)

// ErrSession is the reason of an encoded session that cannot be decoded.
var ErrSession = errors.New("session state cannot be read")

// Session is all that is remembered between two records of a session. It is a value in
// spirit: it can be encoded, compared by its encoding, decoded and carried on, and two
// sessions that were given the same records are equal. It is not safe for concurrent use.
type Session struct {
	source  envelopes.Source
	id      string
	profile Profile // not part of the state: whoever carries the session on sets it
	state

	IDs      Memory[Fingerprint] // event ids, each with what the event said
	APICalls Memory[Consumption] // API calls, each with the highest figures seen
	metadata *envelopes.Metadata // made from state; nil when it must be made again
}

// state is the part of a Session that is put back by assignment when a record fails:
// nothing that it refers to is ever changed in place.
type state struct {
	Records     uint64                    `json:"n,omitzero"`  // readable records so far
	Events      uint64                    `json:"e,omitzero"`  // events so far
	TS          string                    `json:"ts,omitzero"` // of the last event
	Root        string                    `json:"root,omitzero"`
	ResumeID    string                    `json:"resume,omitzero"`
	Model       string                    `json:"model,omitzero"`
	Extensions  map[string]jsontext.Value `json:"ext,omitzero"`
	Files       Window[filePosition]      `json:"files,omitzero"`
	Failed      failures                  `json:"failed,omitzero"`
	Threads     Window[thread]            `json:"threads,omitzero"`
	Calls       Window[Call]              `json:"calls,omitzero"`
	Lost        uint64                    `json:"forgotten,omitzero"` // what the limits made us forget
	ProjectHash string                    `json:"hash,omitzero"`      // as the vendor states it; else it is made of Root

	State State `json:"-"` // of the vendor; nil when it remembers nothing
}

// filePosition is how far a file has been read.
type filePosition struct {
	File     Fingerprint `json:"f"`
	Position int64       `json:"p,omitzero"`
	Digest   Fingerprint `json:"d,omitzero"` // of a document that is rewritten in place
}

// thread is the main conversation or one subagent, with the id of its last user message.
type thread struct {
	Thread Fingerprint `json:"t"`
	Parent string      `json:"p"`
}

// NewSession returns the state of a session before its first record.
// State is the empty state of its vendor, nil where the vendor has none.
func NewSession(source envelopes.Source, id string, vendor State) *Session {
	return &Session{
		source:   source,
		id:       id,
		state:    state{State: vendor},
		IDs:      newMemory[Fingerprint](maxIDs),
		APICalls: newMemory[Consumption](maxAPICalls),
	}
}

// Source returns the vendor of the session.
func (s *Session) Source() envelopes.Source { return s.source }

// ID returns the session id, the key of its records.
func (s *Session) ID() string { return s.id }

// Profile returns the profile that was chosen last.
func (s *Session) Profile() Profile { return s.profile }

// UseProfile chooses the shapes of the tool_metadata of events to come. It is no part of
// the encoded session: whoever decodes one sets it again.
func (s *Session) UseProfile(p Profile) { s.profile = p }

// Forgotten returns how many remembered things were let go because of a limit. Where it
// grows, an event that comes again much later may be told twice.
func (s *Session) Forgotten() uint64 { return s.Lost }

// Size returns about how many bytes of memory the session takes.
func (s *Session) Size() int {
	return 2<<10 + 64*len(s.IDs.ring) + 96*len(s.APICalls.ring) + s.size()
}

// size is about how many bytes the state takes in memory; JSON takes at most six times
// as many.
func (s *state) size() int {
	n := len(s.TS) + len(s.Root) + len(s.ResumeID) + len(s.Model) + 32*len(s.Files) + 5*len(s.Failed.Spans)
	if s.State != nil {
		n += s.State.Size()
	}
	for name, v := range s.Extensions {
		n += 32 + len(name) + len(v)
	}
	for _, t := range s.Threads {
		n += 32 + len(t.Parent)
	}
	for _, c := range s.Calls {
		n += 64 + len(c.Tool) + len(c.Path) + len(c.About)
		for _, f := range c.Outcome.Files {
			n += 32 + len(f.Path)
		}
	}
	return n
}

// trim lets the oldest of what is remembered go until the session fits maxEncoded: most of
// what could not be read first, then ids, then what waits for a later record.
func (s *Session) trim() {
	if 12*len(s.IDs.ring)+40*len(s.APICalls.ring)+6*s.size() <= maxEncoded {
		return
	}
	for over := s.encodedSize() - maxEncoded; over > 0; over = s.encodedSize() - maxEncoded {
		var lost int
		switch {
		case len(s.Failed.Spans) > 256:
			lost = len(s.Failed.Spans) / 8
			s.Failed = s.Failed.forget(lost)
		case len(s.IDs.ring) > 0:
			lost = s.IDs.drop(over/12 + 1)
		case len(s.Calls) > 0:
			lost = (len(s.Calls) + 1) / 2
			s.Calls = s.Calls[lost:]
		case s.State != nil && s.State.Shrink():
			lost = 1
		case len(s.Threads) > 0:
			lost = (len(s.Threads) + 1) / 2
			s.Threads = s.Threads[lost:]
		default:
			lost = len(s.Extensions)
			s.Extensions, s.metadata = nil, nil
		}
		s.Lost += uint64(lost)
	}
}

// encodedState is the JSON part of an encoded session.
type encodedState struct {
	Source envelopes.Source `json:"source"`
	State  state            `json:"state"`
	Vendor any              `json:"vendor,omitzero"` // a [State]; decoded as its JSON
}

// Encode writes the session: a version byte, then four parts, each after its length as
// a uvarint: the id, the state as JSON, the event ids and the API calls, oldest first. Equal
// sessions give equal bytes. At most 128 KiB.
func (s *Session) Encode() []byte {
	body := s.encodeState()
	out := make([]byte, 0, len(body)+12*len(s.IDs.ring)+24*len(s.APICalls.ring)+len(s.id)+16)
	out = append(out, sessionVersion)
	out = appendPart(out, []byte(s.id))
	out = appendPart(out, body)
	var part []byte
	for k, v := range s.IDs.all() {
		part = append(append(part, k[:]...), v[:]...)
	}
	out = appendPart(out, part)
	part = part[:0]
	for k, v := range s.APICalls.all() {
		part = v.append(append(part, k[:]...))
	}
	return appendPart(out, part)
}

// encodeState writes the part that is JSON.
func (s *Session) encodeState() []byte {
	body, err := json.Marshal(encodedState{s.source, s.state, s.State}, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		// Every part of the state is made by this package from valid values.
		panic(fmt.Sprintf("encode session state: %v", err))
	}
	return body
}

// encodedSize is the length of what Encode writes. A long session is measured after each
// record, and most of it need not be written for that.
func (s *Session) encodedSize() int {
	calls := 0
	for _, v := range s.APICalls.all() {
		calls += len(Fingerprint{}) + v.encodedSize()
	}
	size := 1
	for _, part := range [...]int{len(s.id), len(s.encodeState()), 2 * len(Fingerprint{}) * len(s.IDs.ring), calls} {
		size += uvarintSize(uint64(part)) + part
	}
	return size
}

func appendPart(dst, part []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(part))), part...)
}

// uvarintSize is how many bytes v takes as a uvarint.
func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// DecodeSession is the inverse of [Session.Encode]. It does not retain data. An error
// is [ErrSession].
// newState makes the empty state of the vendor of a source, nil where it has none.
func DecodeSession(data []byte, newState func(envelopes.Source) State) (*Session, error) {
	if len(data) == 0 || data[0] != sessionVersion {
		return nil, fmt.Errorf("%w: not version %d", ErrSession, sessionVersion)
	}
	var parts [4][]byte
	rest := data[1:]
	for i := range parts {
		n, w := binary.Uvarint(rest)
		if w <= 0 || n > uint64(len(rest)-w) {
			return nil, fmt.Errorf("%w: part %d is cut off", ErrSession, i)
		}
		parts[i], rest = rest[w:w+int(n)], rest[w+int(n):]
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", ErrSession, len(rest))
	}
	var vendor jsontext.Value
	e := encodedState{Vendor: &vendor}
	if err := json.Unmarshal(parts[1], &e, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, fmt.Errorf("%w: %T in its JSON part", ErrSession, err)
	}
	s := NewSession(e.Source, string(parts[0]), newState(e.Source))
	e.State.State = s.State
	s.state = e.State
	if len(vendor) > 0 && s.State != nil {
		if err := json.Unmarshal(vendor, s.State, jsontext.AllowInvalidUTF8(true)); err != nil {
			return nil, fmt.Errorf("%w: %T in the state of its vendor", ErrSession, err)
		}
	}
	for ids := parts[2]; len(ids) > 0; ids = ids[12:] {
		if len(ids) < 12 {
			return nil, fmt.Errorf("%w: its ids are cut off", ErrSession)
		}
		s.IDs.Put(Fingerprint(ids[:6]), Fingerprint(ids[6:12]))
	}
	for calls := parts[3]; len(calls) > 0; {
		if len(calls) < 6 {
			return nil, fmt.Errorf("%w: its API calls are cut off", ErrSession)
		}
		v, n := readConsumption(calls[6:])
		if n <= 0 {
			return nil, fmt.Errorf("%w: its API calls are damaged", ErrSession)
		}
		s.APICalls.Put(Fingerprint(calls[:6]), v)
		calls = calls[6+n:]
	}
	s.IDs.commit()
	s.APICalls.commit()
	return s, nil
}

// commit keeps what the last record changed.
func (s *Session) commit() {
	s.IDs.commit()
	s.APICalls.commit()
}

// rollback undoes what the last record changed; before is the state in front of it.
func (s *Session) rollback(before state) {
	s.state = before
	s.metadata = nil
	s.IDs.rollback()
	s.APICalls.rollback()
}

// SetRoot notes the project root; the first one of a session stays.
func (s *Session) SetRoot(path string) {
	if s.Root == "" && len(path) <= MaxPath {
		s.Root = path
	}
}

// SetResumeID notes the id that resumes the session.
func (s *Session) SetResumeID(id string) {
	if id != "" && id != s.ResumeID && len(id) <= MaxPath {
		s.ResumeID, s.metadata = id, nil
	}
}

// SetModel notes the model that the session uses from now on.
func (s *Session) SetModel(model string) {
	if model != "" && model != s.Model && len(model) <= MaxName {
		s.Model, s.metadata = model, nil
	}
}

// SetExtension notes a vendor's value of the standardized metadata.
func (s *Session) SetExtension(name string, v jsontext.Value) {
	if old, ok := s.Extensions[name]; ok && string(old) == string(v) ||
		len(v) > MaxExtension || !ok && len(s.Extensions) >= maxExtensions {
		return
	}
	ext := maps.Clone(s.Extensions)
	if ext == nil {
		ext = make(map[string]jsontext.Value, 1)
	}
	ext[name] = v.Clone()
	s.Extensions, s.metadata = ext, nil
}

// SetTextExtension is [Session.setExtension] for a string; an empty one says nothing.
func (s *Session) SetTextExtension(name string, v lenient.Text) {
	if v == "" {
		return
	}
	if q, err := jsontext.AppendQuote(nil, string(v)); err == nil {
		s.SetExtension(name, q)
	}
}

// standardMetadata is the metadata for an event that happens now; nil while no id is
// known: neither the session, nor the model, nor the thread of a vendor without sessions
// to resume. Events share it.
func (s *Session) standardMetadata() *envelopes.Metadata {
	if s.metadata == nil && (s.ResumeID != "" || s.Model != "" || s.Extensions["threadId"] != nil) {
		s.metadata = &envelopes.Metadata{
			SessionID:  lenient.Text(s.ResumeID).Ptr(),
			Model:      lenient.Text(s.Model).Ptr(),
			Extensions: s.Extensions,
		}
	}
	return s.metadata
}

// MetadataWith is [Session.standardMetadata] with what holds for one event alone; values
// that are not there, null or too long are left out. Nil while no id is known.
func (s *Session) MetadataWith(more map[string]jsontext.Value) *envelopes.Metadata {
	standard := s.standardMetadata()
	if standard == nil {
		return nil
	}
	m := *standard
	m.Extensions = maps.Clone(m.Extensions)
	if m.Extensions == nil {
		m.Extensions = make(map[string]jsontext.Value, len(more))
	}
	for name, v := range more {
		if !lenient.IsValue(v) {
			continue
		}
		if v = EventRaw(v); len(v) <= MaxExtension {
			m.Extensions[name] = v
		}
	}
	return &m
}

// MetadataWithError is [Session.standardMetadata] with an error that the vendor reports,
// also while no id is known.
func (s *Session) MetadataWithError(code, message string) *envelopes.Metadata {
	type problem struct {
		Code    *string `json:"code"`
		Message *string `json:"message"`
	}
	v, err := json.Marshal(problem{lenient.Text(Cut(code, MaxName)).Ptr(), lenient.Text(Cut(message, MaxFieldText)).Ptr()})
	if err != nil {
		return s.standardMetadata()
	}
	m := envelopes.Metadata{SessionID: lenient.Text(s.ResumeID).Ptr(), Model: lenient.Text(s.Model).Ptr()}
	m.Extensions = maps.Clone(s.Extensions)
	if m.Extensions == nil {
		m.Extensions = make(map[string]jsontext.Value, 1)
	}
	m.Extensions["error"] = v
	return &m
}

// projectHash is the identity of the project (semantics.md section 4): of the session
// itself while the root is unknown, never one constant shared by many.
func (s *Session) projectHash() string {
	if s.ProjectHash != "" {
		return s.ProjectHash
	}
	if s.Root == "" {
		return HexHash("session:" + s.id)
	}
	return HexHash(s.Root)
}

// HexHash returns the sha256 of v in lower-case hex.
func HexHash(v string) string {
	sum := sha256.Sum256([]byte(v))
	return hex.EncodeToString(sum[:])
}

// parent is the id of the last user message of a thread, nil before the first.
func (s *Session) parent(thread Fingerprint) *string {
	for _, t := range s.Threads {
		if t.Thread == thread {
			return new(t.Parent)
		}
	}
	return nil
}

// setParent makes a user message the parent of what follows in its thread.
func (s *Session) setParent(in Fingerprint, id string) {
	threads := s.Threads.Without(func(t thread) bool { return t.Thread == in })
	s.Threads = threads.Push(thread{in, id}, MaxThreads, &s.Lost)
}

// RememberCall keeps a tool call for its result.
func (s *Session) RememberCall(id string, c Call) {
	c.ID = FingerprintOf(id)
	if len(c.Path) > MaxIdentity {
		c.Path = ""
	}
	if len(c.Tool) > MaxName {
		c.Tool = ""
	}
	c.About = Cut(c.About, maxAbout)
	calls := s.Calls.Without(func(o Call) bool { return o.ID == c.ID })
	// A session has always more calls than are remembered: to let the oldest go is no loss.
	s.Calls = calls.Push(c, maxCalls, nil)
	room := maxAbouts
	for i := range slices.Backward(s.Calls) {
		if room -= len(s.Calls[i].About); room < 0 {
			s.Calls[i].About = "" // the window is a new one
		}
	}
}

// RecallCall finds the call of a result.
func (s *Session) RecallCall(id string) (Call, bool) {
	key := FingerprintOf(id)
	for _, c := range s.Calls {
		if c.ID == key {
			return c, true
		}
	}
	return Call{}, false
}

// SetOutcome notes what is known of the outcome of a call that is remembered.
func (s *Session) SetOutcome(id string, o Outcome) {
	key := FingerprintOf(id)
	for i, c := range s.Calls {
		if c.ID == key {
			c.Outcome = o
			s.Calls = s.Calls.With(i, c)
		}
	}
}

// ReleaseCall forgets of a call what only its result needs, once that is told: of many
// calls it would be more than all the rest.
func (s *Session) ReleaseCall(id string) {
	key := FingerprintOf(id)
	for i, c := range s.Calls {
		if c.ID == key && (c.About != "" || c.Undescribed) {
			c.About, c.Undescribed = "", false
			s.Calls = s.Calls.With(i, c)
		}
	}
}

// HasEvent reports whether the session has told an event of this id.
func (s *Session) HasEvent(id string) bool {
	_, ok := s.IDs.Get(FingerprintOf(BoundID(id)))
	return ok && id != ""
}

// advance notes the position of a record in its file. It reports whether the record is
// new, and whether records before it are missing.
func (s *Session) advance(o Origin) (fresh, gap bool) {
	if o.File == "" {
		return true, false
	}
	is := filePosition{File: FingerprintOf(o.File), Position: o.Position}
	if o.Digest != "" {
		is.Digest = FingerprintOf(o.Digest)
	}
	last := int64(-1)
	for _, f := range s.Files {
		switch {
		case f.File != is.File:
		case is.Position < f.Position, is.Position == f.Position && is.Digest == f.Digest:
			return false, false
		default:
			last = f.Position
		}
	}
	files := s.Files.Without(func(f filePosition) bool { return f.File == is.File })
	s.Files = files.Push(is, maxFiles, &s.Lost)
	return true, o.Previous > last
}
