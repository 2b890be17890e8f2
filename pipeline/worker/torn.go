package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// A torn batch is one of which the server stored the first messages only. A nats-server without replicas stores a
// batch message by message, and stops when a limit of the account or a disk error refuses one. Checkpoints come last,
// so a torn batch does not count. This file finds its messages when the partition is acquired, behind the fence, and
// mends the stream:
//   - In each batch, a begin message precedes the messages of a partition. A begin message behind the checkpoint
//     belongs to a batch without its checkpoint.
//   - The messages of a partition end where those of another begin. The other partition may already be mended and
//     have gone on: then its begin message and states are replaced, and its events are still there.
//   - A session whose state was stored is complete, because its events precede its state, and the previous state is
//     gone. Its events stay, and its records are skipped ([streams.Checkpoint.Ahead]).
//   - The events and dead letters of all other sessions are removed, and stored again with their states.
//
// A server that restarts continues a torn batch message by message, and leaves out those that a limit still refuses.
// So checkpoints may be stored without messages before them, see [acquisition.checkWhole].

// torn describes what a torn batch stored of a partition.
type torn struct {
	raw      uint64              // last raw sequence of its records
	states   map[string]bool     // sessions with a stored state
	messages map[string][]uint64 // sequences of events and dead letters by session
}

var errMendedByOther = errors.New("acquired by another worker while a torn batch was mended")

// mend looks for a torn batch of the fenced partition, and removes the messages that do not count.
func (a *acquisition) mend(ctx context.Context) error {
	p, s := a.p, a.p.stage
	t, err := a.findTorn(ctx)
	if err != nil {
		return fmt.Errorf("look for a torn batch of partition %d: %w", p.number, err)
	}
	a.mine.Since = 0
	if t == nil {
		return nil // every commit stores a begin message
	}
	// A worker that overtook this one meanwhile may have replaced states of the batch, whose events must stay.
	if _, newest, err := streams.ReadCheckpoint(ctx, s.js, p.cell.name, p.number); err != nil || newest != a.sequence {
		return cmp.Or(err, errMendedByOther)
	}
	var remove []uint64
	for session, list := range t.messages {
		if !t.states[session] {
			remove = append(remove, list...)
		}
	}
	ahead := maps.Clone(a.mine.Ahead)
	for session := range t.states {
		if ahead == nil {
			ahead = make(map[string]uint64)
		}
		ahead[session] = max(ahead[session], t.raw)
	}
	a.mine.Ahead = ahead
	if err := broker.RemoveSequences(ctx, s.js, streams.EventsStream(p.cell.name), remove); err != nil {
		return err
	}
	// From here on the batch is not found again: the next one replaces its begin message.
	if err := a.store(ctx); err != nil {
		return err
	}
	s.telemetry.count(ctx, s.telemetry.torn, 1)
	p.log.Warn("broker stored a part of a batch and not the rest: removing that part and storing the batch again",
		slog.Int("removed", len(remove)), slog.Int("complete_sessions", len(t.states)), slog.Uint64("sequence", a.mine.Raw+1))
	return nil
}

// checkWhole guards against a batch that has its checkpoint but not all of its messages. Once states have changed,
// nothing shows which messages are missing, so the partition must stop.
func (a *acquisition) checkWhole(ctx context.Context) error {
	p, checkpoint := a.p, a.stored
	header, err := nats.DecodeHeadersMsg(checkpoint.Header)
	if err != nil || header.Get(broker.BatchIDHeader) == "" {
		return nil //nolint:nilerr // no batch: the checkpoint was stored alone
	}
	// The messages of a batch have consecutive sequences. The first one that still exists shows whether any behind it
	// are missing.
	before := checkpoint.Sequence - min(batchPlace(header), checkpoint.Sequence)
	stream := streams.EventsStream(p.cell.name)
	first, err := broker.NextStored(ctx, p.stage.js, stream, ">", before+1)
	if err != nil {
		return fmt.Errorf("look at the last batch of partition %d: %w", p.number, err)
	}
	if first.Header.Get(broker.BatchIDHeader) == header.Get(broker.BatchIDHeader) && batchPlace(first.Header) == first.Sequence-before {
		return nil
	}
	_, newest, err := streams.ReadCheckpoint(ctx, p.stage.js, p.cell.name, p.number)
	if err == nil && newest == checkpoint.Sequence { // otherwise another owner has replaced messages of the batch meanwhile, and the fence fails
		return &streams.Fault{Err: fmt.Errorf("%w: the server left out messages of a batch before the checkpoint at message %d of stream %s",
			streams.ErrState, checkpoint.Sequence, stream), Cure: streams.CureReplay}
	}
	return err
}

// findTorn returns what a torn batch stored of the partition between its last checkpoint and the fence; nil when
// there is no torn batch.
func (a *acquisition) findTorn(ctx context.Context) (*torn, error) {
	p, since, fence := a.p, a.mine.Since, a.sequence
	js, stream := p.stage.js, streams.EventsStream(p.cell.name)
	begin, err := broker.LastStored(ctx, js, stream, envelopes.BeginSubject(envelopes.CheckpointSubject(p.cell.name, p.number)))
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && begin.Sequence <= since {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t := &torn{states: make(map[string]bool), messages: make(map[string][]uint64)}
	if t.raw, err = strconv.ParseUint(string(begin.Data), 10, 64); err != nil {
		return nil, fmt.Errorf("message %d of stream %s: %w", begin.Sequence, stream, err)
	}
	id, first := begin.Header.Get(broker.BatchIDHeader), batchPlace(begin.Header)
	for from := begin.Sequence + 1; from < fence; {
		m, err := broker.NextStored(ctx, js, stream, ">", from)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		kind, rest, _ := strings.Cut(m.Subject, ".")
		if m.Sequence >= fence || m.Header.Get(broker.BatchIDHeader) != id || kind == "checkpoints" || !p.has(m.Subject) {
			break // of another partition, whose begin message may be replaced already, or of another batch
		}
		parts := strings.Split(envelopes.StateOf(rest), ".")
		switch kind {
		case "events": // <generation>.<source>.<session>.<type>
			t.add(strings.Join(parts[1:3], "."), m.Sequence)
		case "deadletters": // <generation>.<partition>.<source>.<session>
			t.add(strings.Join(parts[2:4], "."), m.Sequence)
		case "states":
			if batchPlace(m.Header)-first != m.Sequence-begin.Sequence {
				return nil, &streams.Fault{Err: fmt.Errorf("%w: the server left out messages of a batch before the state at message %d of stream %s",
					streams.ErrState, m.Sequence, stream), Cure: streams.CureReplay}
			}
			t.states[strings.Join(parts[2:4], ".")] = true
		}
		from = m.Sequence + 1
	}
	return t, nil
}

// has reports whether a message of the events stream belongs to the partition. The subject of an event names only its
// session.
func (p *partition) has(subject string) bool {
	if a, err := envelopes.ParseEventSubject(subject); err == nil {
		a.Partition = p.number
		return a.InPartition(p.stage.config.Topology.Partitions)
	}
	parts := strings.Split(subject, ".") // <kind>.<generation>.<partition>.<...>
	return len(parts) > 2 && parts[2] == strconv.Itoa(p.number)
}

func (t *torn) add(session string, sequence uint64) {
	t.messages[session] = append(t.messages[session], sequence)
}

// batchPlace returns the number of a message in its batch.
func batchPlace(header nats.Header) uint64 {
	n, _ := strconv.ParseUint(header.Get(broker.BatchSequenceHeader), 10, 64) // the server has read it
	return n
}
