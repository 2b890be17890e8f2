package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// ownership is one period in which this worker owns a partition, and everything in memory about the partition. All of
// it is dropped together when anything is in doubt.
//
// Three goroutines use it: the first runs records through the stages, see [ownership.work]; the committer collects
// the waiting chunk of the outbox between two records; the goroutine of the partition waits for the first, and leaves
// it behind when the normalizer does not return.
type ownership struct {
	p      *partition
	ctx    context.Context // ends with the ownership; its cause is the reason
	cancel context.CancelCauseFunc
	outbox *outbox
	calls  calls
	resources

	// These belong to the working goroutine.
	turn       time.Time  // when it last yielded to other goroutines
	received   []received // records of the present read
	sessions   *sessionCache
	normalizer *normalizer
	resume     streams.Checkpoint // where the ownership began
	erased     streams.Erased     // as of resume
	suspicion  suspicion
}

func newOwnership(ctx context.Context, p *partition, c streams.Checkpoint, sequence uint64, erased streams.Erased) *ownership {
	s := p.stage
	o := &ownership{
		p:         p,
		sessions:  newSessionCache(s.js, p.cell.name, p.number, s.config.SessionBytes/s.config.Topology.Partitions, s.generation.Settings),
		resume:    c,
		erased:    erased,
		suspicion: newSuspicion(c.Tries),
	}
	o.ctx, o.cancel = context.WithCancelCause(ctx)
	encoder := &encoder{stage: s, cell: p.cell, partition: p.number, maxPayload: s.nc.MaxPayload()}
	o.normalizer = &normalizer{
		p: p, ctx: o.ctx, resume: c,
		sessions:  o.sessions,
		histories: events.NewHistories(s.js, p.cell.raw),
		encoder:   encoder,
		calls:     &o.calls,
	}
	o.outbox = &outbox{
		p: p, ctx: o.ctx, fail: o.cancel,
		encoder:    encoder,
		sessions:   o.sessions,
		calls:      &o.calls,
		between:    broker.NewExclusive(),
		sending:    broker.NewExclusive(),
		room:       make(chan struct{}, 1),
		checkpoint: c,
		sequence:   sequence,
		building:   newChunk(1),
		tries:      c.Tries,
	}
	return o
}

// end ends the ownership and returns the number of attempts without progress.
func (o *ownership) end() int {
	o.cancel(nil)
	return o.outbox.end()
}

// resources are the locks and rooms that a goroutine occupies. They are released even if the goroutine is left behind.
type resources struct {
	mu       sync.Mutex
	releases []func()
}

// occupy adds a resource with its release function. The caller calls released instead of release, in reverse order of
// the calls of occupy.
func (r *resources) occupy(release func()) (released func()) {
	once := sync.OnceFunc(release)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releases = append(r.releases, once)
	return func() {
		once()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.releases = r.releases[:len(r.releases)-1]
	}
}

// all returns the release functions of all resources, in the order of the calls of occupy.
func (r *resources) all() []func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.releases)
}
