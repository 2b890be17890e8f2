package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/ship"
)

// Intervals of the progress.
const (
	progressEvery   = time.Second      // on a terminal
	progressLogged  = 10 * time.Second // in the log
	progressStalled = time.Minute      // in the log, while the broker is away
)

// The rate of bytes is measured over the latest samples. The time left is unknown until they span
// minSpan.
const (
	maxSamples = 30
	minSpan    = 5 * time.Second
)

// progress reports the progress of a backfill, on a terminal or in the log.
type progress struct {
	summary func() ship.Summary
	verb    string // what ship is doing
	follows bool   // ship follows the logs after the backfill
	log     *slog.Logger

	status  *terminal.StatusLine // nil without a terminal: progress is logged
	columns func() int           // of the terminal

	bytes   meter         // of the files
	worked  time.Duration // without the stalls
	stalled time.Duration // of the present stall; 0 if there is none
}

// meter measures a rate.
type meter struct {
	most    int      // samples that it keeps
	samples []sample // the latest
}

// sample is a count at a time.
type sample struct {
	at    time.Duration
	count int64
}

// add adds a sample.
func (m *meter) add(at time.Duration, count int64) {
	m.samples = append(m.samples, sample{at, count})
	m.samples = m.samples[max(0, len(m.samples)-m.most):]
}

// perSecond is the rate of the latest samples, 0 if it is unknown.
func (m *meter) perSecond() float64 {
	if len(m.samples) < 2 {
		return 0
	}
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	return float64(last.count-first.count) / (last.at - first.at).Seconds()
}

// progress reports the backfill of s until stop, unless the level of the log disables it. stop
// clears the last line of the terminal.
func (a *app) progress(ctx context.Context, s *ship.Ship, c ship.Config) (stop func()) {
	if !a.log.Enabled(ctx, slog.LevelInfo) {
		return func() {}
	}
	p := &progress{
		summary: s.Summary, verb: "shipping", follows: !c.Once && !c.DryRun,
		log: a.log, columns: func() int { return terminal.Columns(os.Stderr) },
	}
	if c.DryRun {
		p.verb = "reading"
	}
	if a.config.LogFormat == "text" {
		p.status = a.status
	}
	return inBackground(ctx, p.report)
}

// report reports the progress until the backfill is over or ctx ends.
func (p *progress) report(ctx context.Context) {
	if p.status != nil {
		defer p.status.Show("")
	}
	for range ticks(ctx, progressEvery) {
		sum := p.summary()
		if sum.Backfill.Over {
			if p.follows {
				done := []any{"files", sum.Files, "records", sum.Records}
				if n := len(sum.Held); n > 0 {
					done = append(done, "files_with_an_unsent_end", n)
				}
				p.log.InfoContext(ctx, "backfill is done: following the logs", done...)
			}
			return
		}
		p.measure(sum)
		if p.status != nil {
			p.status.Show(terminal.Cut(p.line(sum), p.columns()-1))
		} else {
			p.logProgress(ctx, sum)
		}
	}
}

// logProgress logs the progress if its interval has passed.
func (p *progress) logProgress(ctx context.Context, sum ship.Summary) {
	b := sum.Backfill
	switch {
	case p.stalled > 0 && p.stalled%progressStalled == 0:
		p.log.InfoContext(ctx, "waiting for the broker", "for", p.stalled, "files", b.Files, "files_done", b.Done)
	case p.stalled == 0 && p.worked%progressLogged == 0 && b.Files > 0:
		p.log.InfoContext(ctx, "backfill", "state", p.verb, "files", b.Files, "files_done", b.Done, "bytes", b.Bytes, "bytes_done", b.BytesDone,
			"records", sum.Records, "bytes_per_second", int64(p.bytes.perSecond()), "left", p.left(b))
	}
}

// measure adds a sample, or a second of a stall.
func (p *progress) measure(sum ship.Summary) {
	if sum.Stalled != nil {
		p.stalled += progressEvery
		return
	}
	p.stalled = 0
	p.worked += progressEvery
	p.bytes.most = maxSamples
	p.bytes.add(p.worked, sum.Backfill.BytesDone)
}

// unknownTime is the time left while it cannot be estimated.
const unknownTime = "unknown"

// left estimates the time left. Packed logs take more than their size on disk suggests.
func (p *progress) left(b ship.Backfill) string {
	rate := p.bytes.perSecond()
	if rate == 0 || len(p.bytes.samples) <= int(minSpan/progressEvery) {
		return unknownTime
	}
	about := "about "
	if b.Packed > 0 {
		about = "more than "
	}
	return about + terminal.Rough(time.Duration(float64(b.Bytes-b.BytesDone)/rate*float64(time.Second)))
}

// line is the progress on one line.
func (p *progress) line(sum ship.Summary) string {
	b := sum.Backfill
	done := fmt.Sprintf("%s of %s, %s of %s, %s",
		terminal.Thousands(int64(b.Done)), terminal.Plural(b.Files, "file"), terminal.Size(b.BytesDone), terminal.Size(b.Bytes), terminal.Plural(sum.Records, "record"))
	switch {
	case p.stalled > 0 && b.Files == 0:
		return "waiting for the broker for " + terminal.Rough(p.stalled)
	case p.stalled > 0:
		return "waiting for the broker for " + terminal.Rough(p.stalled) + ": " + done
	case b.Files == 0:
		return "" // an input of unknown length
	case len(p.bytes.samples) < 2:
		return p.verb + ": " + done
	default:
		return fmt.Sprintf("%s: %s at %s/s, time left: %s", p.verb, done, terminal.Size(int64(p.bytes.perSecond())), p.left(b))
	}
}
