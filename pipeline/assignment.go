package pipeline

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
)

// assignment assigns every partition to one of the workers: to the one with the highest
// hash for it that is not full yet. So all workers that see the same members agree, none
// has more than ceil(partitions / workers), and few partitions change hands when a worker
// comes or goes.
func assignment(partitions int, workers []string) map[string][]int {
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

// mix spreads a hash of short inputs over all its bits (the finalizer of MurmurHash3).
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
