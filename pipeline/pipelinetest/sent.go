package pipelinetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/records"
)

// Sent is what producers sent and what was written to logs: an oracle that asks the broker only for events. The zero
// value is ready for use, from several goroutines.
type Sent struct {
	mu      sync.Mutex
	records map[string]bool // by key; false for optional ones
}

// Must notes a sent record, whose events must exist. It ignores records that state neither an id nor a time.
func (s *Sent) Must(session string, data []byte) { s.note(KeyOf(session, data), true) }

// May notes an optional record: its producer died, or it was lost with its log. A later [Sent.Must] makes it
// required.
func (s *Sent) May(session string, data []byte) { s.note(KeyOf(session, data), false) }

func (s *Sent) note(key string, must bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records == nil {
		s.records = make(map[string]bool)
	}
	if key != "" {
		s.records[key] = must || s.records[key]
	}
}

// Len returns how many records are required.
func (s *Sent) Len() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, must := range s.records {
		if must {
			n++
		}
	}
	return n
}

// Excuse makes required records optional, unless keep returns true for their key.
func (s *Sent) Excuse(keep func(key string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.records {
		s.records[key] = s.records[key] && keep(key)
	}
}

// KeyOf returns the key of a record: its session, and its id or else its time. It is empty for a record with neither.
func KeyOf(session string, data []byte) string {
	var r struct {
		UUID      string `json:"uuid"`
		Timestamp string `json:"timestamp"`
	}
	switch err := json.Unmarshal(data, &r); {
	case err != nil:
		return ""
	case r.UUID != "":
		return session + " " + r.UUID
	case r.Timestamp != "":
		return session + " " + r.Timestamp
	default:
		return ""
	}
}

// Difference is how the events of a generation differ from what was sent, by record keys.
type Difference struct {
	Lost, Doubled, Foreign []string
}

// Err returns nil if there is no difference.
func (d Difference) Err() error {
	if len(d.Lost)+len(d.Doubled)+len(d.Foreign) == 0 {
		return nil
	}
	some := func(keys []string) []string { return keys[:min(len(keys), 10)] }
	return fmt.Errorf("events differ from what was sent: %d records are lost, such as %q, %d are doubled, such as %q, %d were never sent, such as %q",
		len(d.Lost), some(d.Lost), len(d.Doubled), some(d.Doubled), len(d.Foreign), some(d.Foreign))
}

// Compare compares the events of a generation with what was sent: each record is the raw of one event, or the time of
// one prompt.
func (s *Sent) Compare(ctx context.Context, js jetstream.JetStream, generation string) (d Difference, err error) {
	stored := make(map[string]int)
	for e, err := range events.Read(ctx, js, generation, events.Query{Raw: true}) {
		if err != nil {
			return d, fmt.Errorf("read generation: %w", err)
		}
		key := KeyOf(e.SessionID, e.Raw)
		if e.Raw == nil && e.EventType == envelopes.UserMessage {
			key = e.SessionID + " " + e.TS // of a record that was too long to keep until its event was due
		}
		if key != "" {
			stored[key]++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.records)) {
		if s.records[key] && stored[key] == 0 {
			d.Lost = append(d.Lost, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		if _, ok := s.records[key]; !ok {
			d.Foreign = append(d.Foreign, key)
		}
		if stored[key] > 1 {
			d.Doubled = append(d.Doubled, key)
		}
	}
	return d, nil
}

// EventsOf returns the events of records, folded by session in the order of the records.
func EventsOf(tb testing.TB, sent []core.Record) (events []envelopes.AgentEventV1) {
	tb.Helper()
	folds := make(map[string]*core.Session)
	for i, r := range sent {
		r.Sequence = uint64(i + 1)
		s := folds[r.Session]
		if s == nil {
			s = normalizers.NewSession(r.Source, r.Session)
			folds[r.Session] = s
		}
		result, err := normalizers.Normalize(s, r)
		if _, permanent := records.Reason(err); err != nil && !permanent {
			tb.Fatal(err)
		}
		for _, e := range result.Events {
			events = append(events, e.Event)
		}
	}
	return events
}
