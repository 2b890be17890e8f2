package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers"
)

// WorkersBucket is the key-value bucket in which the workers of all generations say that
// they live. Who owns which partition follows from it, by a rule that all of them share:
// it is a matter of speed, never of safety.
const WorkersBucket = "TRIBUTARY_WORKERS"

const (
	workersTTL       = 10 * time.Second       // of a key that is not written again
	defaultHeartbeat = 700 * time.Millisecond // of [Config]
	aliveBeats       = 5                      // a worker that was not seen for so many heartbeats is dead
	graceBeats       = 3                      // for so many its partitions are left to a worker that should hand them over
)

// Worker is what a worker says about itself with every heartbeat.
type Worker struct {
	ID         string    `json:"-"`             // its key in [WorkersBucket], without the generation
	Name       string    `json:"name"`          // as in [Config]
	Revision   int       `json:"revision"`      // of its normalizers
	Partitions []int     `json:"partitions"`    // that it works on, in their order
	Since      time.Time `json:"since"`         // when it started
	Seen       time.Time `json:"seen,omitzero"` // when the broker stored its last heartbeat, by the broker's clock; set on reading
}

// Silent reports whether the worker is taken for dead at a time by the broker's clock:
// it has let too many heartbeats pass, by the interval that [Config] has by default, or
// stands still. Others take over from it.
func (w Worker) Silent(at time.Time) bool { return at.Sub(w.Seen) > aliveBeats*defaultHeartbeat }

// Workers returns the workers of a generation that have written within the life of a key,
// in the order of their ids: one that was killed is among them for up to 10 seconds.
func Workers(ctx context.Context, js jetstream.JetStream, generation string) ([]Worker, error) {
	stored, err := lastMessages(ctx, js, "KV_"+WorkersBucket, []string{workerSubject(generation, ">")})
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	var workers []Worker
	for _, subject := range slices.Sorted(maps.Keys(stored)) {
		if w, ok := readWorker(generation, stored[subject]); ok {
			workers = append(workers, w)
		}
	}
	return workers, nil
}

// readWorker reads a key of the bucket; false for one that was deleted, or that no worker
// wrote.
func readWorker(generation string, m storedMessage) (Worker, bool) {
	id, ok := strings.CutPrefix(m.Subject, workerSubject(generation, ""))
	var w Worker
	if !ok || len(m.Data) == 0 || json.Unmarshal(m.Data, &w) != nil {
		return Worker{}, false
	}
	w.ID, w.Seen = id, m.Time
	return w, true
}

func workerKey(generation, id string) string { return generation + "." + id }
func workerSubject(generation, id string) string {
	return "$KV." + WorkersBucket + "." + workerKey(generation, id)
}

// provisionWorkers makes the bucket of the workers.
func provisionWorkers(ctx context.Context, js jetstream.JetStream, t Topology) error {
	cfg := jetstream.KeyValueConfig{
		Bucket:      WorkersBucket,
		Description: "Heartbeats of the workers of Tributary.",
		Storage:     jetstream.FileStorage, // a bucket in memory would vanish with a restart
		TTL:         workersTTL,
		Replicas:    max(t.Replicas, 1),
	}
	_, err := js.KeyValue(ctx, WorkersBucket)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		_, err = js.CreateKeyValue(ctx, cfg)
	case err == nil && t.Replicas > 0:
		_, err = js.UpdateKeyValue(ctx, cfg)
	}
	return wrap(err, "provision bucket "+WorkersBucket)
}

// fleet is the view that a worker has of the workers of its generation, itself included.
// It belongs to the goroutine of [Stage.Run].
type fleet struct {
	stage *Stage
	kv    jetstream.KeyValue
	since time.Time
	beats int // heartbeats that were written
	seen  map[string]sighting
	blind bool // the last round failed
}

// sighting is the last that was seen of a worker. Only the reader's own clock counts:
// those of the others may be wrong.
type sighting struct {
	Worker
	sequence uint64
	at       time.Time
}

// join opens the bucket.
func (s *Stage) join(ctx context.Context) (*fleet, error) {
	kv, err := s.js.KeyValue(ctx, WorkersBucket)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", WorkersBucket, err)
	}
	return &fleet{stage: s, kv: kv, since: time.Now().UTC(), seen: make(map[string]sighting)}, nil
}

// beat tells the others that this worker lives, and what it works on.
func (f *fleet) beat(ctx context.Context, partitions []int) error {
	cfg := f.stage.config
	data, err := json.Marshal(Worker{Name: cfg.Worker, Revision: normalizers.Revision, Partitions: partitions, Since: f.since})
	if err != nil {
		return fmt.Errorf("encode worker: %w", err)
	}
	if _, err := f.kv.Put(ctx, workerKey(cfg.Topology.Generation, cfg.Member), data); err != nil {
		return fmt.Errorf("write heartbeat: %w", err)
	}
	f.beats++
	return nil
}

// look takes in what the others have written.
func (f *fleet) look(ctx context.Context) error {
	g := f.stage.config.Topology.Generation
	stored, err := lastMessages(ctx, f.stage.js, "KV_"+WorkersBucket, []string{workerSubject(g, ">")})
	if err != nil {
		return fmt.Errorf("read workers: %w", err)
	}
	now := time.Now()
	for id := range f.seen {
		if m, ok := stored[workerSubject(g, id)]; !ok || len(m.Data) == 0 {
			delete(f.seen, id) // it has left
		}
	}
	for _, m := range stored {
		w, ok := readWorker(g, m)
		if !ok {
			continue
		}
		last, known := f.seen[w.ID]
		if !known || m.Sequence != last.sequence {
			f.seen[w.ID] = sighting{w, m.Sequence, now}
		}
	}
	return nil
}

// alive are the ids of the workers that live, in their order. This worker is one of them.
func (f *fleet) alive() []string {
	limit := time.Now().Add(-aliveBeats * f.stage.config.Heartbeat)
	ids := []string{f.stage.config.Member}
	for id, w := range f.seen {
		if id != f.stage.config.Member && w.at.After(limit) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// mine are the partitions that this worker has to work on, in their order; those that
// another one has not handed over yet are in held.
func (f *fleet) mine() (mine []int, held map[int]bool) {
	alive := f.alive()
	held = make(map[int]bool)
	for _, id := range alive {
		if id == f.stage.config.Member {
			continue
		}
		for _, p := range f.seen[id].Partitions {
			held[p] = true
		}
	}
	return assignment(f.stage.config.Topology.Partitions, alive)[f.stage.config.Member], held
}

// leave tells the others at once that this worker has gone.
func (f *fleet) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.stage.config.Heartbeat)
	defer cancel()
	if err := f.kv.Delete(ctx, workerKey(f.stage.config.Topology.Generation, f.stage.config.Member)); err != nil {
		f.stage.config.Logger.Debug("the others find out by themselves that this worker has gone", slog.Any("error", err))
	}
}

// share starts and ends partitions as they are this worker's, until the stage is drained
// (nil), ctx ends (nil), or no partition can be worked on any more (why).
func (s *Stage) share(ctx context.Context, fail context.CancelCauseFunc) error {
	var f *fleet
	if s.config.Member != "" {
		var err error
		if f, err = s.join(ctx); err != nil {
			return err
		}
	}
	turn := time.NewTimer(0)
	defer turn.Stop()
	var waiting map[int]time.Time // for the partitions of others, since when
	for {
		select {
		case <-ctx.Done():
			return s.await()
		case <-s.drain:
			for _, p := range s.list() {
				p.release()
			}
			err := s.await()
			if f != nil {
				f.leave(ctx)
			}
			return err
		case <-s.ended:
		case <-turn.C:
		}
		next := time.Duration(0)
		if f == nil {
			s.assign(ctx, everyPartition(s.config.Topology.Partitions), nil, fail)
		} else {
			waiting, next = f.turn(ctx, waiting, fail)
		}
		if err := s.stopped(); err != nil {
			fail(err)
			return errors.Join(err, s.await())
		}
		if next > 0 {
			turn.Reset(next)
		}
	}
}

// turn is one round of a worker that shares: say that it lives, see who else does, and
// act on it. It returns what it waits for, and when the next round is due.
func (f *fleet) turn(ctx context.Context, waiting map[int]time.Time, fail context.CancelCauseFunc) (map[int]time.Time, time.Duration) {
	s := f.stage
	heartbeat := s.config.Heartbeat
	err := within(ctx, heartbeat, f.look)
	if err == nil {
		err = within(ctx, heartbeat, func(ctx context.Context) error { return f.beat(ctx, s.working()) })
	}
	if err != nil {
		// Who cannot see the others goes on with what it has: it commits nothing that is
		// not its own.
		level := slog.LevelWarn
		if f.blind {
			level = slog.LevelDebug // the first of a row is enough
		}
		f.blind = true
		s.config.Logger.Log(ctx, level, "workers cannot be seen", slog.Any("error", err))
		return waiting, heartbeat
	}
	f.blind = false
	mine, held := f.mine()
	if f.beats < 2 && len(f.alive()) > 1 {
		return waiting, heartbeat // the others have not seen this worker yet
	}
	now := time.Now()
	still := make(map[int]time.Time)
	for _, p := range mine {
		if !held[p] {
			continue
		}
		since, ok := waiting[p]
		if !ok {
			since = now
		}
		if held[p] = now.Sub(since) < graceBeats*heartbeat; held[p] {
			still[p] = since
		}
	}
	s.assign(ctx, mine, held, fail)
	if len(still) > 0 || !slices.Equal(numbers(s.list()), mine) {
		return still, heartbeat / 7
	}
	return still, heartbeat
}

// within does something that shall take no longer than d.
func within(ctx context.Context, d time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return do(ctx)
}

// everyPartition are all partitions, in their order.
func everyPartition(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// working are the partitions that this worker has not ended with, in their order.
func (s *Stage) working() []int {
	return numbers(slices.DeleteFunc(s.list(), func(p *partition) bool {
		over, _ := p.over()
		return over
	}))
}

// numbers are those of partitions.
func numbers(partitions []*partition) []int {
	out := make([]int, len(partitions))
	for i, p := range partitions {
		out[i] = p.number
	}
	return out
}

// assignment gives every partition to one of the workers: to the one with the highest
// hash for it that has not got its share, so that all who see the same workers agree,
// none has more than ceil(partitions / workers), and few partitions move when one comes
// or goes.
func assignment(partitions int, workers []string) map[string][]int {
	out := make(map[string][]int, len(workers))
	share := (partitions + len(workers) - 1) / len(workers)
	type candidate struct {
		id   string
		hash uint64
	}
	for p := range partitions {
		candidates := make([]candidate, len(workers))
		for i, id := range workers {
			h := fnv.New64a()
			fmt.Fprintf(h, "%d/%s", p, id)
			candidates[i] = candidate{id, mix(h.Sum64())}
		}
		slices.SortFunc(candidates, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(b.hash, a.hash), cmp.Compare(a.id, b.id))
		})
		for _, c := range candidates {
			if len(out[c.id]) < share {
				out[c.id] = append(out[c.id], p)
				break
			}
		}
	}
	return out
}

// mix spreads a hash of short inputs over all its bits (the finalizer of MurmurHash3).
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
