package main

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline"
	"tributary/pipeline/pipelinetest"
)

// A stream that is nearly full is a problem, and says why no worker is seen.
func TestDoctorNamesTheLimits(t *testing.T) {
	t.Parallel()
	top := pipeline.DefaultTopology()
	home := t.TempDir()
	srv := pipelinetest.NewServer(t)
	js := srv.Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(1, 3, 100)...)
	stream, err := js.Stream(t.Context(), pipeline.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	cfg, used := stream.CachedInfo().Config, int64(stream.CachedInfo().State.Bytes) //nolint:gosec // a small stream
	for _, c := range []struct {
		max  int64
		want string
	}{
		{10 * used, "less than 80% of each limit"},
		{used * 10 / 9, "(90%)"},
		{used, "no worker is seen: while a limit is reached"},
	} {
		cfg.MaxBytes, cfg.Discard = c.max, jetstream.DiscardNew
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if _, out := ended(start(t, home, srv.URL(), "doctor")); !strings.Contains(out, c.want) {
			t.Errorf("doctor does not say %q:\n%s", c.want, out)
		}
	}
}
