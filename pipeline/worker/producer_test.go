package worker_test

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
)

// producer ships as many records as it is granted, in small batches.
type producer struct {
	t       *testing.T
	cluster *pipelinetest.Cluster
	total   int               // records
	rewind  int               // how many records it ships again in another life; 0 for all
	sent    pipelinetest.Sent // by it and by machines with logs
	seed    uint64
	lives   int
	end     func() // ends the present life in the middle of its work

	// These belong to the present life.
	next   func() (core.Record, bool) // those behind the window
	window []core.Record              // that may be shipped again
	first  int                        // number of the first of them

	mu      sync.Mutex
	granted int
	shipped int           // in the present life
	changed chan struct{} // closed and replaced when one of them changes
}

func newProducer(t *testing.T, c *pipelinetest.Cluster, plan faultPlan) *producer {
	t.Helper()
	sessions := cmp.Or(plan.sessions, max(10, plan.records/50))
	p := &producer{
		t: t, cluster: c, seed: plan.seed, changed: make(chan struct{}),
		total: plan.records + sessions, rewind: plan.rewind,
	}
	var stop func()
	p.next, stop = iter.Pull(pipelinetest.WorkloadSeq(plan.seed, sessions, plan.records))
	p.live()
	t.Cleanup(func() { p.end(); stop() })
	return p
}

// records returns n records from a number on, which is in the window or right behind it.
func (p *producer) records(from, n int) []core.Record {
	if old := from - p.rewind - p.first; p.rewind > 0 && old > p.rewind {
		p.window, p.first = slices.Clone(p.window[old:]), p.first+old
	}
	for len(p.window) < from-p.first+n {
		r, ok := p.next()
		if !ok {
			panic("more records are granted than there are")
		}
		p.sent.Must(r.Session, r.Data)
		p.window = append(p.window, r)
	}
	return p.window[from-p.first:][:n]
}

// live begins a life: it ships from the beginning, or the last records again, with message ids of
// its own.
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
	p.set(func() {
		p.shipped = max(p.first, p.shipped-cmp.Or(p.rewind, p.shipped))
	})
	go func() {
		defer close(done)
		for {
			granted, shipped, changed := p.now()
			// Large batches only where it is far behind: faults should meet records that arrive steadily.
			n := min(granted-shipped, 1+random.IntN(20+min((granted-shipped)/10, 400)))
			if n == 0 {
				select {
				case <-changed:
					continue
				case <-ctx.Done():
					return
				}
			}
			if pipelinetest.Ship(ctx, js, ids, shipped, p.records(shipped, n)...) != nil {
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
	p.set(func() { p.granted = min(p.granted+n, p.total) })
}

// wait waits until it has shipped what it was granted before, whatever it is granted meanwhile.
func (p *producer) wait() {
	p.t.Helper()
	want, _, _ := p.now()
	limit := time.NewTimer(5 * time.Minute)
	defer limit.Stop()
	for {
		_, shipped, changed := p.now()
		if shipped >= want {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			p.t.Fatalf("%d of %d records are shipped", shipped, want)
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
