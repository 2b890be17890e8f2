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

// maxRecent is the samples over which the rate of events is measured.
const maxRecent = 6

// footer shows on the last line of a terminal what up has done, and how fast.
type footer struct {
	viewed  func() viewed
	ship    progress
	status  *terminal.StatusLine
	columns func() int

	events meter
	passed time.Duration
}

// footer shows the progress of s until stop, if the output is a terminal. stop erases it.
func (u *up) footer(ctx context.Context, s *ship.Ship) (stop func()) {
	if u.status == nil || !terminal.IsTerminal(u.stdout) || u.config.LogFormat != "text" || !u.log.Enabled(ctx, slog.LevelInfo) {
		return func() {}
	}
	f := &footer{
		viewed: u.viewer.viewed, status: u.status, columns: func() int { return terminal.Columns(os.Stderr) },
		ship: progress{summary: s.Summary},
	}
	return inBackground(ctx, f.show)
}

// show shows the footer until ctx ends.
func (f *footer) show(ctx context.Context) {
	defer f.status.Show("")
	for range ticks(ctx, progressEvery) {
		f.status.Show(terminal.Cut(f.line(), f.columns()-1))
	}
}

// line is the next state of the footer.
func (f *footer) line() string {
	n := f.viewed()
	f.passed += progressEvery
	f.events.most = maxRecent
	f.events.add(f.passed, int64(n.events))
	text := n.String()
	if rate := f.events.perSecond(); rate > 0 {
		text += fmt.Sprintf(", %s/s", terminal.Thousands(int64(rate+0.5)))
	}
	sum := f.ship.summary()
	f.ship.measure(sum)
	b := sum.Backfill
	switch {
	case f.ship.stalled > 0:
		text += "; waiting for the broker for " + terminal.Rough(f.ship.stalled)
	case b.Over:
		text += "; following " + terminal.Plural(sum.Files, "file")
	case b.Files > 0:
		text += fmt.Sprintf("; shipping %s of %s, %s of %s", terminal.Thousands(int64(b.Done)), terminal.Plural(b.Files, "file"), terminal.Size(b.BytesDone), terminal.Size(b.Bytes))
		if left := f.ship.left(b); left != unknownTime {
			text += ", " + left + " left"
		}
	}
	return text
}
