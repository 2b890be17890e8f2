package replay

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// Progress is how much of a generation is done. It is a snapshot while records arrive.
type Progress struct {
	Total       uint64 `json:"records_total"` // raw records of the generation that have not expired
	Done        uint64 `json:"records_done"`
	CaughtUp    bool   `json:"caught_up"` // every record is done
	Events      uint64 `json:"events"`
	DeadLetters uint64 `json:"dead_letters"`
	Workers     int    `json:"workers"` // live workers that work on it
}

// State returns the state of generation g with this progress.
func (p *Progress) State(g *streams.Generation) streams.State {
	if p.CaughtUp && g.State == streams.StateReplaying {
		return streams.StateReady
	}
	return g.State
}

// ReadProgress reads the progress of a generation, of any revision.
func ReadProgress(ctx context.Context, js jetstream.JetStream, g streams.Generation) (Progress, error) {
	var p Progress
	t, err := streams.StoredTopology(ctx, js, g.Name)
	if err != nil {
		return p, err
	}
	g.Layout = t.Layout()
	if p.Total, err = countRaw(ctx, js, g); err != nil {
		return p, err
	}
	lag, err := readLag(ctx, js, g, t.Partitions)
	if err != nil {
		return p, err
	}
	p.Done, p.CaughtUp = p.Total-min(lag, p.Total), lag == 0
	if p.Events, err = streams.CountInCells(ctx, js, g, streams.EventsOf); err != nil {
		return p, err
	}
	if p.DeadLetters, err = streams.CountInCells(ctx, js, g, streams.DeadLettersOf); err != nil {
		return p, err
	}
	workers, err := streams.Workers(ctx, js, g.Name)
	if err != nil {
		return p, err
	}
	now, err := streams.BrokerTime(ctx, js)
	for _, w := range workers {
		if !w.Silent(now) {
			p.Workers++
		}
	}
	return p, err
}

// countRaw counts the raw records of a generation.
func countRaw(ctx context.Context, js jetstream.JetStream, g streams.Generation) (n uint64, err error) {
	for c := range max(g.Layout.Cells, 1) {
		all := []string{"raw.>"}
		if g.Part.Source != "" || g.Part.Session != "" {
			all = nil
			for _, p := range g.Layout.PartitionsOf(c) {
				all = append(all, g.Part.Filters(p)...)
			}
		}
		more, err := broker.CountFrom(ctx, js, streams.RawStreamOf(c), max(1, g.Part.Sequence), all...)
		if err != nil {
			return 0, err
		}
		n += more
	}
	return n, nil
}

// readLag returns how many records of a generation are not done.
func readLag(ctx context.Context, js jetstream.JetStream, g streams.Generation, partitions int) (uint64, error) {
	checkpoints, err := streams.ReadCheckpoints(ctx, js, g.Name, g.Layout)
	if err != nil {
		return 0, err
	}
	last, err := streams.LastRecords(ctx, js, g, partitions)
	if err != nil {
		return 0, err
	}
	lag := uint64(0)
	for n, c := range checkpoints {
		if last[n] <= c.Raw {
			continue
		}
		left, err := broker.CountFrom(ctx, js, g.Layout.RawStream(n), max(c.Raw+1, g.Part.Sequence), g.Part.Filters(n)...)
		if err != nil {
			return 0, err
		}
		lag += left
	}
	return lag, nil
}
