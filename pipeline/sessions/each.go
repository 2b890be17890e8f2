package sessions

import (
	"context"
	"iter"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline"
	"tributary/pipeline/spill"
)

// defaultMemory is the memory in bytes in which sessions are summed up, about, whatever their number is.
const defaultMemory = 64 << 20

// Steps iterates over the steps of the stored events that q selects, in the order of the stream. An event
// that cannot be read is passed to unreadable and left out. Unless q follows, an end of ctx is an error.
func Steps(ctx context.Context, js jetstream.JetStream, generation string, q pipeline.EventsQuery, unreadable func(error)) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		for e, err := range pipeline.Outlines(ctx, js, generation, q) {
			switch {
			case err != nil && e.Position > 0:
				unreadable(err)
			case !yield(newStep(&e.AgentEventV1), err):
				return
			}
		}
		if err := context.Cause(ctx); err != nil && !q.Follow {
			yield(Step{}, err)
		}
	}
}

// Memory bounds what Each and Stats have in memory.
type Memory struct {
	Bytes int    // about; 0 is defaultMemory
	Dir   string // of temporary files; empty for that of the system
}

func (m Memory) bytes() int {
	if m.Bytes <= 0 {
		return defaultMemory
	}
	return m.Bytes
}

// sessionKey is the key of a session in groups.
func sessionKey(source envelopes.Source, session string) string {
	return string(source) + "\x00" + session
}

// Each passes the fold of each session to visit, in no order, once all steps are read. The steps of
// a session must be in their order. It ends with the first error, of a step or of visit.
//
// The memory is bounded for any number of sessions: those that do not fit are grouped on disk.
func Each(steps iter.Seq2[Step, error], d Division, m Memory, visit func(*Fold) error) error {
	g := spill.Grouper[*Fold, Step]{
		Dir: m.Dir, Limit: m.bytes(),
		New:  func(string) *Fold { return NewFold(d) },
		Add:  func(f *Fold, s *Step) int { return f.addStep(s) },
		Done: func(_ string, f *Fold) error { return visit(f) },
	}
	for s, err := range steps {
		if err == nil {
			err = g.Put(sessionKey(s.Source, s.Session), &s)
		}
		if err != nil {
			_ = g.Close() // the first error counts
			return err
		}
	}
	return g.Finish()
}
