package progress

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/ship"
)

// passing is a backfill of which a tenth is done each second, except while the broker is away.
type passing struct {
	began      time.Time
	packed     int64
	from, upTo time.Duration // the broker is away
}

func (p passing) summary() ship.Summary {
	const tenth = 10 << 20
	passed := time.Since(p.began)
	var sum ship.Summary
	if passed >= p.from && passed < p.upTo {
		sum.Stalled = errors.New("no broker")
	}
	done := int64((passed - max(0, min(passed, p.upTo)-p.from)) / time.Second)
	if p.upTo == 0 {
		done = int64(passed / time.Second)
	}
	sum.Records = int(1000 * done)
	sum.Backfill = ship.Backfill{Files: 2000, Done: int(200 * done), Bytes: 10 * tenth, BytesDone: tenth * done, Packed: p.packed, Over: done == 10}
	return sum
}

// screen is the output on a terminal.
type screen struct{ bytes.Buffer }

// states are the last lines that were shown, one after the other.
func (s *screen) states() []string { return strings.Split(s.String(), terminal.ClearLine)[1:] }

// requireShown fails the test unless the screen has shown these states in their order, others
// between them, and is empty in the end.
func (s *screen) requireShown(t *testing.T, want []string) {
	t.Helper()
	got := s.states()
	for at := 0; len(want) > 0; want = want[1:] {
		next := slices.Index(got[at:], want[0])
		if next < 0 {
			t.Fatalf("%q is not shown among %q", want[0], got[at:])
		}
		at += next
	}
	if last := got[len(got)-1]; last != "" {
		t.Errorf("%q is left", last)
	}
}

func TestProgressIsShownOnATerminal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		passing
		want []string // in this order, among others
	}{
		"goes on": {passing{}, []string{
			"shipping: 200 of 2,000 files, 10.0 MiB of 100.0 MiB, 1,000 records",
			"shipping: 400 of 2,000 files, 20.0 MiB of 100.0 MiB, 2,000 records at 10.0 MiB/s, time left: unknown",
			"shipping: 1,200 of 2,000 files, 60.0 MiB of 100.0 MiB, 6,000 records at 10.0 MiB/s, time left: about 4s",
			"shipping: 1,800 of 2,000 files, 90.0 MiB of 100.0 MiB, 9,000 records at 10.0 MiB/s, time left: about 1s",
		}},
		"packed": {passing{packed: 1}, []string{
			"shipping: 1,200 of 2,000 files, 60.0 MiB of 100.0 MiB, 6,000 records at 10.0 MiB/s, time left: more than 4s",
		}},
		"broker away": {passing{from: 7 * time.Second, upTo: time.Hour}, []string{
			"waiting for the broker for 1s: 1,400 of 2,000 files, 70.0 MiB of 100.0 MiB, 7,000 records",
			"waiting for the broker for 30m: 1,400 of 2,000 files, 70.0 MiB of 100.0 MiB, 7,000 records",
			"shipping: 1,600 of 2,000 files, 80.0 MiB of 100.0 MiB, 8,000 records at 10.0 MiB/s, time left: about 2s",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var seen screen
				c.began = time.Now()
				p := &Backfill{
					Summary: c.summary, Verb: "shipping", Log: slog.New(slog.DiscardHandler),
					Status: terminal.NewStatusLine(&seen), Columns: func() int { return terminal.PlainWidth },
				}
				p.report(t.Context())
				seen.requireShown(t, c.want)
			})
		})
	}
}

func TestProgressIsLoggedWithoutATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}}))
		c := passing{began: time.Now(), from: 9 * time.Second, upTo: 9*time.Second + 3*time.Minute}
		c.began = c.began.Add(500 * time.Millisecond)
		(&Backfill{Summary: c.summary, Verb: "shipping", Follows: true, Log: log}).report(t.Context())
		want := `msg="waiting for the broker" for=1m0s files=2000 files_done=1800
msg="waiting for the broker" for=2m0s files=2000 files_done=1800
msg="waiting for the broker" for=3m0s files=2000 files_done=1800
msg=backfill state=shipping files=2000 files_done=1800 bytes=104857600 bytes_done=94371840 records=9000 bytes_per_second=10485760 left="about 1s"
msg="backfill is done: following the logs" files=0 records=10000
`
		if diff := cmp.Diff(want, logged.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// An input has no backfill, and its stalls are shown.
func TestInterruptedProgressClearsTheTerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen screen
		status := terminal.NewStatusLine(&seen)
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		stalled := func() ship.Summary { return ship.Summary{Stalled: errors.New("no broker")} }
		(&Backfill{Summary: stalled, Log: slog.New(slog.DiscardHandler), Status: status, Columns: func() int { return 30 }}).report(ctx)
		want := []string{"waiting for the broker for 1s", "waiting for the broker for 2s", "waiting for the broker for 3s", ""}
		if diff := cmp.Diff(want, seen.states()); diff != "" {
			t.Errorf("terminal (-want +got):\n%s", diff)
		}
	})
}
