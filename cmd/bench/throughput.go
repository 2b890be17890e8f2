package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"tributary/pipeline/load"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// throughput lets floor and worker drain the records in turn.
func (b *bench) throughput(ctx context.Context) error {
	b.show("stores the records")
	if _, err := b.newGeneration(ctx); err != nil {
		return err
	}
	if err := load.Publish(ctx, b.js, b.records); err != nil {
		return err
	}
	for i := range b.flags.rounds {
		b.show(fmt.Sprintf("round %d of %d: floor", i+1, b.flags.rounds))
		floor, err := b.drainByFloor(ctx)
		if err != nil {
			return err
		}
		b.show(fmt.Sprintf("round %d of %d: worker", i+1, b.flags.rounds))
		worker, err := b.drainByWorker(ctx)
		if err != nil {
			return err
		}
		b.report.Rounds = append(b.report.Rounds, round{floor, worker, worker.Rate / floor.Rate})
	}
	b.report.sumUp()
	return nil
}

// drainByFloor measures the floor.
func (b *bench) drainByFloor(ctx context.Context) (drain, error) {
	if err := load.CreateFloor(ctx, b.js); err != nil {
		return drain{}, err
	}
	server := b.serverUsage()
	began := time.Now()
	p, err := b.startFloor(ctx, len(b.records))
	if err != nil {
		return drain{}, err
	}
	watch := watchMemory(p.cmd.Process.Pid)
	err = p.wait()
	took, peak := time.Since(began), watch()
	if err != nil {
		return drain{}, err
	}
	d := b.drained(took, p, peak, server)
	return d, b.js.DeleteStream(ctx, load.FloorStream)
}

// drainByWorker measures a worker with its own generation.
func (b *bench) drainByWorker(ctx context.Context) (drain, error) {
	top, err := b.newGeneration(ctx)
	if err != nil {
		return drain{}, err
	}
	server := b.serverUsage()
	began := time.Now()
	p, err := b.startWorker(ctx, top, "bench")
	if err != nil {
		return drain{}, err
	}
	watch := watchMemory(p.cmd.Process.Pid)
	err = replay.CatchUp(ctx, b.js, top)
	took := time.Since(began)
	peak := watch()
	if err := cmp.Or(err, p.stop()); err != nil {
		return drain{}, err
	}
	d := b.drained(took, p, peak, server)
	return d, b.js.DeleteStream(ctx, streams.EventsStream(top.Generation))
}

// drained computes the figures of a drain.
func (b *bench) drained(took time.Duration, p *process, peak int64, before usage) drain {
	per := 100_000 / float64(len(b.records))
	d := drain{
		Seconds: took.Seconds(), Rate: float64(len(b.records)) / took.Seconds(), MB: float64(b.report.Bytes) / 1e6 / took.Seconds(),
		CPU: p.cpu() * per, PeakBytes: peak,
	}
	if after := b.serverUsage(); after.known {
		d.ServerCPU, d.ServerPeakBytes = (after.cpu-before.cpu)*per, after.peak
	}
	return d
}

// serverUsage returns what the server used, zero if bench did not start it.
func (b *bench) serverUsage() usage {
	if b.server == nil {
		return usage{}
	}
	return usageOf(b.server.cmd.Process.Pid)
}

// usage is what a process has used since its start.
type usage struct {
	cpu   float64 // seconds
	peak  int64   // bytes of resident memory
	known bool
}

// watchMemory watches a process. The returned function ends that and returns the peak of its resident memory, 0 if
// unknown.
func watchMemory(pid int) func() int64 {
	stop, peak := make(chan struct{}), make(chan int64)
	go func() {
		look := time.NewTicker(20 * time.Millisecond)
		defer look.Stop()
		var most int64
		for {
			most = max(most, usageOf(pid).peak)
			select {
			case <-look.C:
			case <-stop:
				peak <- max(most, usageOf(pid).peak)
				return
			}
		}
	}()
	return func() int64 { close(stop); return <-peak }
}
