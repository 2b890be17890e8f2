package progress

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/ship"
)

// TestFooterShowsWhatUpHasDone shows the footer of a backfill, of which a tenth is done each second,
// and of what follows: 100 events a second, as many as can be shown in 10 seconds, then none.
func TestFooterShowsWhatUpHasDone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		columns int
		want    []string // in this order, among others
	}{
		"wide": {120, []string{
			"100 events of 1 session; shipping 200 of 2,000 files, 10.0 MiB of 100.0 MiB",
			"200 events of 1 session, 100/s; shipping 400 of 2,000 files, 20.0 MiB of 100.0 MiB",
			"700 events of 1 session, 100/s; shipping 1,400 of 2,000 files, 70.0 MiB of 100.0 MiB, about 3s left",
			"1,000 events of 1 session, 1 dead letter, 100/s; following 2,000 files",
			"1,000 events of 1 session, 1 dead letter, 40/s; following 2,000 files",
			"1,000 events of 1 session, 1 dead letter; waiting for the broker for 2s",
			"1,000 events of 1 session, 1 dead letter; following 2,000 files",
		}},
		"narrow": {60, []string{
			"700 events of 1 session, 100/s; shipping 1,400 of 2,000…",
			"1,000 events of 1 session, 1 dead letter, 100/s; following…",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var seen screen
				backfill := passing{began: time.Now()}
				seconds := func() int { return int(time.Since(backfill.began) / time.Second) }
				f := &Footer{
					Viewed: func() (string, int) {
						n := min(seconds(), 10)
						text := terminal.Plural(100*n, "event") + " of 1 session"
						if n == 10 {
							text += ", 1 dead letter"
						}
						return text, 100 * n
					},
					Summary: func() ship.Summary {
						if n := seconds(); n > 10 {
							sum := ship.Summary{Files: 2000, Backfill: ship.Backfill{Over: true}}
							if n == 21 || n == 22 {
								sum.Stalled = errors.New("no broker")
							}
							return sum
						}
						sum := backfill.summary()
						sum.Files = sum.Backfill.Files
						return sum
					},
					Status: terminal.NewStatusLine(&seen), Columns: func() int { return c.columns },
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
				defer cancel()
				f.show(ctx)
				seen.requireShown(t, c.want)
			})
		})
	}
}
