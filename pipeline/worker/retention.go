package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"tributary/pipeline/broker"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// retentionEvery is how often a stage looks for records that expired unread.
const retentionEvery = 10 * time.Second

// retention watches the retention and the limits of the streams. Of all stages of a generation, only the one with the
// first partition looks.
type retention struct {
	stage       *Stage
	acquired    chan struct{}                   // signaled when the first partition is acquired
	limits      atomic.Pointer[[]streams.Limit] // as last read; nil before the first read
	expiredOpen atomic.Int64                    // records that expired unread and are not acknowledged
}

func newRetention(s *Stage) *retention { return &retention{stage: s, acquired: make(chan struct{}, 1)} }

// watchExpired looks for records that left the raw stream unread: once when the first partition is acquired, then at
// intervals until ctx ends.
func (r *retention) watchExpired(ctx context.Context) {
	if !r.stage.generation.CountsExpired() {
		return
	}
	tick := time.NewTicker(r.stage.config.retentionEvery)
	defer tick.Stop()
	for first := true; ; {
		select {
		case <-r.acquired:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !r.stage.assigned.has(0) {
			r.expiredOpen.Store(0) // another stage reports them
			first = true
			continue
		}
		switch err := r.countExpired(ctx, first); {
		case err == nil:
			first = false
		case ctx.Err() == nil && !broker.Unavailable(err) && !errors.Is(err, streams.ErrChanged): // otherwise it tries again
			r.stage.config.Logger.Warn("records that expired unread cannot be counted", slog.Any("error", err))
		}
	}
}

// countExpired counts the records that expired unread, stores the result, and reports the new ones; if all is set,
// also the earlier ones that are not acknowledged.
func (r *retention) countExpired(ctx context.Context, all bool) error {
	s := r.stage
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
	r.expiredOpen.Store(int64(open))
	return nil
}

// expiredText is the log message for records that expired unread.
const expiredText = "records left the raw stream before they were read: " + streams.CureExpired

// look makes the stage look for records that expired unread.
func (r *retention) look() {
	select {
	case r.acquired <- struct{}{}:
	default:
	}
}

// watchLimits reads at intervals how near the limits are, for the metrics, until ctx ends.
func (r *retention) watchLimits(ctx context.Context) {
	tick := time.NewTicker(r.stage.config.retentionEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var limits []streams.Limit
		if r.stage.assigned.has(0) {
			limits = r.readLimits(ctx)
		}
		r.limits.Store(&limits)
	}
}

// readLimits returns nil while the broker does not answer.
func (r *retention) readLimits(ctx context.Context) []streams.Limit {
	ctx, cancel := context.WithTimeout(ctx, broker.RequestTimeout)
	defer cancel()
	t := r.stage.config.Topology
	list, err := streams.ReadStreams(ctx, r.stage.js, t)
	if err != nil {
		return nil
	}
	limits, _ := streams.ReadLimits(ctx, r.stage.js, t.Replicas, list)
	return limits
}
