package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"
)

// workersBucket is the key-value bucket of the heartbeats of all workers of all
// generations. The partitions of each worker follow from it by a rule that all workers
// share, see [assignment].
const workersBucket = "TRIBUTARY_WORKERS"

// How workers are told from dead ones.
const (
	workersTTL       = 10 * time.Second       // of a key that is not written again
	defaultHeartbeat = 700 * time.Millisecond // of [Config]
	aliveBeats       = 5                      // a worker that was not seen for so many heartbeats is dead
	graceBeats       = 3                      // a worker has so many heartbeats to hand a partition over
	leaveBeats       = 15                     // as many has a worker that is drained: it may still store what it has
)

// Worker is the heartbeat of a worker.
type Worker struct {
	ID         string    `json:"-"`          // key in the bucket, without the generation
	Name       string    `json:"name"`       // as in [Config]
	Revision   int       `json:"revision"`   // of its normalizers
	Partitions []int     `json:"partitions"` // that it works on, in their order
	Since      time.Time `json:"since"`      // when it started

	Leaving bool     `json:"leaving,omitzero"` // it is drained
	Hanging []uint64 `json:"hanging,omitzero"` // raw sequences of records from which its normalizer has not returned in time

	Seen time.Time `json:"seen,omitzero"` // when the broker stored the heartbeat, by the broker's clock; set on reading
}

// Silent reports whether the worker is dead, or stalled, at a time by the broker's clock:
// it has missed too many heartbeats of the default interval of [Config]. Other workers take
// over from it.
func (w Worker) Silent(at time.Time) bool { return at.Sub(w.Seen) > aliveBeats*defaultHeartbeat }

// Workers returns the workers of a generation in the order of their ids. A worker that was
// killed is among them for up to 10 seconds.
func Workers(ctx context.Context, js jetstream.JetStream, generation string) ([]Worker, error) {
	stored, err := lastMessages(ctx, js, "KV_"+workersBucket, []string{workerSubject(generation, ">")})
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

// waitingWorkers stands for the generation in the keys of workers that have none to work on: no generation has
// such a name.
const waitingWorkers = "_waiting"

// WaitingWorkers returns the workers that do nothing, because the live generation is of another revision and no replay
// of theirs is to be built.
func WaitingWorkers(ctx context.Context, js jetstream.JetStream) ([]Worker, error) {
	return Workers(ctx, js, waitingWorkers)
}

// readWorker reads a key of the bucket. It returns false for a key that was deleted, or
// that no worker wrote.
func readWorker(generation string, m storedMessage) (Worker, bool) {
	id, ok := strings.CutPrefix(m.Subject, workerSubject(generation, ""))
	var w Worker
	if !ok || len(m.Data) == 0 || json.Unmarshal(m.Data, &w) != nil {
		return Worker{}, false
	}
	w.ID, w.Seen = id, m.Time
	return w, true
}

// workerKey returns the key of a worker of a generation in the bucket.
func workerKey(generation, id string) string { return generation + "." + id }

// workerSubject returns the subject under which the stream of the bucket holds that key.
func workerSubject(generation, id string) string {
	return "$KV." + workersBucket + "." + workerKey(generation, id)
}

// provisionHeartbeats creates a bucket of heartbeats, which expire after ttl.
func provisionHeartbeats(ctx context.Context, js jetstream.JetStream, t Topology, bucket, description string, ttl time.Duration) error {
	return provisionKeyValue(ctx, js, t, jetstream.KeyValueConfig{Bucket: bucket, Description: description, TTL: ttl})
}
