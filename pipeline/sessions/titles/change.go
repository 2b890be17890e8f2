package titles

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
)

// ChangeType is the type of a change.
type ChangeType string

// The types of changes.
const (
	TitleUpdated  ChangeType = "session_title_updated"
	PinnedUpdated ChangeType = "session_pinned_updated"
)

// eventTypePrefix precedes a [ChangeType] in the type of a change's CloudEvent.
const eventTypePrefix = "agtrace.session.v1."

// headerPrevious has the sequence of the session's previous change. The first change lacks it.
const headerPrevious = "Tributary-Previous"

// Change is a change of the metadata of a session, stored together with the record. Title, TitleVersion and
// TitleSource are set for [TitleUpdated], Pinned for [PinnedUpdated]; otherwise they are zero.
type Change struct {
	Type      ChangeType
	Source    envelopes.Source
	SessionID string

	Title        string
	TitleVersion uint64
	TitleSource  TitleSource
	Pinned       bool

	UpdatedAt       time.Time
	MetadataVersion uint64 // of the record stored with the change
	ID              string // of the CloudEvent; unique to the call that made the change
	Sequence        uint64 // in the stream

	previous uint64 // sequence of the session's previous change; 0 for none
}

// key returns the key of the session.
func (c *Change) key() Key { return Key{c.Source, c.SessionID} }

// titleData and pinnedData are the data of a change's CloudEvent.
type titleData struct {
	Type         ChangeType  `json:"type"`
	SessionID    string      `json:"session_id"`
	Title        string      `json:"title"`
	TitleVersion uint64      `json:"title_version"`
	Source       TitleSource `json:"source"`
	UpdatedAt    time.Time   `json:"updated_at"`
}

type pinnedData struct {
	Type      ChangeType `json:"type"`
	SessionID string     `json:"session_id"`
	Pinned    bool       `json:"pinned"`
	UpdatedAt time.Time  `json:"updated_at"`
}

// changeOf returns the change of type t that leads to the record s. id is the id of the call.
func changeOf(s *Session, t ChangeType, id string, previous uint64) *Change {
	c := &Change{
		Type: t, Source: s.Source, SessionID: s.SessionID,
		UpdatedAt: s.UpdatedAt, MetadataVersion: s.MetadataVersion, ID: id, previous: previous,
	}
	if t == TitleUpdated {
		c.Title, c.TitleVersion, c.TitleSource = s.Title, s.TitleVersion, s.TitleSource
	} else {
		c.Pinned = s.Pinned
	}
	return c
}

// MarshalJSON returns the data of the CloudEvent: type, session_id, the fields of the type, and updated_at. source in
// it is the source of the title.
func (c *Change) MarshalJSON() ([]byte, error) {
	if c.Type == TitleUpdated {
		return json.Marshal(titleData{c.Type, c.SessionID, c.Title, c.TitleVersion, c.TitleSource, c.UpdatedAt})
	}
	return json.Marshal(pinnedData{c.Type, c.SessionID, c.Pinned, c.UpdatedAt})
}

// message returns the message of c. ttl is empty if changes do not expire.
func (c *Change) message(mode envelopes.Mode, ttl string) (*nats.Msg, error) {
	data, err := c.MarshalJSON()
	if err != nil {
		return nil, err
	}
	ce := event.Event{Context: &event.EventContextV1{}, DataEncoded: data}
	session := envelopes.EscapeAttribute(c.SessionID)
	ce.SetID(c.ID)
	ce.SetSource("/sessions/" + string(c.Source) + "/" + url.PathEscape(c.SessionID))
	ce.SetType(eventTypePrefix + string(c.Type))
	ce.SetSubject(session)
	ce.SetTime(c.UpdatedAt)
	ce.SetDataContentType(event.ApplicationJSON)
	ce.SetExtension("partitionkey", session)
	ce.SetExtension("sequence", fmt.Sprintf("%020d", c.MetadataVersion))
	ce.SetExtension("sessionid", session)
	header, payload, err := envelopes.Encode(ce, mode)
	if err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: c.key().changesSubject(), Header: header, Data: payload}
	if c.previous > 0 {
		m.Header[headerPrevious] = []string{strconv.FormatUint(c.previous, 10)}
	}
	if ttl != "" {
		m.Header[jetstream.MsgTTLHeader] = []string{ttl}
	}
	return m, nil
}

// decodeChange decodes a stored change. Its error repeats nothing of it.
func decodeChange(m *jetstream.RawStreamMsg) (*Change, error) {
	c, err := readChange(m)
	if err != nil {
		return nil, fmt.Errorf("%w: change %d of stream %s: %w", errDamaged, m.Sequence, stream, err)
	}
	return c, nil
}

var errChange = errors.New("not a change of its session")

func readChange(m *jetstream.RawStreamMsg) (*Change, error) {
	ce, err := envelopes.Decode(m.Header, m.Data)
	if err != nil {
		return nil, err
	}
	c := &Change{ID: ce.ID(), Sequence: m.Sequence}
	name, ok := strings.CutPrefix(ce.Type(), eventTypePrefix)
	switch c.Type = ChangeType(name); {
	case ok && c.Type == TitleUpdated:
		var d titleData
		if json.Unmarshal(ce.DataEncoded, &d) != nil {
			return nil, errChange
		}
		c.SessionID, c.UpdatedAt = d.SessionID, d.UpdatedAt
		c.Title, c.TitleVersion, c.TitleSource = d.Title, d.TitleVersion, d.Source
	case ok && c.Type == PinnedUpdated:
		var d pinnedData
		if json.Unmarshal(ce.DataEncoded, &d) != nil {
			return nil, errChange
		}
		c.SessionID, c.UpdatedAt, c.Pinned = d.SessionID, d.UpdatedAt, d.Pinned
	default:
		return nil, errChange
	}
	if tokens := strings.Split(m.Subject, "."); len(tokens) == 4 {
		c.Source = envelopes.Source(tokens[1])
	}
	if c.key().changesSubject() != m.Subject {
		return nil, errChange
	}
	sequence, _ := types.Format(ce.Extensions()["sequence"]) // a missing one fails to parse
	if c.MetadataVersion, err = strconv.ParseUint(sequence, 10, 64); err != nil {
		return nil, errChange
	}
	if previous := m.Header.Get(headerPrevious); previous != "" {
		if c.previous, err = strconv.ParseUint(previous, 10, 64); err != nil {
			return nil, errChange
		}
	}
	return c, nil
}
