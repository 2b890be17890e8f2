package streams

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
)

// Assignment assigns every partition to one of the workers: to the one with the highest hash for it that is not full
// yet. So all workers that see the same members agree, none has more than ceil(partitions / workers), and few
// partitions change hands when a worker comes or goes.
func Assignment(partitions int, workers []string) map[string][]int {
	out := make(map[string][]int, len(workers))
	most := (partitions + len(workers) - 1) / len(workers)
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
			if len(out[c.id]) < most {
				out[c.id] = append(out[c.id], p)
				break
			}
		}
	}
	return out
}

// mix spreads a hash of short inputs over all of its bits (the finalizer of MurmurHash3).
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Ranges formats sorted numbers as ranges: 0-3 7.
func Ranges(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if j == i {
			parts = append(parts, strconv.Itoa(list[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, " ")
}

// Limits for records that end workers, see pipeline/worker/poison.go.
const (
	MaxTogether = 3 // more attempts than this: the next record is tried alone, and those after it are committed one at a time
)

// MaxAcquiring is how many partitions a stage acquires at the same time. It acquires all of them after each loss of
// the connection.
const MaxAcquiring = 16

// OwnerName returns the name of the worker in the owner of a checkpoint; an id of the process follows it there.
func OwnerName(owner string) string {
	if process := strings.LastIndexByte(owner, '-'); process >= 0 {
		return owner[:process]
	}
	return owner
}

// WorkersBucket is the key-value bucket with the heartbeats of all workers of all generations. All workers derive
// their partitions from it by the same rule, see [Assignment].
const WorkersBucket = "TRIBUTARY_WORKERS"

// How dead workers are recognized.
const (
	workersTTL       = 10 * time.Second       // of a key that is not written again
	DefaultHeartbeat = 700 * time.Millisecond // of [worker.Config]
	AliveBeats       = 5                      // a worker is dead after so many heartbeats without news
	GraceBeats       = 3                      // heartbeats that a worker has to hand a partition over
	LeaveBeats       = 15                     // the same for a drained worker, which may still store results
)

// Worker is the heartbeat of a worker.
type Worker struct {
	ID         string    `json:"-"`          // key in the bucket, without the generation
	Name       string    `json:"name"`       // as in [worker.Config]
	Revision   int       `json:"revision"`   // of its normalizers
	Partitions []int     `json:"partitions"` // that it works on, in order
	Since      time.Time `json:"since"`      // when it started

	Leaving bool     `json:"leaving,omitzero"` // being drained
	Hanging []uint64 `json:"hanging,omitzero"` // raw sequences of records for which its normalizer has not returned in time

	// Erasures is set if the worker leaves out the sessions in [ErasuresStream]. Workers of earlier versions do not.
	Erasures bool `json:"erasures,omitzero"`

	Seen time.Time `json:"seen,omitzero"` // when the broker stored the heartbeat, by the broker's clock; set on reading
}

// Silent reports whether the worker was dead or stalled at a time by the broker's clock: it missed too many
// heartbeats of the default interval. Other workers take over from it.
func (w Worker) Silent(at time.Time) bool { return at.Sub(w.Seen) > AliveBeats*DefaultHeartbeat }

// Workers returns the workers of a generation, ordered by id. A killed worker is included for up to 10 seconds.
func Workers(ctx context.Context, js jetstream.JetStream, generation string) ([]Worker, error) {
	stored, err := broker.MessagesOf(ctx, js, "KV_"+WorkersBucket, []string{WorkerSubject(generation, ">")})
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	var workers []Worker
	for _, subject := range slices.Sorted(maps.Keys(stored)) {
		if w, ok := ReadWorker(generation, stored[subject]); ok {
			workers = append(workers, w)
		}
	}
	return workers, nil
}

// WaitingName replaces the generation in the keys of workers that have none to work on. No generation can have this
// name.
const WaitingName = "_waiting"

// WaitingWorkers returns the workers that do nothing, because the live generation has another revision and there is
// no replay for them.
func WaitingWorkers(ctx context.Context, js jetstream.JetStream) ([]Worker, error) {
	return Workers(ctx, js, WaitingName)
}

// ReadWorker decodes a key of the bucket. It returns false for a key that was deleted, or that no worker wrote.
func ReadWorker(generation string, m broker.Stored) (Worker, bool) {
	id, ok := strings.CutPrefix(m.Subject, WorkerSubject(generation, ""))
	var w Worker
	if !ok || len(m.Data) == 0 || json.Unmarshal(m.Data, &w) != nil {
		return Worker{}, false
	}
	w.ID, w.Seen = id, m.Time
	return w, true
}

// WorkerKey returns the key of a worker of a generation in the bucket.
func WorkerKey(generation, id string) string { return generation + "." + id }

// WorkerSubject returns the subject of that key in the stream of the bucket.
func WorkerSubject(generation, id string) string {
	return "$KV." + WorkersBucket + "." + WorkerKey(generation, id)
}

// provisionHeartbeats creates a bucket of heartbeats, which expire after ttl.
func provisionHeartbeats(ctx context.Context, js jetstream.JetStream, t Topology, bucket, description string, ttl time.Duration) error {
	return provisionKeyValue(ctx, js, t, jetstream.KeyValueConfig{Bucket: bucket, Description: description, TTL: ttl})
}
