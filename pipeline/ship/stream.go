package ship

import (
	"context"
	"errors"

	"tributary/pipeline/ship/offsets"
	"tributary/pipeline/streams"
)

// attach waits for the raw stream and opens the offsets in it. It takes back the offsets of what the stream has lost.
func (s *Ship) attach(ctx context.Context, file *offsets.File) error {
	if s.config.DryRun {
		s.offsets = file.Latest()
		return nil
	}
	state, err := s.publisher.findCells(ctx, false)
	if err != nil {
		return err
	}
	if s.offsets != nil && !s.offsets.Created().Equal(state.Created) {
		file.PutBack(s.offsets)
		s.offsets = nil
	}
	if s.offsets == nil {
		s.openStream(ctx, file, state)
	}
	s.offsets.Disown()
	s.publisher.watched = s.publisher.guards
	for _, g := range s.publisher.guards {
		g.offsets = s.offsets
		err := s.publisher.untilAnswered(ctx, func(attempt context.Context) error {
			return g.check(attempt, func(found finding) error { s.takeBack(ctx, g, found); return nil })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// findCells finds out over how many cells the broker spreads sessions, and makes a guard for each. It returns the
// state of the first raw stream, with the creation time of the youngest. With mayAssume, a client without the right
// to ask assumes one cell.
func (p *publisher) findCells(ctx context.Context, mayAssume bool) (first streams.RawState, err error) {
	for c := 0; c == 0 || c < p.layout.Cells; c++ {
		if c == len(p.guards) {
			p.guards = append(p.guards, &guard{cell: c, nc: p.nc, js: p.js, logger: p.logger})
		}
		var state streams.RawState
		err := p.untilAnswered(ctx, func(ctx context.Context) (err error) {
			if state, err = p.guards[c].state(ctx); mayAssume && errors.Is(err, errNoRight) {
				return nil
			}
			return err
		})
		if err != nil {
			return first, err
		}
		p.guards[c].created = state.Created
		if c == 0 {
			first, p.layout = state, state.Layout
			p.layout.Cells = max(1, p.layout.Cells)
		}
		if state.Created.After(first.Created) {
			first.Created = state.Created
		}
	}
	p.guards = p.guards[:p.layout.Cells]
	return first, nil
}

// openStream opens the offsets in the stream.
func (s *Ship) openStream(ctx context.Context, file *offsets.File, state streams.RawState) {
	var known bool
	if s.offsets, known = file.Open(state.Created); known {
		return
	}
	if before, another := file.Before(); another {
		s.noteLoss(ctx, Loss{New: true}, "stream", streams.RawStream, "before", before, "created", state.Created)
	}
}

// takeBack marks what the stream has lost as unshipped.
func (s *Ship) takeBack(ctx context.Context, g *guard, found finding) {
	files := s.offsets.Rewind(g.cell, found.intact)
	s.noteLoss(ctx, Loss{Acknowledged: found.newest, Intact: found.intact, Files: files},
		"stream", g.stream(), "acknowledged_up_to", found.newest, "intact_up_to", found.intact, "ends_at", found.state.Last, "logs", files)
}

// noteLoss counts a loss and logs it.
func (s *Ship) noteLoss(ctx context.Context, loss Loss, about ...any) {
	s.tally.change(func(sum *Summary) { sum.Losses = append(sum.Losses, loss) })
	log := s.config.Logger.With(about...)
	if loss.New {
		log.WarnContext(ctx, "broker has another raw stream than before: shipping everything to it")
	} else {
		log.WarnContext(ctx, "raw stream has lost records that it had acknowledged: shipping them again, as far as their logs have them")
	}
}

// findCells finds out how the broker spreads sessions over cells, before the first record becomes a message.
func (s *Ship) findCells(ctx context.Context) error {
	if s.config.Input == nil || s.config.DryRun || s.publisher.layout.Cells > 0 {
		return nil
	}
	_, err := s.publisher.findCells(ctx, true)
	return err
}
