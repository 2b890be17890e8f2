package erasure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/states"
	"tributary/pipeline/streams"
)

// Count counts what the broker has of sessions. It changes nothing.
func Count(ctx context.Context, js jetstream.JetStream, sessions []events.SessionID) ([]streams.ErasureCounts, error) {
	l, err := streams.ReadLayout(ctx, js)
	if err != nil {
		return nil, err
	}
	counts := make([]streams.ErasureCounts, len(sessions))
	for i, id := range sessions {
		s := newSession(id, l)
		if counts[i], err = count(ctx, js, l, s); err != nil {
			return nil, err
		}
		objects := make(map[string]bool)
		for cell := range max(l.Cells, 1) {
			filter := envelopes.RawSessionFilter(id.Source, id.Session)
			err := eachMessage(ctx, js, streams.RawStreamOf(cell), filter, func(m broker.Message) {
				counts[i].Records++
				if claim, err := claims.Parse(m.Header.Get(envelopes.HeaderClaim)); err == nil {
					objects[claim.Digest] = true
				}
			})
			if err != nil {
				return nil, err
			}
		}
		counts[i].Objects = int64(len(objects))
	}
	return counts, nil
}

// count counts what the broker has of a session, except records and objects.
func count(ctx context.Context, js jetstream.JetStream, l streams.Layout, s *session) (c streams.ErasureCounts, err error) {
	all, err := streams.ReadGenerations(ctx, js)
	if err != nil {
		return c, err
	}
	c.Titles, err = titles.CountMessages(ctx, js, titles.Key{Source: s.id.Source, SessionID: s.id.Session})
	if err != nil {
		return c, err
	}
	for i := range all.List {
		g := &all.List[i]
		cell := envelopes.CellName(g.Name, l.Cell(s.partition))
		err := countIn(ctx, js, cell, s, &c)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return c, fmt.Errorf("generation %s: %w", g.Name, err)
		}
		n, err := summaries.CountMessages(ctx, js, g.Name, []events.SessionID{s.id})
		if err != nil {
			return c, err
		}
		c.Summaries += n
	}
	return c, nil
}

// countIn adds what a cell of a generation has of a session.
func countIn(ctx context.Context, js jetstream.JetStream, cell string, s *session, c *streams.ErasureCounts) error {
	stream := streams.EventsStream(cell)
	state := envelopes.SessionStateFilter(cell, s.id.Source, s.id.Session)
	for _, one := range []struct {
		n       *int64
		filters []string
	}{
		{&c.Events, []string{envelopes.EventFilter(cell, s.id.Source, s.id.Session, "")}},
		{&c.DeadLetters, []string{envelopes.DeadLetterFilter(cell, s.id.Source, s.id.Session)}},
		{&c.States, []string{state, envelopes.ChangeSubject(state)}},
	} {
		n, err := broker.CountFrom(ctx, js, stream, 1, one.filters...)
		if err != nil {
			return err
		}
		*one.n += int64(n)
	}
	archive, name := envelopes.ArchiveOf(envelopes.StateSubject(cell, s.partition, s.id.Source, s.id.Session))
	content, err := readArchive(ctx, js, stream, archive)
	if err != nil {
		return err
	}
	if _, is := content[name]; is {
		c.States++
	}
	return nil
}

// readArchive reads an archive from the leader of its stream; nil if there is none.
func readArchive(ctx context.Context, js jetstream.JetStream, stream, subject string) (states.Archive, error) {
	m, err := broker.LeaderGet(ctx, js, stream, broker.GetRequest{LastBySubject: subject})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	content, err := states.DecodeArchive(m.Data)
	if err != nil {
		return nil, &streams.Fault{Err: fmt.Errorf("%w, and may have a state to erase: %s", err, subject), Cure: streams.CureReplay}
	}
	return content, nil
}

// Positions returns the positions of the events of a session in a generation, see [streams.PlaceOf].
func Positions(ctx context.Context, js jetstream.JetStream, generation string, id events.SessionID) (streams.Sequences, error) {
	l, err := streams.ReadLayout(ctx, js)
	if err != nil {
		return nil, err
	}
	number := l.Cell(envelopes.Partition(id.Source, id.Session, l.Partitions))
	list, err := eventPositions(ctx, js, envelopes.CellName(generation, number), id)
	for i := range list {
		list[i] = streams.PlaceOf(number, list[i])
	}
	return list, err
}

// eventPositions returns the positions of the events of a session in the cell of a generation.
func eventPositions(ctx context.Context, js jetstream.JetStream, cell string, id events.SessionID) (list streams.Sequences, err error) {
	err = eachMessage(ctx, js, streams.EventsStream(cell), envelopes.EventFilter(cell, id.Source, id.Session, ""), func(m broker.Message) {
		list = append(list, m.Sequence)
	})
	return list, err
}

// listTries bounds how often a list is begun again, because the replica that sends it is behind.
const listTries = 5

// eachMessage passes on the headers of the messages of a subject that the leader of a stream has now. After a failure it
// continues behind the last one.
func eachMessage(ctx context.Context, js jetstream.JetStream, stream, filter string, pass func(broker.Message)) error {
	end, err := broker.LastSequence(ctx, js, stream)
	if err != nil {
		return err
	}
	from := uint64(1)
	for tries := 1; ; tries++ {
		err := eachMessageFrom(ctx, js, stream, filter, &from, end, pass)
		if err == nil || ctx.Err() != nil || tries == listTries {
			return broker.Wrap(err, "read stream "+stream)
		}
		if err := broker.Pause(ctx, time.Duration(tries)*claims.RetryReplica); err != nil {
			return err
		}
	}
}

// eachMessageFrom is one try of eachMessage. It moves from behind each message.
func eachMessageFrom(ctx context.Context, js jetstream.JetStream, stream, filter string, from *uint64, end uint64, pass func(broker.Message)) error {
	r, err := broker.OpenReader(ctx, js, stream, jetstream.ConsumerConfig{
		Description:   "An erasure.",
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:   *from,
		FilterSubject: filter,
		HeadersOnly:   true,
	})
	if err != nil {
		return err
	}
	defer r.Close()
	r.End = end
	for pending := r.Pending; pending > 0; {
		messages, err := r.Next(ctx, nil)
		if errors.Is(err, broker.ErrEnd) {
			return nil // the others were removed meanwhile
		}
		if err != nil {
			return err
		}
		for _, m := range messages {
			if m.Sequence > end {
				return nil
			}
			pass(m)
			*from, pending = m.Sequence+1, m.Pending
		}
	}
	return r.Exhausted(ctx, end)
}

// The limits of an entry in the log, which is one message.
const (
	maxRecords = 50_000
	maxObjects = 1000
)

// found is what the raw streams have of a session in a partition and the log does not have yet.
type found struct {
	records streams.Sequences
	objects []string
}

// note lists the records of the sessions, and writes those to the log that it does not have yet. Afterwards each session
// has an entry in its own partition.
func (e *eraser) note(ctx context.Context) error {
	for {
		last, err := e.readLog(ctx)
		if err != nil {
			return err
		}
		written, err := e.write(ctx, last)
		if broker.Fenced(err) {
			continue // another command has written to the log
		}
		if err != nil || !written {
			return err
		}
		_, err = e.readLog(ctx)
		return err
	}
}

// readLog reads the log. It returns the last sequence of the log before that.
func (e *eraser) readLog(ctx context.Context) (last uint64, err error) {
	if last, err = broker.LastSequence(ctx, e.js, streams.ErasuresStream); err != nil {
		return 0, fmt.Errorf("stream %s: %w", streams.ErasuresStream, err)
	}
	if e.log, err = streams.ReadErasures(ctx, e.js, streams.AllPartitions); err != nil {
		return 0, err
	}
	for _, s := range e.sessions {
		s.entries = slices.DeleteFunc(slices.Clone(e.log), func(x streams.Erasure) bool { return x.Name() != s.name() })
	}
	return last, nil
}

// write writes what the log does not have yet behind its last message, and reports whether there was anything. Of two
// commands that erase the same session at once, the log refuses the second one, so that no record has two entries.
func (e *eraser) write(ctx context.Context, last uint64) (written bool, err error) {
	for _, s := range e.sessions {
		fresh, err := e.list(ctx, s)
		if err != nil {
			return written, err
		}
		entries, err := e.entries(ctx, s, fresh)
		if err != nil {
			return written, err
		}
		for i := range entries {
			subject, data, err := entries[i].Message()
			if err != nil {
				return written, err
			}
			ack, err := e.js.Publish(ctx, subject, data, jetstream.WithExpectLastSequence(last))
			if err != nil {
				return written, fmt.Errorf("write stream %s: %w", streams.ErasuresStream, err)
			}
			written, last = true, ack.Sequence
		}
	}
	return written, nil
}

// list lists the records of a session in the raw streams. It returns those that the log does not have, by partition.
func (e *eraser) list(ctx context.Context, s *session) (map[int]*found, error) {
	known := make(map[int]streams.Erased)
	for _, p := range s.partitions() {
		own := slices.DeleteFunc(slices.Clone(s.entries), func(x streams.Erasure) bool { return x.Partition != p })
		known[p] = streams.ErasedThrough(own, own[len(own)-1].Sequence)
	}
	fresh := make(map[int]*found)
	s.present, s.last = 0, nil
	for cell := range max(e.layout.Cells, 1) {
		filter := envelopes.RawSessionFilter(s.id.Source, s.id.Session)
		err := eachMessage(ctx, e.js, streams.RawStreamOf(cell), filter, func(m broker.Message) {
			s.present++
			s.last = s.last.With(cell, m.Sequence)
			a, err := envelopes.ParseRawSubject(m.Subject)
			if err != nil || known[a.Partition][s.name()].Has(m.Sequence) {
				return
			}
			f := fresh[a.Partition]
			if f == nil {
				f = &found{}
				fresh[a.Partition] = f
			}
			f.records = append(f.records, m.Sequence)
			if claim, err := claims.Parse(m.Header.Get(envelopes.HeaderClaim)); err == nil && !slices.Contains(f.objects, claim.Digest) {
				f.objects = append(f.objects, claim.Digest)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// entries returns the entries of a session that the log does not have yet.
func (e *eraser) entries(ctx context.Context, s *session, fresh map[int]*found) (list []streams.Erasure, err error) {
	if fresh[s.partition] == nil && !slices.Contains(s.partitions(), s.partition) {
		fresh[s.partition] = &found{}
	}
	for p, f := range fresh {
		for first := true; first || len(f.records) > 0 || len(f.objects) > 0; first = false {
			records, objects := f.records[:min(len(f.records), maxRecords)], f.objects[:min(len(f.objects), maxObjects)]
			f.records, f.objects = f.records[len(records):], f.objects[len(objects):]
			entry := streams.Erasure{Source: s.id.Source, Session: s.id.Session, Partition: p, Records: records, Objects: objects, By: e.by}
			if len(objects) > 0 {
				if entry.Chunks, err = claims.ChunksOf(ctx, e.claims, objects); err != nil {
					return nil, err
				}
			}
			list = append(list, entry)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	if len(s.entries) == 0 {
		if list[0].Found, err = count(ctx, e.js, e.layout, s); err != nil {
			return nil, err
		}
	}
	for i := range list {
		list[i].Found.Records, list[i].Found.Objects = int64(len(list[i].Records)), int64(len(list[i].Objects))
	}
	return list, nil
}
