package progress

import (
	"context"
	"fmt"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/ship"
)

// maxRecent is the number of samples that measure the rate of events.
const maxRecent = 6

// Footer shows the progress and the rate of up on the last line of a terminal.
type Footer struct {
	Viewed  func() (text string, events int) // what was printed, in words and as a number of events
	Summary func() ship.Summary
	Status  *terminal.StatusLine
	Columns func() int // of the terminal

	ship   Backfill // measures the progress of ship
	events meter
	passed time.Duration
}

// Start shows the footer until stop, which erases it.
func (f *Footer) Start(ctx context.Context) (stop func()) { return inBackground(ctx, f.show) }

// show shows the footer until ctx ends.
func (f *Footer) show(ctx context.Context) {
	defer f.Status.Show("")
	for range ticks(ctx, every) {
		f.Status.Show(terminal.Cut(f.line(), f.Columns()-1))
	}
}

// line returns the next state of the footer.
func (f *Footer) line() string {
	text, events := f.Viewed()
	f.passed += every
	f.events.most = maxRecent
	f.events.add(f.passed, int64(events))
	if rate := f.events.perSecond(); rate > 0 {
		text += fmt.Sprintf(", %s/s", terminal.Thousands(int64(rate+0.5)))
	}
	sum := f.Summary()
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
