package core

import (
	"cmp"
	"errors"

	"tributary/envelopes"
)

// Limits of a session's memory, in number and in bytes. Together they exceed maxEncoded; then the oldest entries are
// dropped until the session fits.
const (
	maxEncoded     = 128 << 10
	maxIDs         = 4096    // event ids, 12 bytes each
	maxAPICalls    = 1024    // token counts of API calls, about 20 bytes each
	maxFiles       = 256     // positions in files
	maxThreads     = 64      // last user messages
	maxCalls       = 96      // tool calls
	MaxIdentity    = 256     // bytes of an event id
	MaxName        = 256     // bytes of a remembered name: tool, model
	MaxPendingRaw  = 4 << 10 // bytes of a pending event's raw record
	MaxPath        = 4096    // bytes of a remembered path
	maxAbout       = 1 << 10 // bytes of a command's description
	maxAbouts      = 8 << 10 // bytes of the descriptions of all open calls
	MaxExtension   = 2 << 10 // bytes of a metadata extension
	maxExtensions  = 16      // metadata extensions
	sessionVersion = 4       // first byte of an encoded session
	mostVersion    = 31      // highest version of any program; a higher first byte means damaged data
)

// ErrSessionVersion means that a program of another revision encoded the session. It comes with [ErrSession].
var ErrSessionVersion = errors.New("it has another revision")

// ErrSession means that an encoded session cannot be decoded.
var ErrSession = errors.New("session state cannot be read")

// Session is everything remembered between two records of a session. It can be encoded, compared by its encoding,
// decoded and continued; two sessions that got the same records are equal. It is not safe for concurrent use.
type Session struct {
	source  envelopes.Source
	id      string
	profile Profile // not part of the state: set it again after decoding
	refer   bool    // likewise
	state

	IDs      Memory[Fingerprint] // event ids with a hash of the event's content
	APICalls Memory[Consumption] // API calls with the highest numbers seen

	hash, hashOf string // hash of a root, computed when first needed

	marked      bool          // see [Session.Mark]
	markedCalls Window[*Call] // calls at the mark
}

// state is the part of a Session that is restored by assignment when a record fails: nothing that it refers to is
// ever changed in place.
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
	Lost        uint64 `json:"forgotten,omitzero"` // number of things forgotten because of limits
	ProjectHash string `json:"hash,omitzero"`      // as stated by the vendor; otherwise computed from Root

	State State `json:"-"` // of the vendor; nil if it has none
}

// NewSession returns the state of a session before its first record. vendor is the empty state of its vendor; nil if
// that has none.
func NewSession(source envelopes.Source, id string, vendor State) *Session {
	return &Session{
		source:   source,
		id:       id,
		state:    state{State: vendor},
		IDs:      newMemory[Fingerprint](maxIDs),
		APICalls: newMemory[Consumption](maxAPICalls),
	}
}

// Source returns the source of the session.
func (s *Session) Source() envelopes.Source { return s.source }

// ID returns the session id, the key of its records.
func (s *Session) ID() string { return s.id }

// Profile returns the chosen profile.
func (s *Session) Profile() Profile { return s.profile }

// UseProfile chooses the shapes of tool_metadata for later events. It is not part of the encoded session: set it
// again after decoding.
func (s *Session) UseProfile(p Profile) { s.profile = p }

// ReferToRaw makes later events refer to their record ([Emitted]) instead of carrying it in raw. Like the profile, it
// is not part of the encoded session.
func (s *Session) ReferToRaw(refer bool) { s.refer = refer }

// Forgotten returns how many remembered things were dropped because of limits. If it grows, an event that repeats
// much later may be emitted twice.
func (s *Session) Forgotten() uint64 { return s.Lost }

// Size returns the approximate memory of the session in bytes.
func (s *Session) Size() int {
	return 2<<10 + 64*len(s.IDs.ring) + 96*len(s.APICalls.ring) + s.size()
}

// size returns the approximate memory of the state in bytes; JSON takes at most six times as many.
func (s *state) size() int {
	n := len(s.TS) + len(s.Root) + 5*len(s.Failed.Spans)
	if s.State != nil {
		n += s.State.Size()
	}
	return n + s.metadata.size() + vcsSize(s.VCS) + s.files.size() + s.Threads.size() + s.calls.size()
}

// trim drops the oldest entries until the session fits maxEncoded: most spans of unreadable records first, then ids,
// then what waits for a later record.
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

// commit keeps the changes of the last record.
func (s *Session) commit() {
	s.IDs.commit()
	s.APICalls.commit()
}

// rollback undoes the changes of the last record; before is the state before it.
func (s *Session) rollback(before state) {
	s.state = before
	s.IDs.rollback()
	s.APICalls.rollback()
}

// SetRoot sets the project root; the first one of a session stays.
func (s *Session) SetRoot(path string) {
	if s.Root == "" && len(path) <= MaxPath {
		s.Root = path
	}
}

// projectHash returns the identity of the project (README.md, Identity). While the root is unknown it is that of the
// session, never a constant shared by many.
func (s *Session) projectHash() string {
	if s.ProjectHash != "" {
		return s.ProjectHash
	}
	if s.hash == "" || s.hashOf != s.Root {
		s.hashOf, s.hash = s.Root, HexHash(cmp.Or(s.Root, "session:"+s.id))
	}
	return s.hash
}

// HasEvent reports whether the session has emitted an event with this id.
func (s *Session) HasEvent(id string) bool {
	_, ok := s.IDs.Get(FingerprintOf(BoundID(id)))
	return ok && id != ""
}
