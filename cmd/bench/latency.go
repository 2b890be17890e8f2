package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/load"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// latency measures floor and worker at each rate.
func (b *bench) latency(ctx context.Context) error {
	for _, rate := range b.flags.rates {
		records, err := load.Immediate(rate * b.flags.seconds)
		if err != nil {
			return err
		}
		l := latency{Rate: rate}
		b.show(fmt.Sprintf("latency at %d records a second: floor", rate))
		if l.Floor, err = b.floorLatency(ctx, records, rate); err != nil {
			return err
		}
		b.show(fmt.Sprintf("latency at %d records a second: worker", rate))
		if l.Worker, err = b.workerLatency(ctx, records, rate); err != nil {
			return err
		}
		b.report.Latency = append(b.report.Latency, l)
		if err := b.reset(ctx); err != nil {
			return err
		}
	}
	return nil
}

// floorLatency measures the floor, whose messages keep the order of the records.
func (b *bench) floorLatency(ctx context.Context, records []core.Record, rate int) (quantiles, error) {
	if _, err := b.newGeneration(ctx); err != nil {
		return quantiles{}, err
	}
	if err := load.CreateFloor(ctx, b.js); err != nil {
		return quantiles{}, err
	}
	consumer, err := b.js.OrderedConsumer(ctx, load.FloorStream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return quantiles{}, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return quantiles{}, err
	}
	defer messages.Stop()
	p, err := b.startFloor(ctx, 0)
	if err != nil {
		return quantiles{}, err
	}
	if err := b.poll(ctx, b.floorReads); err != nil {
		return quantiles{}, errors.Join(err, p.stop())
	}
	sent := b.publish(ctx, records, rate)
	arrived := make([]time.Time, 0, len(records))
	for len(arrived) < len(records) && err == nil {
		if _, err = messages.Next(jetstream.NextContext(ctx)); err == nil {
			arrived = append(arrived, time.Now())
		}
	}
	if err := cmp.Or(err, p.stop()); err != nil {
		return quantiles{}, err
	}
	times := <-sent
	if times.err != nil {
		return quantiles{}, times.err
	}
	waits := make([]time.Duration, len(arrived))
	for i, t := range arrived {
		waits[i] = t.Sub(times.at[i])
	}
	return quantilesOf(waits[len(waits)/10:]), nil
}

// floorReads reports whether the floor has created its consumer of the raw stream.
func (b *bench) floorReads(ctx context.Context) (bool, error) {
	stream, err := b.js.Stream(ctx, streams.RawStream)
	if err != nil {
		return false, err
	}
	return stream.CachedInfo().State.Consumers > 0, nil
}

// workerLatency measures a worker.
func (b *bench) workerLatency(ctx context.Context, records []core.Record, rate int) (quantiles, error) {
	if err := b.reset(ctx); err != nil {
		return quantiles{}, err
	}
	top, err := b.newGeneration(ctx)
	if err != nil {
		return quantiles{}, err
	}
	p, err := b.startWorker(ctx, top, "bench")
	if err != nil {
		return quantiles{}, err
	}
	var waits []time.Duration
	if err = b.poll(ctx, b.owned(top, 1)); err == nil {
		waits, err = b.waits(ctx, top, records, rate, nil)
	}
	if err := cmp.Or(err, p.stop()); err != nil {
		return quantiles{}, err
	}
	return quantilesOf(waits[len(waits)/10:]), nil
}

// takeover kills one of two workers while records arrive.
func (b *bench) takeover(ctx context.Context) error {
	const rate = 200
	b.show("takeover: starts two workers")
	top, err := b.newGeneration(ctx)
	if err != nil {
		return err
	}
	first, err := b.startWorker(ctx, top, "first")
	if err != nil {
		return err
	}
	second, err := b.startWorker(ctx, top, "second")
	if err != nil {
		return errors.Join(err, first.stop())
	}
	records, err := load.Immediate(rate * b.flags.seconds)
	if err == nil {
		err = b.poll(ctx, b.owned(top, 2))
	}
	killed := make(chan struct{})
	kill := sync.OnceFunc(func() { first.kill(); close(killed) })
	var waits []time.Duration
	if err == nil {
		waits, err = b.waits(ctx, top, records, rate, kill)
	}
	kill() // unless it was called
	<-killed
	if err := cmp.Or(err, second.stop()); err != nil {
		return err
	}
	b.report.Takeover = slices.Max(waits).Seconds()
	return nil
}

// owned returns a condition: this many workers own the partitions.
func (b *bench) owned(top streams.Topology, workers int) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		s, err := replay.ReadStatus(ctx, b.js, top)
		if err != nil {
			return false, err
		}
		owners := make(map[string]bool)
		for _, p := range s.Partitions {
			if p.Worker == "" {
				return false, nil
			}
			owners[p.Worker] = true
		}
		return len(owners) >= min(workers, top.Partitions), nil
	}
}

// poll waits for a condition.
func (b *bench) poll(ctx context.Context, condition func(context.Context) (bool, error)) error {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the process is not ready after a minute"))
	defer cancel()
	for {
		switch done, err := condition(ctx); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case done || err != nil:
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// published has the time at which each record was published.
type published struct {
	at  []time.Time
	err error
}

// publish publishes records at a steady rate, on its own connection.
func (b *bench) publish(ctx context.Context, sent []core.Record, rate int) <-chan published {
	done := make(chan published, 1)
	go func() {
		var p published
		defer func() { done <- p }()
		tick := time.NewTicker(max(time.Millisecond, time.Second/time.Duration(rate)))
		defer tick.Stop()
		for began := time.Now(); len(p.at) < len(sent) && ctx.Err() == nil; <-tick.C {
			// Publish everything that is due: a ticker drops ticks.
			for due := 1 + int(time.Since(began).Seconds()*float64(rate)); len(p.at) < min(due, len(sent)); {
				p.at = append(p.at, time.Now())
				if _, err := b.js.PublishMsgAsync(records.Message(sent[len(p.at)-1])); err != nil {
					p.err = err
					return
				}
			}
		}
		select {
		case <-b.js.PublishAsyncComplete():
		case <-ctx.Done():
			p.err = context.Cause(ctx)
		}
	}()
	return done
}

// waits publishes records into an empty raw stream. It returns how long each record waits for its first event,
// without records that have none. After a tenth of the records it calls during, unless that is nil.
func (b *bench) waits(ctx context.Context, top streams.Topology, records []core.Record, rate int, during func()) ([]time.Duration, error) {
	missing, err := eventCount(records)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(len(records))*time.Second/time.Duration(rate)+time.Minute, errors.New("the events have not arrived within a minute"))
	defer cancel()
	sent := b.publish(ctx, records, rate)
	if during != nil {
		defer time.AfterFunc(time.Duration(len(records))*time.Second/time.Duration(rate)/10, during).Stop()
	}
	arrived := make(map[uint64]time.Time) // by raw sequence
	for e, err := range events.Read(ctx, b.js, top.Generation, events.Query{Follow: true}) {
		if err != nil {
			return nil, err
		}
		if raw := e.Provenance.RawSequence; arrived[raw].IsZero() {
			arrived[raw] = time.Now()
		}
		if missing--; missing == 0 {
			break
		}
	}
	times := <-sent
	if err := cmp.Or(times.err, context.Cause(ctx)); err != nil {
		return nil, err
	}
	var waits []time.Duration
	for i, at := range times.at {
		if t := arrived[uint64(i)+1]; !t.IsZero() {
			waits = append(waits, t.Sub(at))
		}
	}
	return waits, nil
}

// eventCount returns the number of events of records.
func eventCount(records []core.Record) (int, error) {
	n := 0
	states := make(map[events.SessionID]*core.Session)
	for _, r := range records {
		key := events.SessionID{Source: r.Source, Session: r.Session}
		if states[key] == nil {
			states[key] = normalizers.NewSession(r.Source, r.Session)
		}
		result, err := normalizers.Normalize(states[key], r)
		if err != nil {
			return 0, err
		}
		n += len(result.Events)
	}
	return n, nil
}
