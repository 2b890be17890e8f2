package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"tributary/pipeline/ship"
)

// statusLine is a terminal with a line at its end that can be written anew. What else is
// written, whole lines each time, comes above it.
type statusLine struct {
	w io.Writer

	mu   sync.Mutex
	line string // that is shown; empty for none
}

// clearLine takes what is on the line of the cursor away.
const clearLine = "\r\x1b[K"

func (s *statusLine) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return s.w.Write(p)
	}
	if _, err := io.WriteString(s.w, clearLine+string(p)+s.line); err != nil {
		return 0, err
	}
	return len(p), nil
}

// show shows a line instead of the one before; an empty one clears it.
func (s *statusLine) show(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != line {
		s.line = line
		_, _ = io.WriteString(s.w, clearLine+line) // a terminal that is gone shows nothing
	}
}

// How often the backfill is looked at, and told: on a terminal each time, in a log less
// often, and even less while nothing goes on.
const (
	progressEvery   = time.Second
	progressLogged  = 10 * time.Second
	progressStalled = time.Minute
)

// The rate is measured over the latest samples. It tells how long the rest takes once they
// span a while.
const (
	maxSamples = 30
	minSpan    = 5 * time.Second
)

// progress tells how far a backfill is.
type progress struct {
	summary func() ship.Summary
	verb    string // for what is done
	goesOn  bool   // with what comes later
	log     *slog.Logger

	status  *statusLine // nil where there is no terminal: then it is told in the log
	columns func() int  // of the terminal

	samples []sample      // the latest, at most maxSamples
	worked  time.Duration // without the time in which the broker took nothing
	stalled time.Duration // since when it takes nothing
}

// sample is what was done when.
type sample struct {
	worked time.Duration
	bytes  int64
}

// progress follows the backfill of s until stop, if its user wants to know. Nothing of it
// is left on a terminal then.
func (a *app) progress(ctx context.Context, s *ship.Ship, c ship.Config) (stop func()) {
	if !a.log.Enabled(ctx, slog.LevelInfo) {
		return func() {}
	}
	p := &progress{
		summary: s.Summary, verb: "shipping", goesOn: !c.Once && !c.DryRun,
		log: a.log, columns: func() int { return columns(os.Stderr) },
	}
	if c.DryRun {
		p.verb = "reading"
	}
	if a.config.LogFormat == "text" {
		p.status = a.status
	}
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { p.follow(ctx) })
	return func() {
		cancel()
		following.Wait()
	}
}

// follow tells how far the backfill is until it is over, or ctx ends.
func (p *progress) follow(ctx context.Context) {
	if p.status != nil {
		defer p.status.show("")
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		sum := p.summary()
		if sum.Backfill.Over {
			if p.goesOn {
				p.log.InfoContext(ctx, "all that was there is shipped: following", "files", sum.Files, "records", sum.Records)
			}
			return
		}
		p.take(sum)
		b := sum.Backfill
		switch {
		case p.status != nil:
			p.status.show(ansi.Truncate(p.line(sum), p.columns()-1, "…"))
		case p.stalled > 0 && p.stalled%progressStalled == 0:
			p.log.InfoContext(ctx, "waiting for the broker", "for", p.stalled, "files", b.Files, "files_done", b.Done)
		case p.stalled == 0 && p.worked%progressLogged == 0 && b.Files > 0:
			p.log.InfoContext(ctx, "backfill", "state", p.verb, "files", b.Files, "files_done", b.Done, "bytes", b.Bytes, "bytes_done", b.BytesDone,
				"records", sum.Records, "bytes_per_second", int64(p.rate()), "left", p.left(b))
		}
	}
}

// take takes in what was done since the last time.
func (p *progress) take(sum ship.Summary) {
	if sum.Stalled != nil {
		p.stalled += progressEvery
		return
	}
	p.stalled = 0
	p.worked += progressEvery
	p.samples = append(p.samples, sample{p.worked, sum.Backfill.BytesDone})
	p.samples = p.samples[max(0, len(p.samples)-maxSamples):]
}

// rate is how many bytes per second were done of late, 0 when that is not known.
func (p *progress) rate() float64 {
	if len(p.samples) < 2 {
		return 0
	}
	first, last := p.samples[0], p.samples[len(p.samples)-1]
	return float64(last.bytes-first.bytes) / (last.worked - first.worked).Seconds()
}

// left says how long the rest may take, as far as that can be told: what is packed holds
// more than its bytes on the disk.
func (p *progress) left(b ship.Backfill) string {
	rate := p.rate()
	if rate == 0 || len(p.samples) <= int(minSpan/progressEvery) {
		return "unknown"
	}
	about := "about "
	if b.Packed > 0 {
		about = "more than "
	}
	return about + rough(time.Duration(float64(b.Bytes-b.BytesDone)/rate*float64(time.Second)))
}

// rough is a duration for a person.
func rough(d time.Duration) string {
	if d < 10*time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// line is how far the backfill is, on one line.
func (p *progress) line(sum ship.Summary) string {
	b := sum.Backfill
	far := fmt.Sprintf("%s of %s, %s of %s, %s",
		thousands(int64(b.Done)), plural(b.Files, "file"), size(b.BytesDone), size(b.Bytes), plural(sum.Records, "record"))
	switch {
	case p.stalled > 0 && b.Files == 0:
		return "waiting for the broker for " + rough(p.stalled)
	case p.stalled > 0:
		return "waiting for the broker for " + rough(p.stalled) + ": " + far
	case b.Files == 0:
		return "" // an input, of which nobody knows how long it is
	case len(p.samples) < 2:
		return p.verb + ": " + far
	default:
		return fmt.Sprintf("%s: %s at %s/s, time left: %s", p.verb, far, size(int64(p.rate())), p.left(b))
	}
}
