package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// membership is how a worker sees the workers of its generation, itself included. It belongs to the goroutine of
// [Stage.Run].
//
// Membership decides which worker works on which partition. This matters for speed, never for safety: two workers
// that own the same partition slow each other down, and the fence lets only one of them store anything.
type membership struct {
	stage   *Stage
	kv      jetstream.KeyValue // nil until it is opened
	leaving bool               // the stage is drained
	since   time.Time
	beats   int // heartbeats written
	rest    int // heartbeats until the next read of the others
	seen    map[string]sighting
	awaited map[int]time.Time // partitions that another worker still has to hand over, and since when
	left    map[int]bool      // partitions that another worker released, or that left with it
}

// sighting is the last heartbeat seen of a worker, with the time of this worker's clock: the clocks of others may be
// wrong.
type sighting struct {
	streams.Worker
	sequence uint64
	at       time.Time
}

// coordinate starts and releases partitions as they are assigned to this worker. It returns nil when the stage is
// drained or ctx ends, else the reason why no partition can go on.
func (s *Stage) coordinate(ctx context.Context, fail context.CancelCauseFunc) error {
	m := newMembership(s)
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		s.coordinating.End()
		select {
		case <-ctx.Done():
			return s.assigned.wait()
		case <-s.drain:
			for _, p := range s.assigned.list() {
				p.release()
			}
			err := m.waitForPartitions(ctx)
			m.leave(ctx)
			return err
		case <-s.assigned.ended:
		case <-due.C:
		}
		s.coordinating.Begin()
		next := m.round(ctx, fail)
		if err := s.assigned.stopped(); err != nil {
			fail(err)
			return errors.Join(err, s.assigned.wait())
		}
		if next > 0 {
			due.Reset(next)
		}
	}
}

func newMembership(s *Stage) *membership {
	return &membership{stage: s, since: time.Now().UTC(), seen: make(map[string]sighting), left: make(map[int]bool)}
}

// alone reports whether the stage works on every partition without other workers.
func (m *membership) alone() bool { return m.stage.config.Member == "" }

// waitForPartitions is [assigned.wait] for a stage that is drained. It keeps sending heartbeats, so that other
// workers wait for the unreleased partitions and take over the released ones.
func (m *membership) waitForPartitions(ctx context.Context) error {
	s := m.stage
	ended := make(chan error, 1)
	go func() { ended <- s.assigned.wait() }()
	if m.alone() {
		return <-ended
	}
	m.leaving = true
	beat := time.NewTicker(s.config.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-beat.C:
		case <-s.assigned.ended:
		}
		if err := m.exchange(ctx); err != nil {
			m.logFailure(ctx, err)
		}
	}
}

// round writes a heartbeat, reads those of the others, and assigns partitions accordingly. It returns the time until
// the next round, 0 for never.
func (m *membership) round(ctx context.Context, fail context.CancelCauseFunc) time.Duration {
	s := m.stage
	if m.alone() {
		s.assigned.set(ctx, everyPartition(s.config.Topology.Partitions), nil, func(int) string { return causeStart }, fail)
		return 0
	}
	heartbeat := s.config.Heartbeat
	if err := m.exchange(ctx); err != nil {
		// Keeps the present assignment while membership is unreadable; the fence still
		// protects the partitions.
		m.logFailure(ctx, err)
		s.blind.Store(true)
		if m.kv == nil && errors.Is(err, jetstream.ErrBucketNotFound) {
			fail(err)
		}
		return heartbeat
	}
	s.blind.Store(false)
	alive := m.alive()
	if m.beats < 2 && len(alive) > 1 {
		return heartbeat // the others have not seen this worker yet
	}
	mine := streams.Assignment(s.config.Topology.Partitions, m.able(alive))[s.config.Member]
	before := m.awaited
	awaited := m.await(mine, alive)
	s.assigned.set(ctx, mine, awaited, func(p int) string { return m.cause(p, alive, before) }, fail)
	if len(awaited) > 0 || !slices.Equal(numbers(s.assigned.list()), mine) {
		return heartbeat / 7
	}
	return heartbeat
}

// logFailure counts a failure and logs the first of consecutive ones.
func (m *membership) logFailure(ctx context.Context, err error) {
	t := m.stage.telemetry
	t.count(ctx, t.heartbeatFailures, 1)
	m.stage.config.Logger.WarnContext(ctx, "heartbeats of the workers cannot be exchanged", slog.Any("error", err))
}

// cause returns why a partition assigned to this worker is acquired. awaited holds the partitions that another worker
// had yet to hand over before this round.
func (m *membership) cause(partition int, alive []string, awaited map[int]time.Time) string {
	_, waited := awaited[partition]
	left := m.left[partition]
	delete(m.left, partition)
	switch owned := m.grace(partition, alive) > 0; {
	case waited && !owned, left && !owned:
		return causeHandover
	case owned:
		return causeTakeover
	}
	for id, w := range m.seen {
		if id != m.stage.config.Member && slices.Contains(w.Partitions, partition) {
			return causeTakeover
		}
	}
	return causeStart
}

// workersPerBeat is how many workers a worker may read per heartbeat. Reads grow with the square of the number of
// workers; beyond this number each worker reads less often, so that they grow in proportion.
const workersPerBeat = 16

// readBeats returns the number of heartbeats between two reads of the others.
func (m *membership) readBeats() int { return 1 + max(0, len(m.seen)-1)/workersPerBeat }

// exchange reads the heartbeats of the others, if due, and writes its own.
func (m *membership) exchange(ctx context.Context) error {
	heartbeat := m.stage.config.Heartbeat
	if m.kv == nil {
		if err := Within(ctx, heartbeat, m.open); err != nil {
			return err
		}
	}
	if m.rest--; m.rest <= 0 {
		if err := Within(ctx, heartbeat, m.read); err != nil {
			return err
		}
		m.rest = m.readBeats()
	}
	return Within(ctx, heartbeat, m.write)
}

// open opens the bucket of the workers.
func (m *membership) open(ctx context.Context) (err error) {
	m.kv, err = m.stage.js.KeyValue(ctx, streams.WorkersBucket)
	return broker.Wrap(err, "bucket "+streams.WorkersBucket)
}

// Within runs do with a context that ends after timeout, and returns its error.
func Within(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return broker.NameRequest(do(ctx), "a heartbeat", began)
}

// write writes the heartbeat of this worker.
func (m *membership) write(ctx context.Context) error {
	cfg := m.stage.config
	data, err := json.Marshal(streams.Worker{
		Name: cfg.Worker, Revision: cfg.Revision, Partitions: m.stage.assigned.working(), Since: m.since,
		Leaving: m.leaving, Hanging: m.stage.hanging.list(), Erasures: true,
	})
	if err != nil {
		return fmt.Errorf("encode worker: %w", err)
	}
	if _, err := m.kv.Put(ctx, streams.WorkerKey(cfg.Topology.Generation, cfg.Member), data); err != nil {
		return fmt.Errorf("write heartbeat: %w", err)
	}
	m.beats++
	return nil
}

// read reads the heartbeats of all workers.
func (m *membership) read(ctx context.Context) error {
	g := m.stage.config.Topology.Generation
	stored, err := broker.MessagesOf(ctx, m.stage.js, "KV_"+streams.WorkersBucket, []string{streams.WorkerSubject(g, ">")})
	if err != nil {
		return fmt.Errorf("read workers: %w", err)
	}
	now := time.Now()
	for id := range m.seen {
		if key, ok := stored[streams.WorkerSubject(g, id)]; !ok || len(key.Data) == 0 {
			m.noteReleased(m.seen[id].Partitions, nil)
			delete(m.seen, id) // the worker has left
		}
	}
	for _, key := range stored {
		w, ok := streams.ReadWorker(g, key)
		if !ok {
			continue
		}
		last, known := m.seen[w.ID]
		if !known || key.Sequence != last.sequence {
			m.noteReleased(last.Partitions, w.Partitions)
			m.seen[w.ID] = sighting{w, key.Sequence, now}
		}
	}
	return nil
}

// noteReleased notes the partitions in had that are not in has.
func (m *membership) noteReleased(had, has []int) {
	for _, p := range had {
		m.left[p] = true
	}
	for _, p := range has {
		delete(m.left, p)
	}
}

// alive returns the ids of the live workers, this one included, in order.
func (m *membership) alive() []string {
	beats := streams.AliveBeats + m.readBeats() - 1
	limit := time.Now().Add(-time.Duration(beats) * m.stage.config.Heartbeat)
	ids := []string{m.stage.config.Member}
	for id, w := range m.seen {
		if id != m.stage.config.Member && w.at.After(limit) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// able returns the live workers that partitions are assigned to: those that are neither drained nor have a normalizer
// that does not return. If every one has such a normalizer, it returns those.
func (m *membership) able(alive []string) []string {
	var able, hanging []string
	for _, id := range alive {
		w := m.seen[id].Worker
		if id == m.stage.config.Member {
			w = streams.Worker{Hanging: m.stage.hanging.list()}
		}
		switch {
		case w.Leaving:
		case len(w.Hanging) > 0:
			hanging = append(hanging, id)
		default:
			able = append(able, id)
		}
	}
	if able == nil {
		return hanging
	}
	return able
}

// await returns those of mine that another worker still has to hand over. That worker has a few heartbeats to do so.
func (m *membership) await(mine []int, alive []string) map[int]bool {
	now := time.Now()
	since := make(map[int]time.Time)
	awaited := make(map[int]bool)
	for _, p := range mine {
		beats := m.grace(p, alive)
		if beats == 0 {
			continue
		}
		began, ok := m.awaited[p]
		if !ok {
			began = now
		}
		if now.Sub(began) < time.Duration(beats+m.readBeats()-1)*m.stage.config.Heartbeat {
			since[p], awaited[p] = began, true
		}
	}
	m.awaited = since
	return awaited
}

// grace returns how many heartbeats the other live worker on a partition has to hand it over; 0 when there is no such
// worker.
func (m *membership) grace(partition int, alive []string) int {
	beats := 0
	for _, id := range alive {
		w := m.seen[id]
		switch {
		case id == m.stage.config.Member || !slices.Contains(w.Partitions, partition):
		case w.Leaving:
			beats = max(beats, streams.LeaveBeats)
		default:
			beats = max(beats, streams.GraceBeats)
		}
	}
	return beats
}

// leave deletes the heartbeat of this worker, so that others take over at once.
func (m *membership) leave(ctx context.Context) {
	if m.kv == nil {
		return // alone, or never joined
	}
	cfg := m.stage.config
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Heartbeat)
	defer cancel()
	if err := m.kv.Delete(ctx, streams.WorkerKey(cfg.Topology.Generation, cfg.Member)); err != nil {
		cfg.Logger.Debug("heartbeat cannot be deleted: other workers notice the end of this one when it expires", slog.Any("error", err))
	}
}
