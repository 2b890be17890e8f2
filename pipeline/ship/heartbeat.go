package ship

import (
	"context"
	"path/filepath"
	"time"

	"tributary/pipeline/streams"
)

// startHeartbeats reports the state of the Ship to the broker until stop is called, which reports the end.
func (s *Ship) startHeartbeats(ctx context.Context) (stop func()) {
	c := s.config
	if c.Host == "" || c.DryRun {
		return func() {}
	}
	state, err := filepath.Abs(c.Offsets)
	if err != nil {
		state = c.Offsets
	}
	edge := streams.Edge{
		ID: streams.EdgeID(c.Host, state), Host: c.Host, Version: c.Version, Follows: !c.Once, Since: time.Now().UTC(),
	}
	h := &streams.Heartbeats{
		Conn: s.publisher.nc, Interval: c.Heartbeat, Logger: c.Logger,
		Present: func(ended bool) streams.Heartbeat {
			e := present(edge, s.Summary())
			e.Ended = ended
			return e
		},
	}
	return h.Start(ctx)
}

// present returns the heartbeat e with the state of a summary.
func present(e streams.Edge, sum Summary) streams.Edge {
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
