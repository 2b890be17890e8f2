package ship

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"tributary/pipeline/streams"
)

// reportTimeout bounds one heartbeat.
const reportTimeout = 5 * time.Second

// heart reports the state of a Ship to the broker, for operators of many. Nothing depends on it: a heartbeat that
// fails is logged, and shipping goes on.
type heart struct {
	*Ship
	edge    streams.Edge
	refused bool // the broker does not permit heartbeats
}

// startHeartbeats reports until stop is called, which reports the end.
func (s *Ship) startHeartbeats(ctx context.Context) (stop func()) {
	c := s.config
	if c.Host == "" || c.DryRun {
		return func() {}
	}
	state, err := filepath.Abs(c.Offsets)
	if err != nil {
		state = c.Offsets
	}
	h := &heart{Ship: s, edge: streams.Edge{
		ID: streams.EdgeID(c.Host, state), Host: c.Host, Version: c.Version, Follows: !c.Once, Since: time.Now().UTC(),
	}}
	beating, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() { h.run(beating) })
	return func() {
		cancel()
		done.Wait()
		h.edge.Ended = true
		h.beat(context.WithoutCancel(ctx))
	}
}

// run reports at intervals, and soon after the first connection.
func (h *heart) run(ctx context.Context) {
	for {
		wait := h.config.Heartbeat
		if h.publisher.nc.IsConnected() {
			h.beat(ctx)
		} else {
			wait = min(wait, time.Second)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// beat reports the present state, unless the broker is away.
func (h *heart) beat(ctx context.Context) {
	nc := h.publisher.nc
	if h.refused || !nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	err := h.present().Report(ctx, nc)
	switch {
	case err == nil:
		return
	case errors.Is(ctx.Err(), context.Canceled):
		return // the Ship is ending and reports a last time
	}
	h.refused = errors.Is(err, streams.ErrEdgesForbidden)
	h.config.Logger.WarnContext(ctx, "heartbeats cannot be written: tributary doctor does not see this edge; logs are shipped", "error", err)
}

// present returns a heartbeat of the present state.
func (h *heart) present() streams.Edge {
	e, sum := h.edge, h.Summary()
	e.Files, e.Hidden, e.Records, e.Shipped = sum.Files, sum.Hidden, sum.Records, sum.Shipped.UTC()
	e.Behind, e.Bytes, e.Held = sum.Behind.Files, sum.Behind.Bytes, len(sum.Held)
	if !sum.Behind.Oldest.IsZero() {
		e.Oldest = sum.Behind.Oldest.UTC()
	}
	if sum.Unknown != nil {
		e.Unknown, e.UnknownLast = sum.Refused[ReasonUnknownSource], sum.Unknown.Error()
	}
	if sum.Trouble != nil {
		e.Error, e.ErrorAt = sum.Trouble.Error(), sum.TroubleAt.UTC()
	}
	return e
}
