package titles

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
)

// Key identifies a session: agents choose their ids, so two of them may choose the same one.
type Key struct {
	Source    envelopes.Source
	SessionID string
}

// check returns [ErrInvalid] for a key that no session can have.
func (k Key) check() error {
	switch {
	case !slices.Contains(envelopes.Sources, k.Source):
		return invalid(fmt.Sprintf("source is none of %v", envelopes.Sources))
	case k.SessionID == "":
		return invalid("session_id is empty")
	case len(k.SessionID) > envelopes.MaxIDBytes:
		return invalid(fmt.Sprintf("session_id is longer than %d bytes", envelopes.MaxIDBytes))
	case !utf8.ValidString(k.SessionID):
		return invalid("session_id is not UTF-8")
	}
	return nil
}

// Subjects of all sessions.
const (
	allMetadata = "sessions.*.*.metadata"
	allChanges  = "sessions.*.*.changes"
)

// Subjects returns the subjects of all records and of all changes.
func Subjects() (metadata, changes string) { return allMetadata, allChanges }

func (k Key) subject(kind string) string {
	return "sessions." + string(k.Source) + "." + envelopes.Token(k.SessionID) + "." + kind
}

// metadataSubject is the subject of the newest record.
func (k Key) metadataSubject() string { return k.subject("metadata") }

// changesSubject is the subject of the changes.
func (k Key) changesSubject() string { return k.subject("changes") }

// Metadata is the group of fields that only [Service] writes.
type Metadata struct {
	Title           string `json:"title"`
	TitleVersion    uint64 `json:"title_version"` // number of changes of the title
	Pinned          bool   `json:"pinned"`
	MetadataVersion uint64 `json:"metadata_version"` // number of changes of any field of the group
}

// Merge returns the group that a copy of a session has when it is saved over what is stored:
// the stored one, unless the copy is newer. stored is nil when nothing is. A program that
// copies sessions around keeps their titles and pins by it; a copy never becomes newer by
// itself, because only [Service] raises MetadataVersion.
func Merge(stored *Metadata, runtime Metadata) Metadata {
	if stored != nil && stored.MetadataVersion >= runtime.MetadataVersion {
		return *stored
	}
	return runtime
}

// TitleSource says where a title comes from.
type TitleSource string

// The sources of titles.
const (
	SourceManual   TitleSource = "manual"   // a user
	SourceAuto     TitleSource = "auto"     // a model
	SourceFallback TitleSource = "fallback" // sessions.FallbackTitle
)

func (s TitleSource) check() error {
	switch s {
	case SourceManual, SourceAuto, SourceFallback:
		return nil
	default:
		return invalid(fmt.Sprintf("title_source is none of %s, %s, %s", SourceAuto, SourceManual, SourceFallback))
	}
}

// Session is the record of a session. A session that nobody has titled or pinned has a
// record with zero fields but for its key.
type Session struct {
	Source      envelopes.Source `json:"source"`
	SessionID   string           `json:"session_id"`
	Metadata    `json:",inline"`
	TitleSource TitleSource `json:"title_source,omitzero"` // of the last change of the title
	UpdatedAt   time.Time   `json:"updated_at,omitzero"`   // when the last change was made, in UTC, to the microsecond
	// Revision is the stream sequence of the record, 0 for one that is not stored. It is
	// set on reading.
	Revision uint64 `json:"revision,omitzero"`
}

// Key returns the key of s.
func (s *Session) Key() Key { return Key{s.Source, s.SessionID} }

// changed is the sequence of the change that is stored with the record: the next one. It is 0
// for a record that is not stored.
func (s *Session) changed() uint64 {
	if s.Revision == 0 {
		return 0
	}
	return s.Revision + 1
}

// setTitle changes the title.
func (s *Session) setTitle(title string, source TitleSource) ChangeType {
	s.Title, s.TitleSource = title, source
	s.TitleVersion = next(s.TitleVersion)
	return TitleUpdated
}

// setPinned changes the pin.
func (s *Session) setPinned(pinned bool) ChangeType {
	s.Pinned = pinned
	return PinnedUpdated
}

// next returns the version after v. The last version stays.
func next(v uint64) uint64 { return max(v, v+1) }

// encode returns s as the stream stores it.
func (s *Session) encode() ([]byte, error) {
	stored := *s
	stored.Revision = 0
	return json.Marshal(&stored)
}

// decodeSession reads a record of the stream. The error repeats nothing of it.
func decodeSession(m *jetstream.RawStreamMsg) (Session, error) {
	var s Session
	if json.Unmarshal(m.Data, &s) != nil || s.Key().check() != nil || s.Key().metadataSubject() != m.Subject {
		return Session{}, fmt.Errorf("%w: record %d of stream %s", errDamaged, m.Sequence, stream)
	}
	s.Revision = m.Sequence
	return s, nil
}
