package pipeline

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
)

// Progress is how much of a generation is done. It holds for one moment while records
// arrive.
type Progress struct {
	Total       uint64 `json:"records_total"` // raw records that belong to the generation, as far as they have not expired
	Done        uint64 `json:"records_done"`
	CaughtUp    bool   `json:"caught_up"` // every record is done
	Events      uint64 `json:"events"`
	DeadLetters uint64 `json:"dead_letters"`
	Workers     int    `json:"workers"` // that are alive and work on it
}

// ReadProgress reads the progress of a generation of any revision.
func ReadProgress(ctx context.Context, js jetstream.JetStream, g Generation) (Progress, error) {
	var p Progress
	t, err := storedTopology(ctx, js, g.Name)
	if err != nil {
		return p, err
	}
	g.layout = t.layout()
	if p.Total, err = countRaw(ctx, js, g); err != nil {
		return p, err
	}
	lag, err := readLag(ctx, js, g, t.Partitions)
	if err != nil {
		return p, err
	}
	p.Done, p.CaughtUp = p.Total-min(lag, p.Total), lag == 0
	if p.Events, err = countInCells(ctx, js, g, eventsOf); err != nil {
		return p, err
	}
	if p.DeadLetters, err = countInCells(ctx, js, g, deadLettersOf); err != nil {
		return p, err
	}
	workers, err := Workers(ctx, js, g.Name)
	if err != nil {
		return p, err
	}
	now, err := BrokerTime(ctx, js)
	for _, w := range workers {
		if !w.Silent(now) {
			p.Workers++
		}
	}
	return p, err
}

// countRaw counts the raw records of a generation.
func countRaw(ctx context.Context, js jetstream.JetStream, g Generation) (n uint64, err error) {
	for c := range max(g.layout.Cells, 1) {
		all := []string{"raw.>"}
		if g.Part.Source != "" || g.Part.Session != "" {
			all = nil
			for _, p := range g.layout.partitionsOf(c) {
				all = append(all, g.Part.filters(p)...)
			}
		}
		more, err := countFrom(ctx, js, RawStreamOf(c), max(1, g.Part.Sequence), all...)
		if err != nil {
			return 0, err
		}
		n += more
	}
	return n, nil
}

// readLag returns how many records of a generation are not done.
func readLag(ctx context.Context, js jetstream.JetStream, g Generation, partitions int) (uint64, error) {
	checkpoints, err := readCheckpoints(ctx, js, g.Name, g.layout)
	if err != nil {
		return 0, err
	}
	last, err := lastRecords(ctx, js, g, partitions)
	if err != nil {
		return 0, err
	}
	lag := uint64(0)
	for n, c := range checkpoints {
		if last[n] <= c.Raw {
			continue
		}
		left, err := countFrom(ctx, js, g.layout.rawStream(n), max(c.Raw+1, g.Part.Sequence), g.Part.filters(n)...)
		if err != nil {
			return 0, err
		}
		lag += left
	}
	return lag, nil
}

// readCheckpoints reads the checkpoints of all partitions, from any replica.
func readCheckpoints(ctx context.Context, js jetstream.JetStream, generation string, l Layout) ([]Checkpoint, error) {
	list := make([]Checkpoint, l.Partitions)
	for c, name := range cellNames(generation, max(l.Cells, 1)) {
		stored, err := lastMessages(ctx, js, EventsStream(name), []string{envelopes.CheckpointFilter(name)})
		if err != nil {
			return nil, err
		}
		for _, n := range l.partitionsOf(c) {
			subject := envelopes.CheckpointSubject(name, n)
			m, ok := stored[subject]
			if !ok {
				return nil, fmt.Errorf("%w at %s", errNoCheckpoint, subject)
			}
			if list[n], err = decodeCheckpoint(m.Data, subject); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}
