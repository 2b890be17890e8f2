package erasure

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/states"
	"tributary/pipeline/streams"
)

// fenceAll makes the erasures count in the partitions of the sessions.
func (e *eraser) fenceAll(ctx context.Context, g *streams.Generation) error {
	for _, p := range e.partitions() {
		if err := e.fence(ctx, g, p); err != nil {
			return err
		}
	}
	return nil
}

// partitions returns the partitions in which a session has entries in the log.
func (e *eraser) partitions() (list []int) {
	for _, s := range e.sessions {
		list = append(list, s.partitions()...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// removeFrom removes the sessions from a generation: first their events, dead letters and states; then, with another
// fence, their states in archives, where a worker may have moved them in between; at last their summaries.
func (e *eraser) removeFrom(ctx context.Context, g *streams.Generation) error {
	if err := e.fenceAll(ctx, g); err != nil { // again, because the generation may have been started meanwhile
		return err
	}
	for _, s := range e.sessions {
		if err := e.removeStored(ctx, g, s); err != nil {
			return err
		}
	}
	for _, p := range e.partitions() {
		if err := e.removeArchived(ctx, g, p); err != nil {
			return err
		}
	}
	var all []events.SessionID
	for _, s := range e.sessions {
		all = append(all, s.id)
	}
	removed, err := summaries.Erase(ctx, e.js, g.Name, all)
	for i, s := range e.sessions {
		s.removed.Summaries += removed[i]
	}
	return err
}

// fenceTries bounds how often a worker may be faster.
const fenceTries = 1000

// change changes a checkpoint that is stored at a sequence. It returns messages to store together with it, and false if
// there is nothing to store.
type change func(c *streams.Checkpoint, sequence uint64) (messages []*nats.Msg, changed bool, err error)

// update changes the checkpoint of a partition, in one batch with the messages of the change. It begins again if a worker
// has stored another checkpoint meanwhile. It is a fence of the commit protocol: the owner can store nothing of what it
// has in memory, and acquires the partition again.
func (e *eraser) update(ctx context.Context, g *streams.Generation, partition int, changing change) error {
	cell := g.CellName(partition)
	for range fenceTries {
		c, stored, err := streams.GetCheckpoint(ctx, e.js, cell, partition)
		if err != nil {
			return err
		}
		next := c // with its owner, epoch and tries: this is no attempt on its records
		next.Since = cmp.Or(c.Since, stored.Sequence)
		messages, changed, err := changing(&next, stored.Sequence)
		if err != nil || !changed {
			return err
		}
		m, err := next.Message(cell, partition, stored.Sequence)
		if err != nil {
			return err
		}
		if _, err = broker.PublishBatch(ctx, e.js.Conn(), append(messages, m)); !broker.Fenced(err) {
			return broker.Wrap(err, fmt.Sprintf("write checkpoint of partition %d", partition))
		}
		if err := broker.Pause(ctx, rand.N(2*time.Millisecond)); err != nil {
			return err
		}
	}
	return fmt.Errorf("partition %d: %w", partition, errBusy)
}

// fence makes the erasures of the log count in a partition of a generation.
func (e *eraser) fence(ctx context.Context, g *streams.Generation, partition int) error {
	list := slices.DeleteFunc(slices.Clone(e.log), func(x streams.Erasure) bool { return x.Partition != partition })
	return e.update(ctx, g, partition, func(c *streams.Checkpoint, sequence uint64) ([]*nats.Msg, bool, error) {
		if list[len(list)-1].Sequence <= c.Erased {
			return nil, false, nil
		}
		if err := e.unlist(ctx, g, partition, list, c, sequence); err != nil {
			return nil, false, err
		}
		*c = c.WithErased(list, g.Origin(g.Layout.Cell(partition)))
		return nil, true, nil
	})
}

// unlist removes the sessions that are erased by a list, and not by the checkpoint yet, from the lists of the checkpoint.
func (e *eraser) unlist(ctx context.Context, g *streams.Generation, partition int, list []streams.Erasure, c *streams.Checkpoint, sequence uint64) error {
	cell, before := g.CellName(partition), streams.ErasedThrough(list, c.Erased)
	subjects := make(map[string]bool)
	for i := range list {
		if _, is := before[list[i].Name()]; !is {
			subjects[envelopes.StateSubject(cell, partition, list[i].Source, list[i].Session)] = true
		}
	}
	newest := broker.Place{Subject: envelopes.CheckpointSubject(cell, partition), Sequence: sequence}
	read := states.Reader(func(subjects []string) (map[string]broker.Stored, error) {
		return broker.MessagesAsOf(ctx, e.js, streams.EventsStream(cell), newest, subjects)
	})
	stored, err := read.States(slices.Sorted(maps.Keys(subjects)), c.ArchivedTo)
	if err != nil {
		return err
	}
	for subject := range subjects {
		gaps, rewritten := slices.Contains(c.Gaps.Subjects, subject), slices.Contains(c.Rewritten.Subjects, subject)
		if state, is := stored[subject]; is {
			if s, err := state.Decode(); err == nil {
				gaps, rewritten = len(s.Gaps()) > 0, len(s.Rewrites()) > 0
			}
		}
		if gaps {
			c.Gaps = c.Gaps.With([]streams.ListChange{{Subject: subject}})
		}
		if rewritten {
			c.Rewritten = c.Rewritten.With([]streams.ListChange{{Subject: subject}})
		}
	}
	return nil
}

// removeStored removes the events, dead letters and states of a session. Before, it stores the positions of the events
// for readers, see [events.ErasedMessages].
func (e *eraser) removeStored(ctx context.Context, g *streams.Generation, s *session) error {
	own := g.CellName(s.partition)
	positions, err := eventPositions(ctx, e.js, own, s.id)
	if err != nil {
		return err
	}
	holes, err := events.ErasedMessages(own, positions)
	if err != nil {
		return err
	}
	for _, m := range holes {
		if _, err := e.js.PublishMsg(ctx, m); err != nil {
			return fmt.Errorf("write stream %s: %w", streams.EventsStream(own), err)
		}
	}
	state := envelopes.SessionStateFilter(own, s.id.Source, s.id.Session)
	removals := []removal{
		{&s.removed.Events, own, envelopes.EventFilter(own, s.id.Source, s.id.Session, "")},
		{&s.removed.DeadLetters, own, envelopes.DeadLetterFilter(own, s.id.Source, s.id.Session)},
		{&s.removed.States, own, state},
		{&s.removed.States, own, envelopes.ChangeSubject(state)},
	}
	for _, p := range s.partitions() { // dead letters of records in a wrong partition, or with headers that contradict their subject
		cell := g.CellName(p)
		subject := envelopes.PartitionSubject(p, s.id.Source, s.id.Session)
		removals = append(removals, removal{&s.removed.DeadLetters, cell, envelopes.DeadLetterFilter(cell, envelopes.UnknownSource, subject)})
	}
	for _, r := range removals {
		n, err := broker.Purge(ctx, e.js, streams.EventsStream(r.cell), r.filter, 0)
		if err != nil {
			return err
		}
		*r.n += int64(n)
	}
	return nil
}

// removal is a subject of the events stream of a cell whose messages are removed and counted.
type removal struct {
	n      *int64
	cell   string
	filter string
}

// archivesTogether is how many archives one batch rewrites, of a megabyte at most each.
const archivesTogether = 4

// removeArchived removes the states of the sessions from the archives of a partition. Its fence keeps workers from
// moving one there afterwards.
func (e *eraser) removeArchived(ctx context.Context, g *streams.Generation, partition int) error {
	cell := g.CellName(partition)
	inside := make(map[string]map[string]*session) // by the subject of their archive and their names
	for _, s := range e.sessions {
		if s.partition != partition {
			continue
		}
		archive, name := envelopes.ArchiveOf(envelopes.StateSubject(cell, partition, s.id.Source, s.id.Session))
		if inside[archive] == nil {
			inside[archive] = make(map[string]*session)
		}
		inside[archive][name] = s
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(inside)), archivesTogether) {
		var removed []*session
		err := e.update(ctx, g, partition, func(*streams.Checkpoint, uint64) (messages []*nats.Msg, changed bool, err error) {
			removed = nil
			for _, archive := range some {
				m, these, err := e.without(ctx, streams.EventsStream(cell), archive, inside[archive])
				if err != nil {
					return nil, false, err
				}
				if m != nil {
					messages, removed = append(messages, m), append(removed, these...)
				}
			}
			return messages, true, nil
		})
		if err != nil {
			return err
		}
		for _, s := range removed {
			s.removed.States++
		}
	}
	return nil
}

// without returns the message of an archive without the states of sessions; nil if the archive has none of them.
func (e *eraser) without(ctx context.Context, stream, archive string, inside map[string]*session) (*nats.Msg, []*session, error) {
	content, err := readArchive(ctx, e.js, stream, archive)
	if err != nil {
		return nil, nil, err
	}
	var removed []*session
	for name, s := range inside {
		if _, is := content[name]; is {
			delete(content, name)
			removed = append(removed, s)
		}
	}
	if removed == nil {
		return nil, nil, nil
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = encoder.Close() }()
	return states.ArchiveMessage(archive, content.Encode(encoder)), removed, nil
}
