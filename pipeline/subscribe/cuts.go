package subscribe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// cutsPatience is how many checks for the cuts may fail before that is logged.
const cutsPatience = 5

// finish passes the rest of a retired generation. It returns the generation that is live afterwards, and the raw
// records up to which no event is to be passed again. If the live one is the generation of the cursor, its promotion
// was rolled back, and it continues.
func (s *Subscription) finish(ctx context.Context) (live string, cuts []uint64, err error) {
	quiet := cutsPatience * s.config.Poll
	for logged := time.Now(); ; {
		live, err = streams.LiveGeneration(ctx, s.js)
		if live == s.cursor.Generation || err != nil {
			return live, nil, err
		}
		cuts, missing, err := streams.Cuts(ctx, s.js, s.cursor.Generation)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return "", nil, fmt.Errorf("%w: %s, before its last events were passed: set Change to %s to begin with the live generation", ErrDropped, s.cursor.Generation, Rebuild)
		case err != nil:
			return "", nil, err
		case len(missing) == 0:
			retired, err := s.passRest(ctx, cuts)
			switch {
			case errors.Is(err, events.ErrWentBack):
				if err := s.goBack(ctx); err != nil {
					return "", nil, err
				}
			case retired, err != nil:
				return live, s.passed(cuts), err
			default:
				s.cursor.Cuts = s.passed(cuts)
			}
		case time.Since(logged) >= quiet:
			s.logUncut(ctx, live, missing)
			logged, quiet = time.Now(), min(2*quiet, maxBackoff)
		}
		if err := s.pause(ctx, s.config.Poll); err != nil {
			return "", nil, err
		}
	}
}

// logUncut logs what the subscription waits for, with the cure.
func (s *Subscription) logUncut(ctx context.Context, live string, missing []int) {
	cure, err := streams.CutsCure(ctx, s.js, s.cursor.Generation)
	if err != nil {
		cure = fmt.Sprintf("tributary doctor shows the reason, which cannot be read here: %v", err)
	}
	s.log.WarnContext(ctx, "another generation is live, but the previous one is not retired yet: waiting for its cuts",
		slog.String("generation", s.cursor.Generation), slog.String("live", live),
		slog.String("partitions_without_cut", streams.Ranges(missing)), slog.String("cure", cure))
}

// passRest passes the existing events up to the cuts. It reports whether the generation is still retired afterwards.
func (s *Subscription) passRest(ctx context.Context, cuts []uint64) (retired bool, err error) {
	s.upTo = cuts
	defer func() { s.upTo, s.held = nil, nil }()
	r := s.read(ctx, false)
	defer r.close()
	for {
		if broker.Closed(s.drain) {
			return false, errDrained
		}
		select {
		case a, more := <-r.arrivals:
			switch {
			case !more && ctx.Err() != nil:
				return false, context.Cause(ctx)
			case !more:
				now, missing, err := streams.Cuts(ctx, s.js, s.cursor.Generation)
				return len(missing) == 0 && slices.Equal(now, cuts), err
			}
			if err := s.pass(ctx, r, a, 1); err != nil {
				return false, err
			}
		case <-s.drain:
			return false, errDrained
		}
	}
}

// behindCut reports whether an event of a retired generation belongs to a record behind the cut: the record was
// stored in part, or the generation continues. The next generation has the whole record.
func (p *progress) behindCut(e *events.Event) bool {
	n := e.Provenance.Partition
	return n >= 0 && n < len(p.upTo) && e.Provenance.RawSequence > p.upTo[n]
}

// hold keeps the progress before an event behind a cut, because it counts if the generation continues.
func (p *progress) hold(e *events.Event) {
	if p.held.In(e.Cell) == 0 {
		p.held = p.held.With(e.Cell, e.Position)
	}
}

// passed returns the raw records up to which events are passed once those up to the cuts are. The cut of a generation
// that was live for a moment may be behind the cut of the previous one.
func (p *progress) passed(cuts []uint64) []uint64 {
	for n := range min(len(cuts), len(p.cursor.Cuts)) {
		cuts[n] = max(cuts[n], p.cursor.Cuts[n])
	}
	return cuts
}
