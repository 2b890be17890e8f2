package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/states"
	"tributary/pipeline/streams"
)

// SessionGaps are the gaps in the files of a session.
type SessionGaps struct {
	Source  envelopes.Source `json:"source"`
	Session string           `json:"session"`
	Gaps    []FileGap        `json:"gaps"`
	// Expired is set if only the beginnings of files are missing and the raw stream drops old records: they were
	// dropped before the generation began.
	Expired bool `json:"expired,omitzero"`
}

// FileGap is a part of a file whose records are not in the raw stream: those at offsets above After, up to Last.
type FileGap struct {
	File     string `json:"file,omitzero"` // as identified by the producer; empty if the raw stream has dropped the record behind the gap
	After    int64  `json:"after"`         // offset of the record before the gap; -1 for none
	Last     int64  `json:"last"`          // offset of the last missing record
	Sequence uint64 `json:"sequence"`      // of the record that showed the gap, in the raw stream
	// Found is when the broker stored that record; zero if the raw stream has dropped it.
	Found time.Time `json:"found,omitzero"`
}

// listedSessions reads the sessions named in a list of a checkpoint. It omits those that the answering replica lacks,
// and unreadable ones, whose records become dead letters. archivedTo is the argument of [states.Reader.States].
func listedSessions(ctx context.Context, js jetstream.JetStream, cellName string, list streams.SessionList, archivedTo uint64) (all []*core.Session, err error) {
	if len(list.Subjects) == 0 {
		return nil, nil
	}
	read := states.Reader(func(subjects []string) (map[string]broker.Stored, error) {
		return broker.MessagesOf(ctx, js, streams.EventsStream(cellName), subjects)
	})
	stored, err := read.States(list.Subjects, archivedTo)
	if err != nil {
		return nil, err
	}
	for _, subject := range list.Subjects {
		if m, ok := stored[subject]; ok {
			if s, err := m.Decode(); err == nil {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// ReadGaps reads the gaps of the sessions named in a checkpoint.
func ReadGaps(ctx context.Context, js jetstream.JetStream, cellName, rawStream string, list streams.SessionList) ([]SessionGaps, error) {
	sessions, err := listedSessions(ctx, js, cellName, list, 0) // sessions with gaps are not archived
	if err != nil || len(sessions) == 0 {
		return nil, err
	}
	raw, err := js.Stream(ctx, rawStream)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", rawStream, err)
	}
	var all []SessionGaps
	for _, s := range sessions {
		is := SessionGaps{Source: s.Source(), Session: s.ID(), Expired: raw.CachedInfo().Config.MaxAge > 0}
		for _, g := range s.Gaps() {
			gap, err := readGap(ctx, js, rawStream, g)
			if err != nil {
				return nil, err
			}
			is.Gaps = append(is.Gaps, gap)
			is.Expired = is.Expired && g.After < 0
		}
		if is.Gaps != nil { // else they were filled meanwhile
			all = append(all, is)
		}
	}
	return all, nil
}

// readGap describes a gap, with what the record behind it states if the raw stream still has that record.
func readGap(ctx context.Context, js jetstream.JetStream, rawStream string, g core.Gap) (FileGap, error) {
	is := FileGap{After: g.After, Last: g.Last, Sequence: g.Sequence}
	m, err := broker.LeaderGet(ctx, js, rawStream, broker.GetRequest{Sequence: g.Sequence})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return is, nil
	}
	if err != nil {
		return is, fmt.Errorf("read record %d: %w", g.Sequence, err)
	}
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return is, nil //nolint:nilerr // it is another record
	}
	if file, err := envelopes.DecodeHeaderValue(header.Get(envelopes.HeaderFile)); err == nil && g.In(file) {
		is.File, is.Found = file, m.Time
	}
	return is, nil
}
