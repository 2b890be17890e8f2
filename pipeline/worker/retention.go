package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"tributary/pipeline/broker"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// retentionEvery is how often a stage looks for records that expired unread.
const retentionEvery = 10 * time.Second

// watchRetention looks for records that left the raw stream unread, until ctx ends: at once when the first partition is
// acquired, and from then on from time to time. Of the stages of a generation the one with the first partition does so.
func (s *Stage) watchRetention(ctx context.Context) {
	if !s.generation.CountsExpired() {
		return
	}
	tick := time.NewTicker(s.config.retentionEvery)
	defer tick.Stop()
	for first := true; ; {
		select {
		case <-s.acquired:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !s.hasFirst() {
			s.expiredOpen.Store(0) // another stage reports it
			first = true
			continue
		}
		switch err := s.lookForExpired(ctx, first); {
		case err == nil:
			first = false
		case ctx.Err() == nil && !broker.Unavailable(err) && !errors.Is(err, streams.ErrChanged): // else it looks again
			s.config.Logger.Warn("records that expired unread cannot be counted", slog.Any("error", err))
		}
	}
}

// hasFirst reports whether the first partition is assigned to this stage.
func (s *Stage) hasFirst() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.assigned, 0)
}

// lookForExpired counts the records that expired unread, remembers them, and reports those that are new; with all
// those that are not acknowledged.
func (s *Stage) lookForExpired(ctx context.Context, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, broker.RequestTimeout)
	defer cancel()
	g := &s.generation
	before, err := replay.ReadExpiredRecord(ctx, s.js, g)
	if err != nil {
		return err
	}
	next, err := before.Next(ctx, s.js, g)
	if err != nil {
		return err
	}
	if next.Newer(before) {
		kv, err := s.js.KeyValue(ctx, streams.ControlBucket)
		if err != nil {
			return err
		}
		if err := next.Store(ctx, kv, g); err != nil {
			return err
		}
	}
	open := uint64(0)
	for i, c := range next.Cells {
		found := c.Records - min(c.Records, before.Cells[i].Records)
		s.telemetry.count(ctx, s.telemetry.expired, int(found))
		e := replay.Expired{Generation: g.Name, Stream: streams.RawStreamOf(i), Records: c.Records, Acknowledged: c.Acknowledged, Least: c.Least, From: c.From, To: c.To}
		open += e.Open()
		if found > 0 || all && e.Open() > 0 {
			s.config.Logger.Error(expiredText, slog.String("generation", g.Name), slog.String("stream", e.Stream),
				slog.Uint64("records", found), slog.Uint64("unacknowledged", e.Open()), slog.Bool("at_least", e.Least), slog.Time("from", e.From), slog.Time("to", e.To))
		}
	}
	s.expiredOpen.Store(int64(open))
	return nil
}

// expiredText is what an operator reads about records that expired unread.
const expiredText = "records left the raw stream before they were read: " + streams.CureExpired

// noteAcquired makes the stage look for records that expired unread.
func (s *Stage) noteAcquired() {
	select {
	case s.acquired <- struct{}{}:
	default:
	}
}

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
