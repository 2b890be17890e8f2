package erasure

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// Entry is the erasure of a session in the log.
type Entry struct {
	Source  envelopes.Source      `json:"source"`
	Session string                `json:"session"`
	Begun   time.Time             `json:"begun"`
	Ended   time.Time             `json:"ended,omitzero"` // zero if the erasure is not finished
	By      string                `json:"by"`             // who erased it last
	Removed streams.ErasureCounts `json:"removed"`        // lower bounds
}

// ID returns the session.
func (e *Entry) ID() events.SessionID { return events.SessionID{Source: e.Source, Session: e.Session} }

// Log returns the erased sessions in the order in which their erasures began.
func Log(ctx context.Context, js jetstream.JetStream) ([]Entry, error) {
	list, err := streams.ReadErasures(ctx, js, streams.AllPartitions)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	ends, err := streams.ReadErasureEnds(ctx, js)
	if err != nil {
		return nil, err
	}
	index := make(map[string]int)
	var entries []Entry
	last := make(map[string]uint64)
	for i := range list {
		e := &list[i]
		at, is := index[e.Name()]
		if !is {
			at = len(entries)
			index[e.Name()] = at
			entries = append(entries, Entry{Source: e.Source, Session: e.Session, Begun: e.At})
		}
		entries[at].By, entries[at].Removed = e.By, plus(entries[at].Removed, e.Found)
		last[e.Name()] = e.Sequence
	}
	for name, at := range index {
		end, is := ends[name]
		if is && end.Through >= last[name] {
			entries[at].Ended = end.At
		}
		entries[at].Removed = most(entries[at].Removed, end.Removed)
	}
	return entries, nil
}

// each applies a function to each number of two counts.
func each(a, b streams.ErasureCounts, of func(a, b int64) int64) streams.ErasureCounts {
	return streams.ErasureCounts{
		Records: of(a.Records, b.Records), Events: of(a.Events, b.Events), DeadLetters: of(a.DeadLetters, b.DeadLetters), States: of(a.States, b.States),
		Summaries: of(a.Summaries, b.Summaries), Titles: of(a.Titles, b.Titles), Objects: of(a.Objects, b.Objects),
	}
}

func plus(a, b streams.ErasureCounts) streams.ErasureCounts {
	return each(a, b, func(a, b int64) int64 { return a + b })
}

func most(a, b streams.ErasureCounts) streams.ErasureCounts {
	return each(a, b, func(a, b int64) int64 { return max(a, b) })
}
