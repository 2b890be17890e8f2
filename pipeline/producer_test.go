package pipeline_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"tributary/normalizers"
	"tributary/pipeline/pipelinetest"
)

// producer ships as many records as it is granted, in small batches.
type producer struct {
	t       *testing.T
	cluster *pipelinetest.Cluster
	records []normalizers.Record
	seed    uint64
	lives   int
	end     func() // ends the present life in the middle of its work

	mu      sync.Mutex
	granted int
	shipped int           // in the present life
	changed chan struct{} // closed and replaced when one of them changes
}

func newProducer(t *testing.T, c *pipelinetest.Cluster, plan faultPlan) *producer {
	t.Helper()
	p := &producer{
		t: t, cluster: c, seed: plan.seed, changed: make(chan struct{}),
		records: pipelinetest.Workload(plan.seed, max(10, plan.records/50), plan.records),
	}
	p.live()
	t.Cleanup(func() { p.end() })
	return p
}

// live begins a life: it ships everything from the beginning, with message ids of its own.
func (p *producer) live() {
	p.t.Helper()
	p.lives++
	random := rand.New(rand.NewPCG(p.seed, uint64(p.lives)))
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.t.Context()))
	js := p.cluster.JetStream()
	done := make(chan struct{})
	p.end = func() {
		js.Conn().Close() // with what it has buffered
		cancel()
		<-done
	}
	ids := fmt.Sprintf("life%d", p.lives)
	p.set(func() { p.shipped = 0 })
	go func() {
		defer close(done)
		for {
			granted, shipped, changed := p.now()
			n := min(granted-shipped, 1+random.IntN(20))
			if n == 0 {
				select {
				case <-changed:
					continue
				case <-ctx.Done():
					return
				}
			}
			if pipelinetest.Ship(ctx, js, ids, shipped, p.records[shipped:shipped+n]...) != nil {
				return
			}
			p.set(func() { p.shipped += n })
			pause := time.NewTimer(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
				return
			}
		}
	}()
}

func (p *producer) now() (granted, shipped int, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.granted, p.shipped, p.changed
}

func (p *producer) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// grant allows it to ship n more records.
func (p *producer) grant(n int) {
	p.set(func() { p.granted = min(p.granted+n, len(p.records)) })
}

// wait waits until it has shipped what it was granted.
func (p *producer) wait() {
	p.t.Helper()
	limit := time.NewTimer(5 * time.Minute)
	defer limit.Stop()
	for {
		granted, shipped, changed := p.now()
		if granted == shipped {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			p.t.Fatalf("%d of %d records are shipped", shipped, granted)
		}
	}
}

// die ends it in the middle of its work and begins another life with the first record: it
// has lost its progress, and the server does not know the new message ids.
func (p *producer) die() {
	p.t.Helper()
	p.end()
	p.live()
}
