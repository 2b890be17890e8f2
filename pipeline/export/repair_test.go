package export_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/export"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// An export repairs its files when the stream went back, unless the stream can no longer give what they have: then it says so and
// leaves them as they are.
func TestExportSaysThatItCannotRepairItsFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		span    int            // bytes
		expired uint64         // position before which events expire
		forget  *regexp.Regexp // of the manifest, as an older version writes it
		grown   bool           // the stream is longer than it was
		compact bool           // a compaction has made one file of those of many spans
		want    error
	}{
		"whole":                                {span: 10_000, grown: true},
		"one span":                             {span: 1 << 20, grown: true},
		"shorter":                              {span: 10_000},
		"compacted":                            {span: 1000, grown: true, compact: true},
		"compacted, and the first expired":     {span: 1000, expired: first + 1, grown: true, compact: true, want: export.ErrNotRepairable},
		"the last common event expired":        {span: 10_000, expired: first + 20, grown: true, want: export.ErrNotRepairable},
		"nothing is common, the first expired": {span: 1 << 20, expired: first + 1, grown: true, want: export.ErrNotRepairable},
		"a manifest of before":                 {span: 10_000, forget: regexp.MustCompile(`,"first":.*\]`), want: export.ErrNotRepairable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pipelinetest.NewServer(t)
			js := server.Provision(streams.Topology{Generation: "v1", Partitions: 1})
			storeEvents(t, js, 0, 10)
			saved := server.CopyStore()
			storeEvents(t, js, 10, 10)
			dir := t.TempDir()
			cfg := export.Config{Dir: dir, Generation: "v1", Format: export.Parquet, SpanBytes: c.span, Compact: c.compact, Logger: quiet}
			if r := runConfig(t, js, cfg); c.compact != (r.Compacted > 0) {
				t.Errorf("%+v", r)
			}
			before := files(t, dir)
			if len(rows(t, dir)) != 40 {
				t.Fatalf("%d rows", len(rows(t, dir)))
			}

			saved.PutBack(streams.EventsStream("v1"))
			js = server.JetStream()
			if c.grown {
				storeEvents(t, js, 10, 15)
			}
			if c.forget != nil {
				manifest := filepath.Join(dir, "_export", "manifest.json")
				data, err := os.ReadFile(manifest)
				if err != nil {
					t.Fatal(err)
				}
				old := c.forget.ReplaceAll(data, nil)
				if err := os.WriteFile(manifest, old, 0o600); err != nil || len(old) == len(data) {
					t.Fatalf("%v\n%s", err, data)
				}
			}
			if c.expired > 0 {
				stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
				if err != nil {
					t.Fatal(err)
				}
				if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("events.>"), jetstream.WithPurgeSequence(c.expired)); err != nil {
					t.Fatal(err)
				}
			}
			r, err := export.Run(t.Context(), js, cfg)
			if !errors.Is(err, c.want) || err == nil && r.Removed == 0 {
				t.Fatalf("got %v, want %v; %d files were removed", err, c.want, r.Removed)
			}
			if c.want != nil {
				if diff := cmp.Diff(before, files(t, dir)); diff != "" {
					t.Errorf("files (-before +after):\n%s", diff)
				}
				return
			}
			want := 20
			if c.grown {
				want = 50
			}
			got := rows(t, dir)
			seen := map[string]bool{}
			for _, row := range got {
				seen[row.SessionID+" "+row.EventID] = true
			}
			if len(got) != want || len(seen) != want {
				t.Errorf("%d rows of %d events, want %d", len(got), len(seen), want)
			}
		})
	}
}
