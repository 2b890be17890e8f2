package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// gapNote is what the records of a chunk changed about the gaps of a session, for the log.
type gapNote struct {
	session *liveSession
	opened  int
	newest  normalizers.Gap // of those that were opened
	file    string          // of the newest
	late    int             // records that lay in a gap
	left    int             // gaps when the chunk was sealed

	rewritten     int    // records at passed places that were others
	undecided     int    // records at passed places whose earlier records have expired
	rewrittenFile string // of the newest of both
}

// noteGap notes what a record changed about the gaps of its session, and whether it lay at a place that the session
// had passed.
func (c *chunk) noteGap(r received, s *liveSession, result normalizers.Result) {
	if !result.Gap && !result.Late && !result.Rewritten && !result.Undecided {
		return
	}
	i := slices.IndexFunc(c.notes, func(n gapNote) bool { return n.session == s })
	if i < 0 {
		i = len(c.notes)
		c.notes = append(c.notes, gapNote{session: s})
	}
	n := &c.notes[i]
	switch {
	case result.Late:
		n.late++
	case result.Gap:
		gaps := s.state.Gaps()
		n.opened++
		n.newest, n.file = gaps[len(gaps)-1], r.Origin.File
	case result.Rewritten:
		n.rewritten++
		n.rewrittenFile = r.Origin.File
	case result.Undecided:
		n.undecided++
		n.rewrittenFile = r.Origin.File
	}
}

// sealGaps notes which sessions of the chunk have gaps or rewritten files now and had none, or the reverse.
func (c *chunk) sealGaps(generation string, partition int) {
	for _, s := range c.changed {
		subject := func() string { return envelopes.StateSubject(generation, partition, s.key.Source, s.key.ID) }
		if has := len(s.state.Gaps()) > 0; has != s.gaps {
			c.gaps = append(c.gaps, streams.ListChange{Subject: subject(), Added: has})
			s.gaps = has
		}
		if has := len(s.state.Rewrites()) > 0; has != s.rewritten {
			c.rewritten = append(c.rewritten, streams.ListChange{Subject: subject(), Added: has})
			s.rewritten = has
		}
	}
	for i := range c.notes {
		c.notes[i].left = len(c.notes[i].session.state.Gaps())
	}
}

// logGaps logs what a chunk that is stored changed about gaps: a line for each session.
func (p *partition) logGaps(notes []gapNote) {
	for _, n := range notes {
		session := []any{slog.String("source", string(n.session.key.Source)), slog.String("session", n.session.key.ID)}
		if n.opened > 0 {
			p.log.Warn("records are missing in the raw stream: ship their file again", append(session,
				slog.Int("gaps", n.opened), slog.String("file", n.file), slog.Int64("after", n.newest.After), slog.Int64("last", n.newest.Last),
				slog.Uint64("sequence", n.newest.Sequence))...)
		}
		if n.rewritten > 0 {
			p.log.Warn("a file has other records than before at the same places: it was rewritten, or goes on differently on two machines, and both are kept",
				append(session, slog.Int("records", n.rewritten), slog.String("file", n.rewrittenFile))...)
		}
		if n.undecided > 0 {
			p.log.Warn("records repeat places whose earlier records have expired from the raw stream, and are taken for duplicates: "+
				"keep raw records for longer than files are shipped again", append(session, slog.Int("records", n.undecided), slog.String("file", n.rewrittenFile))...)
		}
		if n.late > 0 {
			p.log.Info("records that were missing are stored", append(session, slog.Int("records", n.late), slog.Int("gaps", n.left))...)
		}
	}
}

// SessionGaps are the gaps in the files of a session.
type SessionGaps struct {
	Source  envelopes.Source `json:"source"`
	Session string           `json:"session"`
	Gaps    []FileGap        `json:"gaps"`
	// Expired is set when nothing but the beginnings of files is missing, and the raw
	// stream drops old records: the generation began after they were dropped.
	Expired bool `json:"expired,omitzero"`
}

// FileGap is a part of a file whose records are not in the raw stream: those at the offsets
// above After, up to Last.
type FileGap struct {
	File     string `json:"file,omitzero"` // as the producer identifies it; empty when the raw stream has dropped the record behind the gap
	After    int64  `json:"after"`         // offset of the record before the gap, -1 when there is none
	Last     int64  `json:"last"`          // offset of the last record that is missing
	Sequence uint64 `json:"sequence"`      // of the record that showed the gap, in the raw stream
	// Found is when the broker stored that record; zero when it has dropped it.
	Found time.Time `json:"found,omitzero"`
}

// listedSessions reads the sessions that a list of a checkpoint names, as far as the replica that answers has them and
// they can be read: the records of the others are dead letters. archivedTo is that of [readStates.states].
func listedSessions(ctx context.Context, js jetstream.JetStream, cellName string, list streams.SessionList, archivedTo uint64) (all []*normalizers.Session, err error) {
	if len(list.Subjects) == 0 {
		return nil, nil
	}
	read := readStates(func(subjects []string) (map[string]broker.Stored, error) {
		return broker.MessagesOf(ctx, js, streams.EventsStream(cellName), subjects)
	})
	stored, err := read.states(list.Subjects, archivedTo)
	if err != nil {
		return nil, err
	}
	for _, subject := range list.Subjects {
		if m, ok := stored[subject]; ok {
			if s, err := m.decode(); err == nil {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// readGaps reads the gaps of the sessions that a checkpoint names.
func readGaps(ctx context.Context, js jetstream.JetStream, cellName, rawStream string, list streams.SessionList) ([]SessionGaps, error) {
	sessions, err := listedSessions(ctx, js, cellName, list, 0) // a session with gaps is not moved to an archive
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
		if is.Gaps != nil { // else they are filled meanwhile
			all = append(all, is)
		}
	}
	return all, nil
}

// readGap describes a gap, with what the record behind it states, if the raw stream still has
// that.
func readGap(ctx context.Context, js jetstream.JetStream, rawStream string, g normalizers.Gap) (FileGap, error) {
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
