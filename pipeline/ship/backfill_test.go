package ship_test

import (
	"fmt"
	"testing"

	"tributary/pipeline/ship"
)

// The progress of the first pass never decreases, never exceeds the whole, and ends with it.
func TestBackfillGrowsToTheWhole(t *testing.T) {
	t.Parallel()
	for name, dry := range map[string]bool{"shipped": false, "dry run": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			var bytes int64
			write := func(name, content string) {
				e.write(name, content)
				bytes += int64(len(content))
			}
			for n := range 30 {
				write(fmt.Sprintf("garden/s%d.jsonl", n), lines(prompts(fmt.Sprintf("s%d", n), 1, 50)...))
			}
			write("garden/long.jsonl", lines(prompts("long", 1, 3000)...))
			write("garden/nothing.jsonl", "")
			write("garden/half.jsonl", prompt("half", 1)[:40])
			write("garden/packed.jsonl.gz", pack(t, ".gz", lines(prompts("packed", 1, 2000)...)))
			write("garden/damaged.jsonl.zst", "no zstd")

			var last ship.Backfill
			parts, packed := 0, int64(0)
			got := e.once(func(c *ship.Config) {
				c.DryRun, c.BatchRecords = dry, 100
				c.Progress = func(s ship.Summary) {
					b := s.Backfill
					if b.Files < last.Files || b.Done < last.Done || b.Bytes < last.Bytes || b.BytesDone < last.BytesDone || last.Over && !b.Over {
						t.Errorf("%+v is followed by %+v", last, b)
					}
					if b.Done > b.Files || b.BytesDone > b.Bytes || b.Over && b.Done < b.Files || b.Packed > b.Bytes-b.BytesDone {
						t.Errorf("impossible: %+v", b)
					}
					if b.Done == last.Done && b.BytesDone > last.BytesDone {
						parts++
					}
					packed = max(packed, b.Packed)
					last = b
				}
			})
			want := ship.Backfill{Files: 35, Done: 35, Bytes: bytes, BytesDone: bytes, Over: true}
			if got.Backfill != want || got.Files != want.Files {
				t.Errorf("at the end %+v, want %+v", got.Backfill, want)
			}
			if parts < 20 {
				t.Errorf("only %d steps of a long file were reported", parts)
			}
			if packed == 0 {
				t.Error("no bytes were counted as packed")
			}
		})
	}
}

// Logs that are created after the first pass are no part of it; logs that an earlier run
// has shipped are.
func TestBackfillIsOverWhenWhatWasThereIsShipped(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompts("one", 1, 5)...))
	e.once()
	e.append("garden/one.jsonl", lines(prompts("one", 6, 8)...))
	e.write("garden/two.jsonl", lines(prompts("two", 1, 5)...))
	bytes := int64(len(lines(prompts("one", 1, 8)...)) + len(lines(prompts("two", 1, 5)...)))
	want := ship.Backfill{Files: 2, Done: 2, Bytes: bytes, BytesDone: bytes, Over: true}
	f := e.follow()
	f.until("what was there is shipped", func(s ship.Summary) bool { return s.Backfill.Over })
	e.write("garden/three.jsonl", lines(prompts("three", 1, 5)...))
	e.append("garden/one.jsonl", lines(prompt("one", 9)))
	f.until("all is shipped", func(s ship.Summary) bool { return s.Records == 14 })
	if got := f.ship.Summary(); got.Backfill != want || got.Files != 3 {
		t.Errorf("at the end %+v, want %+v", got, want)
	}
}
