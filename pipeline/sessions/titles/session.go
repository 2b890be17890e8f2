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

// Key identifies a session. Agents choose their ids, so two agents may choose the same.
type Key struct {
	Source    envelopes.Source
	SessionID string
}

// check returns [ErrInvalid] for an impossible key.
func (k Key) check() error {
	switch {
	case !slices.Contains(envelopes.Sources, k.Source):
		return invalid(fmt.Sprintf("source is not one of %v", envelopes.Sources))
	case k.SessionID == "":
		return invalid("session_id is empty")
	case len(k.SessionID) > envelopes.MaxIDBytes:
		return invalid(fmt.Sprintf("session_id is longer than %d bytes", envelopes.MaxIDBytes))
	case !utf8.ValidString(k.SessionID):
		return invalid("session_id is not UTF-8")
	}
	return nil
}

// Subject filters for all sessions.
const (
	allMetadata = "sessions.*.*.metadata"
	allChanges  = "sessions.*.*.changes"
)

// Subjects returns the subject filters of all records and of all changes.
func Subjects() (metadata, changes string) { return allMetadata, allChanges }

func (k Key) subject(kind string) string {
	return "sessions." + string(k.Source) + "." + envelopes.Token(k.SessionID) + "." + kind
}

// metadataSubject returns the subject of the newest record.
func (k Key) metadataSubject() string { return k.subject("metadata") }

// changesSubject returns the subject of the changes.
func (k Key) changesSubject() string { return k.subject("changes") }

// Metadata has the fields that only [Service] writes.
type Metadata struct {
	Title           string `json:"title"`
	TitleVersion    uint64 `json:"title_version"` // number of title changes
	Pinned          bool   `json:"pinned"`
	MetadataVersion uint64 `json:"metadata_version"` // number of changes of any of these fields
}

// Merge returns the metadata to save when a copy of a session is saved over the stored one: the stored metadata,
// unless the copy has a newer version. stored is nil if there is none. Programs that copy sessions use it to keep
// titles and pins. A copy never becomes newer by itself, because only [Service] raises MetadataVersion.
func Merge(stored *Metadata, runtime Metadata) Metadata {
	if stored != nil && stored.MetadataVersion >= runtime.MetadataVersion {
		return *stored
	}
	return runtime
}

// TitleSource is the origin of a title.
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
		return invalid(fmt.Sprintf("title_source is not one of %s, %s, %s", SourceAuto, SourceManual, SourceFallback))
	}
}

// Session is the record of a session. If it was never titled or pinned, all fields but its key are zero.
type Session struct {
	Source      envelopes.Source `json:"source"`
	SessionID   string           `json:"session_id"`
	Metadata    `json:",inline"`
	TitleSource TitleSource `json:"title_source,omitzero"` // of the last title change
	UpdatedAt   time.Time   `json:"updated_at,omitzero"`   // of the last change, in UTC, to the microsecond
	// Revision is the stream sequence of the record; 0 if it is not stored. It is set on reading.
	Revision uint64 `json:"revision,omitzero"`
}

// Key returns the key of s.
func (s *Session) Key() Key { return Key{s.Source, s.SessionID} }

// changed returns the sequence of the change stored with the record, which is the next one; 0 if the record is not
// stored.
func (s *Session) changed() uint64 {
	if s.Revision == 0 {
		return 0
	}
	return s.Revision + 1
}

// setTitle sets the title.
func (s *Session) setTitle(title string, source TitleSource) ChangeType {
	s.Title, s.TitleSource = title, source
	s.TitleVersion = next(s.TitleVersion)
	return TitleUpdated
}

// setPinned sets the pin.
func (s *Session) setPinned(pinned bool) ChangeType {
	s.Pinned = pinned
	return PinnedUpdated
}

// next returns the version after v. The highest version stays.
func next(v uint64) uint64 { return max(v, v+1) }

// encode returns the stored form of s.
func (s *Session) encode() ([]byte, error) {
	stored := *s
	stored.Revision = 0
	return json.Marshal(&stored)
}

// decodeSession decodes a stored record. Its error repeats nothing of it.
func decodeSession(m *jetstream.RawStreamMsg) (Session, error) {
	var s Session
	if json.Unmarshal(m.Data, &s) != nil || s.Key().check() != nil || s.Key().metadataSubject() != m.Subject {
		return Session{}, fmt.Errorf("%w: record %d of stream %s", errDamaged, m.Sequence, stream)
	}
	s.Revision = m.Sequence
	return s, nil
}
