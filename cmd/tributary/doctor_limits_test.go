package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// A stream that is nearly full is a problem, and says why no worker is seen.
func TestDoctorNamesTheLimits(t *testing.T) {
	t.Parallel()
	top := streams.DefaultTopology()
	home := t.TempDir()
	srv := pipelinetest.NewServer(t)
	js := srv.Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(1, 3, 100)...)
	stream, err := js.Stream(t.Context(), streams.RawStream)
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
		if _, out := finish(t, home, srv.URL(), "doctor"); !strings.Contains(out, c.want) {
			t.Errorf("doctor does not say %q:\n%s", c.want, out)
		}
	}
}

// A full account is a problem while it lasts: doctor names the limit, the worker that answers although its heartbeats
// cannot be stored, and its last error. When there is room again, all records are there and nothing has to be restarted.
func TestDoctorNamesAFullAccount(t *testing.T) {
	t.Parallel()
	dir, file, home := t.TempDir(), filepath.Join(t.TempDir(), "nats.conf"), t.TempDir()
	limit := func(bytes int64) {
		conf := fmt.Sprintf(`
listen: "127.0.0.1:-1"
max_payload: 8MB
jetstream: { store_dir: %q, max_file_store: 10GB }
system_account: SYS
no_auth_user: worker
accounts {
  SYS { users: [{ user: sys, password: s }], exports: [{ service: "$SYS.REQ.SERVER.PING.STATSZ", response_type: stream }] }
  A { jetstream: { max_file: %d, max_mem: 64MB }, users: [{ user: worker, password: worker }]
    imports: [{ service: { account: SYS, subject: "$SYS.REQ.SERVER.PING.STATSZ" } }] }
}
`, dir, bytes)
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	limit(1 << 30)
	srv := pipelinetest.StartConfigured(t, file)
	url := srv.ClientURL()
	js := pipelinetest.Connect(t, url)
	top := streams.DefaultTopology()
	worker := start(t, home, url, "run")
	worker.awaitLogged("worker is running")
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == top.Partitions })
	if code, out := finish(t, home, url, "doctor"); code != 0 || !strings.Contains(out, "less than 80% of each limit of the account, the streams and the servers") {
		t.Fatalf("doctor of a broker with room: exit code %d\n%s", code, out)
	}
	records := pipelinetest.Workload(1, 30, 300)
	pipelinetest.Publish(t, js, records...)
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	info, err := js.AccountInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	limit(int64(info.Store) + 1) //nolint:gosec // a small account
	if err := srv.Reload(); err != nil {
		t.Fatal(err)
	}
	worker.awaitLogged("heartbeats of the workers cannot be exchanged")
	code, out := finish(t, home, url, "doctor")
	if code != exitFailure {
		t.Errorf("doctor of a full broker: exit code %d", code)
	}
	contains(t, out, "problem: limits: storage of the account", "(100%)", "last error", "heartbeats of the workers cannot be exchanged: write heartbeat: ", "resource limits exceeded")
	limit(1 << 30)
	if err := srv.Reload(); err != nil {
		t.Fatal(err)
	}
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && !w[0].Silent(time.Now()) })
	pipelinetest.Publish(t, js, pipelinetest.Workload(2, 30, 300)...)
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	if code, out := finish(t, home, url, "doctor"); code != 0 {
		t.Errorf("doctor of a broker with room again: exit code %d\n%s", code, out)
	}
}
