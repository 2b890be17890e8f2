// Package progress shows the progress of ship and up: on the last line of a terminal, or in the log.
package progress

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/ship"
)

// Intervals of reports.
const (
	every           = time.Second      // on a terminal
	logEvery        = 10 * time.Second // in the log
	logStalledEvery = time.Minute      // in the log, while the broker is away
)

// The rate of bytes is measured over the latest samples. The time left is unknown until the samples span minSpan.
const (
	maxSamples = 30
	minSpan    = 5 * time.Second
)

// Backfill reports the progress of a backfill, on a terminal or in the log.
type Backfill struct {
	Summary func() ship.Summary
	Verb    string // what ship does, such as shipping
	Follows bool   // ship follows the logs after the backfill
	Log     *slog.Logger
	Status  *terminal.StatusLine // nil without a terminal: progress is logged
	Columns func() int           // of the terminal

	bytes   meter         // bytes of the files
	worked  time.Duration // without stalls
	stalled time.Duration // of the current stall; 0 for none
}

// meter measures a rate.
type meter struct {
	most    int      // limit of samples
	samples []sample // the latest ones
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

// perSecond returns the rate of the latest samples, 0 if unknown.
func (m *meter) perSecond() float64 {
	if len(m.samples) < 2 {
		return 0
	}
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	return float64(last.count-first.count) / (last.at - first.at).Seconds()
}

// Start reports the progress until the backfill ends or stop, which clears the last line of the terminal.
func (p *Backfill) Start(ctx context.Context) (stop func()) { return inBackground(ctx, p.report) }

// report reports the progress until the backfill or ctx ends.
func (p *Backfill) report(ctx context.Context) {
	defer p.Status.Show("")
	for range ticks(ctx, every) {
		sum := p.Summary()
		if sum.Backfill.Over {
			if p.Follows {
				done := []any{"files", sum.Files, "records", sum.Records}
				if n := len(sum.Held); n > 0 {
					done = append(done, "files_with_an_unsent_end", n)
				}
				p.Log.InfoContext(ctx, "backfill is done: following the logs", done...)
			}
			return
		}
		p.measure(sum)
		if p.Status != nil {
			p.Status.Show(terminal.Cut(p.line(sum), p.Columns()-1))
		} else {
			p.logProgress(ctx, sum)
		}
	}
}

// logProgress logs the progress once per interval.
func (p *Backfill) logProgress(ctx context.Context, sum ship.Summary) {
	b := sum.Backfill
	switch {
	case p.stalled > 0 && p.stalled%logStalledEvery == 0:
		p.Log.InfoContext(ctx, "waiting for the broker", "for", p.stalled, "files", b.Files, "files_done", b.Done)
	case p.stalled == 0 && p.worked%logEvery == 0 && b.Files > 0:
		p.Log.InfoContext(ctx, "backfill", "state", p.Verb, "files", b.Files, "files_done", b.Done, "bytes", b.Bytes, "bytes_done", b.BytesDone,
			"records", sum.Records, "bytes_per_second", int64(p.bytes.perSecond()), "left", p.left(b))
	}
}

// measure adds a sample, or a second to the stall.
func (p *Backfill) measure(sum ship.Summary) {
	if sum.Stalled != nil {
		p.stalled += every
		return
	}
	p.stalled = 0
	p.worked += every
	p.bytes.most = maxSamples
	p.bytes.add(p.worked, sum.Backfill.BytesDone)
}

// unknownTime is the text for an unknown time left.
const unknownTime = "unknown"

// left estimates the time left. Packed logs take longer than their size suggests.
func (p *Backfill) left(b ship.Backfill) string {
	rate := p.bytes.perSecond()
	if rate == 0 || len(p.bytes.samples) <= int(minSpan/every) {
		return unknownTime
	}
	about := "about "
	if b.Packed > 0 {
		about = "more than "
	}
	return about + terminal.Rough(time.Duration(float64(b.Bytes-b.BytesDone)/rate*float64(time.Second)))
}

// line describes the progress on one line.
func (p *Backfill) line(sum ship.Summary) string {
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
		return p.Verb + ": " + done
	default:
		return fmt.Sprintf("%s: %s at %s/s, time left: %s", p.Verb, done, terminal.Size(int64(p.bytes.perSecond())), p.left(b))
	}
}
