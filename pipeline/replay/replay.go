package replay

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
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// Request describes a generation to build beside the live one.
type Request struct {
	Name     string
	Settings streams.Settings // empty ones are taken from the live generation
	Part     streams.Part     // part of the raw stream to read; a generation of a part cannot be promoted
	Revision int              // of the normalizers; default [normalizers.Revision]
	Expired  bool             // start even if records of the part have expired
}

// Start makes a generation that the workers of its revision build beside the live one, from the whole raw stream or a
// part of it. Start is idempotent: if the settings and the part are those of r, it continues an existing replay, an
// interrupted start, or a retired generation. Anything else it refuses with the difference and the cure, and changes
// nothing.
func Start(ctx context.Context, js jetstream.JetStream, r Request) (streams.Generation, error) {
	if r.Revision == 0 {
		r.Revision = normalizers.Revision
	}
	if err := errors.Join(envelopes.CheckGeneration(r.Name), r.Settings.Validate()); err != nil {
		return streams.Generation{}, fmt.Errorf("%w: %w", streams.ErrTopology, err)
	}
	all, err := streams.ReadGenerations(ctx, js)
	if err != nil {
		return streams.Generation{}, err
	}
	live, err := all.Find(all.Live)
	if err != nil {
		return streams.Generation{}, err
	}
	if all.Cutover.Involves(r.Name) {
		return streams.Generation{}, fmt.Errorf("%w: %s", streams.ErrInterrupted, all.Cutover.Interrupted())
	}
	kv, err := js.KeyValue(ctx, streams.ControlBucket)
	if err != nil {
		return streams.Generation{}, fmt.Errorf("bucket %s: %w", streams.ControlBucket, err)
	}
	g, err := all.Find(r.Name)
	begun := err == nil && g.Marked == streams.StateStarting
	if err == nil && !begun {
		return r.resume(ctx, js, kv, &g)
	}
	record := streams.GenerationRecord{Revision: r.Revision, State: streams.StateReplaying}
	if record.From, err = r.checkExpired(ctx, js); err != nil {
		return streams.Generation{}, err
	}
	t, err := streams.StoredTopology(ctx, js, live.Name)
	if err != nil {
		return streams.Generation{}, err
	}
	t.Generation, t.Settings = r.Name, r.Settings.Or(live.Settings)
	if begun && g.Settings != (streams.Settings{}) {
		if err := r.differs(&g); err != nil {
			return streams.Generation{}, err
		}
		t.Settings = g.Settings
	}
	if err := t.Settings.Conflict(); err != nil {
		return streams.Generation{}, err
	}
	if !begun { // from here on every process sees it
		starting, err := json.Marshal(streams.GenerationRecord{Revision: r.Revision, State: streams.StateStarting})
		if err != nil {
			return streams.Generation{}, fmt.Errorf("encode %s: %w", streams.GenerationPrefix+r.Name, err)
		}
		if err := streams.EnsureKey(ctx, js, kv, streams.GenerationPrefix+r.Name, starting); err != nil {
			return streams.Generation{}, err
		}
	}
	configs := t.EventsConfigs()
	for i := range configs {
		configs[i].FirstSeq = all.Dropped[r.Name] + 1
	}
	if err := streams.ProvisionStreams(ctx, js, t, configs); err != nil {
		return streams.Generation{}, err
	}
	// The creation time of the first stream: an interrupted start that is repeated continues with its stored
	// checkpoints.
	events, err := js.Stream(ctx, configs[0].Name)
	if err != nil {
		return streams.Generation{}, fmt.Errorf("stream %s: %w", configs[0].Name, err)
	}
	record.Started = events.CachedInfo().Created.UTC()
	if err := streams.ProvisionGeneration(ctx, js, kv, t, r.Part, record); err != nil {
		return streams.Generation{}, err
	}
	return streams.ReadGeneration(ctx, js, r.Name)
}

// resume continues an existing generation if r describes it. It first marks the key as starting, so that an
// interrupted start is found again, and as a replay only at the end, so that no worker begins with a part of the
// partitions.
func (r *Request) resume(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, g *streams.Generation) (streams.Generation, error) {
	switch {
	case g.State == streams.StateLive:
		return streams.Generation{}, fmt.Errorf("%w: %s: choose the name of a generation to build beside it", streams.ErrLive, g.Name)
	case g.State == streams.StateDropping:
		return streams.Generation{}, fmt.Errorf("%w: finish it with tributary replay drop %s", streams.ErrDropping, g.Name)
	}
	if err := r.differs(g); err != nil {
		return streams.Generation{}, err
	}
	if !g.Replay || g.Replaces != "" {
		record := g.Record(streams.StateResuming)
		record.Replaces = "" // until the next promotion
		if err := g.Store(ctx, kv, record); err != nil {
			return streams.Generation{}, err
		}
		if err := g.Uncut(ctx, js); err != nil {
			return streams.Generation{}, err
		}
		if err := g.Store(ctx, kv, g.Record(streams.StateReplaying)); err != nil {
			return streams.Generation{}, err
		}
	}
	g.State, g.Replay = streams.StateReplaying, true
	return *g, nil
}

// differs returns an error with the differences between an existing generation and r; nil for none.
func (r *Request) differs(g *streams.Generation) error {
	e := &streams.TopologyError{Name: "generation " + g.Name, Cure: "choose another name, or drop it first: tributary replay drop " + g.Name}
	if g.Revision != r.Revision {
		e.Differences = append(e.Differences, streams.Difference{Setting: "revision", Have: strconv.Itoa(g.Revision), Want: strconv.Itoa(r.Revision)})
	}
	e.Differences = append(e.Differences, g.Settings.Against(r.Settings)...)
	if g.Part != r.Part {
		e.Differences = append(e.Differences, streams.Difference{Setting: "records", Have: g.Part.String(), Want: r.Part.String()})
	}
	if len(e.Differences) > 0 {
		return e
	}
	return nil
}

// checkExpired returns the first sequences of the raw streams; none when no record of the part has expired. Otherwise
// it returns [streams.ErrExpired], unless r accepts that.
func (r *Request) checkExpired(ctx context.Context, js jetstream.JetStream) (from streams.Positions, err error) {
	raws, err := streams.RawStreams(ctx, js)
	if err != nil {
		return nil, err
	}
	if r.Part.Sequence != 0 && len(raws) > 1 {
		return nil, fmt.Errorf("%w: a sequence belongs to one raw stream, but there are %d: select a source, a session, or all records", streams.ErrTopology, len(raws))
	}
	for c, name := range raws {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", name, err)
		}
		state := s.CachedInfo().State
		if state.FirstSeq <= max(1, r.Part.Sequence) {
			continue
		}
		switch erased, err := r.allErased(ctx, js, c, state.FirstSeq); {
		case err != nil:
			return nil, err
		case erased:
			continue
		}
		if !r.Expired {
			return nil, fmt.Errorf("%w: the first record is %d, stored at %s: sessions that began before would be incomplete",
				streams.ErrExpired, state.FirstSeq, envelopes.FormatTime(state.FirstTime))
		}
		from = from.With(c, state.FirstSeq)
	}
	return from, nil
}

// allErased reports whether every record of the part that a raw stream had before a sequence was erased: no session is
// incomplete then.
func (r *Request) allErased(ctx context.Context, js jetstream.JetStream, cell int, first uint64) (bool, error) {
	l, err := streams.ReadLayout(ctx, js)
	if err != nil {
		return false, err
	}
	list, err := streams.ReadErasures(ctx, js, streams.AllPartitions)
	if err != nil {
		return false, err
	}
	erased, begin := streams.ErasedRecords(list, l, cell), max(1, r.Part.Sequence)
	return uint64(erased.Behind(begin-1)-erased.Behind(first-1)) == first-begin, nil
}

// RawSequenceAt returns the sequence of the first raw record stored at or after a time. After the last record, it
// returns the sequence of the next record to come.
func RawSequenceAt(ctx context.Context, js jetstream.JetStream, at time.Time) (uint64, error) {
	s, err := js.Stream(ctx, streams.RawStream)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", streams.RawStream, err)
	}
	consumer, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &at,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, HeadersOnly: true, InactiveThreshold: 5 * time.Second,
	})
	if err != nil {
		return 0, fmt.Errorf("find a record by its time: %w", err)
	}
	info := consumer.CachedInfo()
	defer func() { _ = s.DeleteConsumer(context.WithoutCancel(ctx), info.Name) }() // otherwise it expires by itself
	if info.NumPending == 0 {
		return s.CachedInfo().State.LastSeq + 1, nil
	}
	m, err := consumer.Next(jetstream.FetchMaxWait(broker.RequestTimeout))
	if err != nil {
		return 0, fmt.Errorf("find a record by its time: %w", err)
	}
	meta, err := m.Metadata()
	if err != nil {
		return 0, err
	}
	return meta.Sequence.Stream, nil
}

// droppedMargin exceeds the number of messages that may be on their way to a stream while it is removed.
const droppedMargin = 1 << 20

// Drop removes the streams of a generation that is not live (events, dead letters, states, checkpoints, records of
// sessions) and then its keys. It is idempotent: running it again finishes an interrupted drop.
//
// The name may be used again. A new stream of the name begins behind the sequences of the old one, because a late
// commit of a stopped worker expects a sequence that the new stream must never have.
func Drop(ctx context.Context, js jetstream.JetStream, name string) error {
	all, err := streams.ReadGenerations(ctx, js)
	if err != nil {
		return err
	}
	kv, err := js.KeyValue(ctx, streams.ControlBucket)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", streams.ControlBucket, err)
	}
	l, err := streams.ReadLayout(ctx, js)
	if err != nil {
		return err
	}
	cells := streams.CellNames(name, l.Cells)
	g, err := all.Find(name)
	switch {
	case all.Cutover.Involves(name):
		return fmt.Errorf("%w: %s", streams.ErrInterrupted, all.Cutover.Interrupted())
	case err == nil && g.State == streams.StateLive:
		return fmt.Errorf("%w: %s: promote another generation first: tributary replay promote NAME", streams.ErrLive, name)
	case err == nil:
		if err := g.Store(ctx, kv, g.Record(streams.StateDropping)); err != nil { // from here on no worker works on it
			return err
		}
	case leftOver(ctx, js, name, cells): // left by an interrupted start of an earlier version
	case all.Dropped[name] > 0:
		return nil // dropped by a command whose last answer was lost
	default:
		return err
	}
	if err := dropStreams(ctx, js, kv, name, cells, all.Dropped[name]); err != nil {
		return err
	}
	if err := js.DeleteStream(ctx, streams.SummariesStream(name)); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("remove stream %s: %w", streams.SummariesStream(name), err)
	}
	for _, key := range []string{expiredPrefix + name, streams.SettingsPrefix + name, streams.GenerationPrefix + name} { // the key of the generation comes last: until then the drop is found again
		if err := kv.Purge(ctx, key); err != nil {
			return fmt.Errorf("remove %s of bucket %s: %w", key, streams.ControlBucket, err)
		}
	}
	return nil
}

// leftOver reports whether settings or streams of a generation exist without its key.
func leftOver(ctx context.Context, js jetstream.JetStream, name string, cells []string) bool {
	if _, err := streams.ReadControl(ctx, js, streams.SettingsPrefix+name); err == nil {
		return true
	}
	return slices.ContainsFunc(cells, func(cell string) bool {
		_, err := js.Stream(ctx, streams.EventsStream(cell))
		return err == nil
	})
}

// dropStreams removes the events streams of the cells of a generation. It first stores the sequence behind which new
// streams of the name begin, at least least, the number stored by an interrupted drop.
func dropStreams(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, name string, cells []string, least uint64) error {
	var there []string
	last := uint64(0)
	for _, cell := range cells {
		n, err := broker.LastSequence(ctx, js, streams.EventsStream(cell))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", streams.EventsStream(cell), err)
		}
		there, last = append(there, streams.EventsStream(cell)), max(last, n)
	}
	if there == nil {
		return nil
	}
	last = max(last+droppedMargin, least) // an interrupted drop has removed some
	if _, err := kv.PutString(ctx, streams.DroppedPrefix+name, strconv.FormatUint(last, 10)); err != nil {
		return fmt.Errorf("write %s of bucket %s: %w", streams.DroppedPrefix+name, streams.ControlBucket, err)
	}
	for _, stream := range there {
		if err := js.DeleteStream(ctx, stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("remove stream %s: %w", stream, err)
		}
	}
	return nil
}
