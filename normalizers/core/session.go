package core

import (
	"cmp"
	"errors"

	"tributary/envelopes"
)

// What a session remembers, in count and in bytes. All at their limits together are more
// than maxEncoded: then the oldest are dropped until it fits.
const (
	maxEncoded     = 128 << 10
	maxIDs         = 4096    // event ids, 12 bytes each
	maxAPICalls    = 1024    // token counts of API calls, about 20 bytes each
	maxFiles       = 256     // positions in files
	maxThreads     = 64      // last user messages
	maxCalls       = 96      // tool calls
	MaxIdentity    = 256     // bytes of an event id
	MaxName        = 256     // bytes of a remembered name: tool, model
	MaxPendingRaw  = 4 << 10 // bytes of the raw record that a pending event keeps
	MaxPath        = 4096    // bytes of a remembered path
	maxAbout       = 1 << 10 // bytes of what a command is said to be for
	maxAbouts      = 8 << 10 // bytes of that of all open calls
	MaxExtension   = 2 << 10 // bytes of a metadata extension
	maxExtensions  = 16      // metadata extensions
	sessionVersion = 4       // first byte of an encoded session
	mostVersion    = 31      // of any program; another first byte is that of something damaged
)

// ErrSessionVersion is the error of an encoded session that a program of another revision wrote. It comes with [ErrSession].
var ErrSessionVersion = errors.New("it is of another revision")

// ErrSession is the reason of an encoded session that cannot be decoded.
var ErrSession = errors.New("session state cannot be read")

// Session is all that is remembered between two records of a session. It is a value in
// spirit: it can be encoded, compared by its encoding, decoded and carried on, and two
// sessions that were given the same records are equal. It is not safe for concurrent use.
type Session struct {
	source  envelopes.Source
	id      string
	profile Profile // not part of the state: set again after decoding
	refer   bool    // nor this
	state

	IDs      Memory[Fingerprint] // event ids, each with what the event said
	APICalls Memory[Consumption] // API calls, each with the highest figures seen

	hash, hashOf string // the hash of a root, made when it is first needed

	marked      bool          // see [Session.Mark]
	markedCalls Window[*Call] // the calls at the mark
}

// state is the part of a Session that is put back by assignment when a record fails:
// nothing that it refers to is ever changed in place.
type state struct {
	Records uint64 `json:"n,omitzero"`  // readable records so far
	Events  uint64 `json:"e,omitzero"`  // events so far
	TS      string `json:"ts,omitzero"` // of the last event
	Root    string `json:"root,omitzero"`
	metadata
	versionControl
	files
	Failed  failures `json:"failed,omitzero"`
	Threads threads  `json:"threads,omitzero"`
	calls
	Lost        uint64 `json:"forgotten,omitzero"` // what the limits made us forget
	ProjectHash string `json:"hash,omitzero"`      // as the vendor states it; else it is made of Root

	State State `json:"-"` // of the vendor; nil when it remembers nothing
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
// the encoded session: set it again after decoding.
func (s *Session) UseProfile(p Profile) { s.profile = p }

// ReferToRaw makes events to come refer to their record ([Emitted]) instead of carrying it in
// raw. Like the profile it is no part of the encoded session.
func (s *Session) ReferToRaw(refer bool) { s.refer = refer }

// Forgotten returns how many remembered things were dropped because of a limit. Where it
// grows, an event that comes again much later may be emitted twice.
func (s *Session) Forgotten() uint64 { return s.Lost }

// Size returns about how many bytes of memory the session takes.
func (s *Session) Size() int {
	return 2<<10 + 64*len(s.IDs.ring) + 96*len(s.APICalls.ring) + s.size()
}

// size is about how many bytes the state takes in memory; JSON takes at most six times
// as many.
func (s *state) size() int {
	n := len(s.TS) + len(s.Root) + 5*len(s.Failed.Spans)
	if s.State != nil {
		n += s.State.Size()
	}
	return n + s.metadata.size() + vcsSize(s.VCS) + s.files.size() + s.Threads.size() + s.calls.size()
}

// trim drops the oldest of what is remembered until the session fits maxEncoded: most of
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
			s.Extensions, s.made = nil, nil
		}
		s.Lost += uint64(lost)
	}
}

// commit keeps what the last record changed.
func (s *Session) commit() {
	s.IDs.commit()
	s.APICalls.commit()
}

// rollback undoes what the last record changed; before is the state in front of it.
func (s *Session) rollback(before state) {
	s.state = before
	s.IDs.rollback()
	s.APICalls.rollback()
}

// SetRoot notes the project root; the first one of a session stays.
func (s *Session) SetRoot(path string) {
	if s.Root == "" && len(path) <= MaxPath {
		s.Root = path
	}
}

// projectHash is the identity of the project (README.md, Identity): of the session
// itself while the root is unknown, never one constant shared by many.
func (s *Session) projectHash() string {
	if s.ProjectHash != "" {
		return s.ProjectHash
	}
	if s.hash == "" || s.hashOf != s.Root {
		s.hashOf, s.hash = s.Root, HexHash(cmp.Or(s.Root, "session:"+s.id))
	}
	return s.hash
}

// HasEvent reports whether the session has emitted an event of this id.
func (s *Session) HasEvent(id string) bool {
	_, ok := s.IDs.Get(FingerprintOf(BoundID(id)))
	return ok && id != ""
}
