package pipeline

import (
	"context"
	"time"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// watchLimits reads from time to time how near the limits are, for the metrics, until ctx ends. Of the stages of a
// generation the one with the first partition does so.
func (s *Stage) watchLimits(ctx context.Context) {
	tick := time.NewTicker(s.config.retentionEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var limits []streams.Limit
		if s.hasFirst() {
			limits = s.readLimits(ctx)
		}
		s.limits.Store(&limits)
	}
}

// readLimits returns none while the broker does not say.
func (s *Stage) readLimits(ctx context.Context) []streams.Limit {
	ctx, cancel := context.WithTimeout(ctx, broker.RequestTimeout)
	defer cancel()
	t := s.config.Topology
	list, err := streams.ReadStreams(ctx, s.js, t)
	if err != nil {
		return nil
	}
	limits, _ := streams.ReadLimits(ctx, s.js, t.Replicas, list)
	return limits
}
