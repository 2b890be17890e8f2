package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
)

// Replay describes a generation to build beside the live one.
type Replay struct {
	Name     string
	Settings Settings // those that are empty are the ones of the live generation
	Part     Part     // of the raw stream; a generation of a part cannot be promoted
	Revision int      // of the normalizers; default [normalizers.Revision]
	Expired  bool     // go on although records of the part have expired
}

// StartReplay makes a generation that the workers of its revision build beside the live one,
// from everything that the raw stream has, or a part of it. It is idempotent, and may be run
// again after an interruption: it goes on with a replay that exists, and takes up a retired
// generation again, when its settings and its part are those of r. It refuses anything else
// with the difference and the cure, and changes nothing then.
func StartReplay(ctx context.Context, js jetstream.JetStream, r Replay) (Generation, error) {
	if r.Revision == 0 {
		r.Revision = normalizers.Revision
	}
	if err := errors.Join(envelopes.CheckGeneration(r.Name), r.Settings.validate()); err != nil {
		return Generation{}, fmt.Errorf("%w: %w", errTopology, err)
	}
	all, err := ReadGenerations(ctx, js)
	if err != nil {
		return Generation{}, err
	}
	live, err := all.Find(all.Live)
	if err != nil {
		return Generation{}, err
	}
	if all.Cutover.names(r.Name) {
		return Generation{}, fmt.Errorf("%w: %s", ErrInterrupted, all.Cutover.Interrupted())
	}
	kv, err := js.KeyValue(ctx, controlBucket)
	if err != nil {
		return Generation{}, fmt.Errorf("bucket %s: %w", controlBucket, err)
	}
	g, err := all.Find(r.Name)
	begun := err == nil && g.marked == StateStarting
	if err == nil && !begun {
		return r.resume(ctx, js, kv, &g)
	}
	record := generationRecord{Revision: r.Revision, State: StateReplaying}
	if record.From, err = r.checkExpired(ctx, js); err != nil {
		return Generation{}, err
	}
	t, err := storedTopology(ctx, js, live.Name)
	if err != nil {
		return Generation{}, err
	}
	t.Generation, t.Settings = r.Name, r.Settings.or(live.Settings)
	if begun && g.Settings != (Settings{}) {
		if err := r.differs(&g); err != nil {
			return Generation{}, err
		}
		t.Settings = g.Settings
	}
	if err := t.Settings.conflict(); err != nil {
		return Generation{}, err
	}
	if !begun { // from here on everyone sees it
		starting, err := json.Marshal(generationRecord{Revision: r.Revision, State: StateStarting})
		if err != nil {
			return Generation{}, fmt.Errorf("encode %s: %w", generationPrefix+r.Name, err)
		}
		if err := ensureKey(ctx, kv, generationPrefix+r.Name, starting); err != nil {
			return Generation{}, err
		}
	}
	streams := t.eventsConfigs()
	for i := range streams {
		streams[i].FirstSeq = all.dropped[r.Name] + 1
	}
	if err := provisionStreams(ctx, js, t, streams); err != nil {
		return Generation{}, err
	}
	// The time of the first stream, so that a start that was interrupted, and is repeated, goes on
	// with the checkpoints that it has stored.
	events, err := js.Stream(ctx, streams[0].Name)
	if err != nil {
		return Generation{}, fmt.Errorf("stream %s: %w", streams[0].Name, err)
	}
	record.Started = events.CachedInfo().Created.UTC()
	if err := provisionGeneration(ctx, js, kv, t, r.Part, record); err != nil {
		return Generation{}, err
	}
	return readGeneration(ctx, js, r.Name)
}

// storedTopology returns the topology of a generation as the broker has it. Its Settings are
// empty.
func storedTopology(ctx context.Context, js jetstream.JetStream, generation string) (Topology, error) {
	l, err := readLayout(ctx, js)
	if err != nil {
		return Topology{}, err
	}
	t := Topology{Generation: generation, Partitions: l.Partitions, Cells: l.Cells}
	have, err := streamConfig(ctx, js, EventsStream(generation))
	if err != nil {
		return Topology{}, fmt.Errorf("stream %s: %w", EventsStream(generation), err)
	}
	t.Replicas = have.Replicas
	return t, nil
}

// resume goes on with a generation that exists, if it is the one that r describes. Its key says so before the
// first step, so that a start that is interrupted is found again, and that it is a replay behind the last:
// no worker works on a part of its partitions.
func (r *Replay) resume(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, g *Generation) (Generation, error) {
	switch {
	case g.State == StateLive:
		return Generation{}, fmt.Errorf("%w: %s: choose the name of a generation to build beside it", ErrLive, g.Name)
	case g.State == StateDropping:
		return Generation{}, fmt.Errorf("%w: finish it with tributary replay drop %s", errDropping, g.Name)
	}
	if err := r.differs(g); err != nil {
		return Generation{}, err
	}
	if !g.replay || g.Replaces != "" {
		record := g.record(stateResuming)
		record.Replaces = "" // until it is promoted
		if err := g.store(ctx, kv, record); err != nil {
			return Generation{}, err
		}
		if err := g.uncut(ctx, js); err != nil {
			return Generation{}, err
		}
		if err := g.store(ctx, kv, g.record(StateReplaying)); err != nil {
			return Generation{}, err
		}
	}
	g.State, g.replay = StateReplaying, true
	return *g, nil
}

// differs returns an error with the differences between a generation that exists and r, nil when there are
// none.
func (r *Replay) differs(g *Generation) error {
	e := &topologyError{name: "generation " + g.Name, cure: "choose another name, or drop it first: tributary replay drop " + g.Name}
	if g.Revision != r.Revision {
		e.differences = append(e.differences, difference{"revision", strconv.Itoa(g.Revision), strconv.Itoa(r.Revision)})
	}
	e.differences = append(e.differences, g.Settings.against(r.Settings)...)
	if g.Part != r.Part {
		e.differences = append(e.differences, difference{"records", g.Part.String(), r.Part.String()})
	}
	if len(e.differences) > 0 {
		return e
	}
	return nil
}

// checkExpired returns the first raw sequences that the raw streams have, none when no record of
// the part has expired. The error is [ErrExpired] unless r accepts that.
func (r *Replay) checkExpired(ctx context.Context, js jetstream.JetStream) (from Positions, err error) {
	streams, err := rawStreams(ctx, js)
	if err != nil {
		return nil, err
	}
	if r.Part.Sequence != 0 && len(streams) > 1 {
		return nil, fmt.Errorf("%w: a sequence is of one raw stream, and there are %d: take the records of a source or session, or all", errTopology, len(streams))
	}
	for c, name := range streams {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", name, err)
		}
		state := s.CachedInfo().State
		if state.FirstSeq <= max(1, r.Part.Sequence) {
			continue
		}
		if !r.Expired {
			return nil, fmt.Errorf("%w: the first record is %d, stored at %s: sessions that began before would be incomplete",
				ErrExpired, state.FirstSeq, envelopes.FormatTime(state.FirstTime))
		}
		from = from.With(c, state.FirstSeq)
	}
	return from, nil
}

// RawSequenceAt returns the sequence of the first raw record that was stored at a time or
// later. A time behind the last record gives the sequence of the record that comes next.
func RawSequenceAt(ctx context.Context, js jetstream.JetStream, at time.Time) (uint64, error) {
	s, err := js.Stream(ctx, RawStream)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", RawStream, err)
	}
	consumer, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &at,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, HeadersOnly: true, InactiveThreshold: 5 * time.Second,
	})
	if err != nil {
		return 0, fmt.Errorf("find a record by its time: %w", err)
	}
	info := consumer.CachedInfo()
	defer func() { _ = s.DeleteConsumer(context.WithoutCancel(ctx), info.Name) }() // else it expires by itself
	if info.NumPending == 0 {
		return s.CachedInfo().State.LastSeq + 1, nil
	}
	m, err := consumer.Next(jetstream.FetchMaxWait(requestTimeout))
	if err != nil {
		return 0, fmt.Errorf("find a record by its time: %w", err)
	}
	meta, err := m.Metadata()
	if err != nil {
		return 0, err
	}
	return meta.Sequence.Stream, nil
}

// droppedMargin is more than the messages that may be on their way to a stream while it is
// removed.
const droppedMargin = 1 << 20

// DropGeneration removes the streams of a generation that is not live, with its events, dead
// letters, states, checkpoints and records of sessions, and then its keys. It is idempotent, and may be run again
// after an interruption.
//
// The name may be used again. A stream of the same name begins behind the sequences of the
// one before: a commit that is still on its way from a stopped worker expects a sequence that
// the new stream never has.
func DropGeneration(ctx context.Context, js jetstream.JetStream, name string) error {
	all, err := ReadGenerations(ctx, js)
	if err != nil {
		return err
	}
	kv, err := js.KeyValue(ctx, controlBucket)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", controlBucket, err)
	}
	l, err := readLayout(ctx, js)
	if err != nil {
		return err
	}
	cells := cellNames(name, l.Cells)
	g, err := all.Find(name)
	switch {
	case all.Cutover.names(name):
		return fmt.Errorf("%w: %s", ErrInterrupted, all.Cutover.Interrupted())
	case err == nil && g.State == StateLive:
		return fmt.Errorf("%w: %s: promote another generation first: tributary replay promote NAME", ErrLive, name)
	case err == nil:
		if err := g.store(ctx, kv, g.record(StateDropping)); err != nil { // no worker works on it from here on
			return err
		}
	case leftOver(ctx, js, name, cells): // by a start of an earlier version that was interrupted
	case all.dropped[name] > 0:
		return nil // by a command whose last answer was lost
	default:
		return err
	}
	if err := dropStreams(ctx, js, kv, name, cells, all.dropped[name]); err != nil {
		return err
	}
	if err := js.DeleteStream(ctx, SummariesStream(name)); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("remove stream %s: %w", SummariesStream(name), err)
	}
	for _, key := range []string{expiredPrefix + name, settingsPrefix + name, generationPrefix + name} { // the key of the generation last: until then the drop is found again
		if err := kv.Purge(ctx, key); err != nil {
			return fmt.Errorf("remove %s of bucket %s: %w", key, controlBucket, err)
		}
	}
	return nil
}

// leftOver reports whether there are settings or streams of a generation without a key.
func leftOver(ctx context.Context, js jetstream.JetStream, name string, cells []string) bool {
	if _, err := readControl(ctx, js, settingsPrefix+name); err == nil {
		return true
	}
	return slices.ContainsFunc(cells, func(cell string) bool {
		_, err := js.Stream(ctx, EventsStream(cell))
		return err == nil
	})
}

// dropStreams removes the events streams of the cells of a generation. Before that it notes behind which
// sequence those of the same name begin, which is not below least, that of an interrupted drop.
func dropStreams(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, name string, cells []string, least uint64) error {
	var there []string
	last := uint64(0)
	for _, cell := range cells {
		n, err := lastSequence(ctx, js, EventsStream(cell))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", EventsStream(cell), err)
		}
		there, last = append(there, EventsStream(cell)), max(last, n)
	}
	if there == nil {
		return nil
	}
	last = max(last+droppedMargin, least) // a drop that was interrupted has removed some
	if _, err := kv.PutString(ctx, droppedPrefix+name, strconv.FormatUint(last, 10)); err != nil {
		return fmt.Errorf("write %s of bucket %s: %w", droppedPrefix+name, controlBucket, err)
	}
	for _, stream := range there {
		if err := js.DeleteStream(ctx, stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("remove stream %s: %w", stream, err)
		}
	}
	return nil
}

// cut ends a generation that is no longer live: it stores the checkpoint of each
// partition that has no cut again with the name of the generation that is live now. No commit of the old one
// can succeed after that, and its checkpoints say up to which raw record it goes.
func (g *Generation) cut(ctx context.Context, js jetstream.JetStream, successor string) error {
	return g.setCuts(ctx, js, successor)
}

// uncut makes it possible to work on a retired generation again.
func (g *Generation) uncut(ctx context.Context, js jetstream.JetStream) error {
	return g.setCuts(ctx, js, "")
}

// setCuts sets or removes the cut of every partition, by the fence of the commit protocol.
func (g *Generation) setCuts(ctx context.Context, js jetstream.JetStream, cut string) error {
	t, err := storedTopology(ctx, js, g.Name)
	if err != nil {
		return err
	}
	for p := range t.Partitions {
		for {
			c, sequence, err := readCheckpoint(ctx, js, t.cellName(p), p)
			if err != nil {
				return err
			}
			if (c.Cut == "") == (cut == "") {
				break
			}
			c.Cut, c.Owner, c.Tries = cut, "", 0
			c.Epoch++
			if _, err := c.Store(ctx, js, t.cellName(p), p, sequence); err != nil && !fenced(err) {
				return err
			}
		}
	}
	return nil
}
