package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/doctor"
	"tributary/pipeline/embedded"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// checksOf returns the exit code and the checks of a doctor by name; none where the broker shows
// nothing.
func checksOf(t *testing.T, p *process) (code int, checks map[string]doctor.Check) {
	t.Helper()
	code = p.wait()
	var d struct {
		Checks []doctor.Check `json:"checks"`
	}
	line, ok := <-p.lines
	if !ok {
		return code, nil
	}
	if err := json.Unmarshal([]byte(line), &d); err != nil {
		t.Fatal(err)
	}
	checks = make(map[string]doctor.Check)
	for _, c := range d.Checks {
		checks[c.Name] = c
	}
	if len(checks) != 10 {
		t.Errorf("checks %v", d.Checks)
	}
	return code, checks
}

// requireCheck checks a verdict, and parts of its text and cure.
func requireCheck(t *testing.T, checks map[string]doctor.Check, name, verdict string, parts ...string) {
	t.Helper()
	c := checks[name]
	if c.Verdict != verdict {
		t.Errorf("%s is %+v, want %s", name, c, verdict)
	}
	contains(t, c.Text+": "+c.Cure, parts...)
}

// TestDoctorFindsDriftAndShortRetention changes streams behind the back of the workers.
func TestDoctorFindsDriftAndShortRetention(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	top := streams.DefaultTopology()
	js := server.Provision(top)
	start(t, home, server.URL(), "run")
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == top.Partitions })
	code, checks := checksOf(t, start(t, home, server.URL(), "doctor", "-o", "json"))
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, name := range []string{"rights", "streams", "replicas", "lag", "clock", "retention"} {
		requireCheck(t, checks, name, doctor.OK)
	}
	requireCheck(t, checks, "durability", doctor.Warning, "one server, which syncs every 1m0s", "sync_interval: always")

	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	changed := raw.CachedInfo().Config
	changed.MaxAge, changed.AllowDirect = time.Hour, false
	if _, err := js.UpdateStream(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	code, checks = checksOf(t, start(t, home, server.URL(), "doctor", "-o", "json"))
	if code != exitFailure {
		t.Errorf("exit code %d", code)
	}
	requireCheck(t, checks, "streams", doctor.Problem, "RAW: direct get false, want true", "start a worker")
	requireCheck(t, checks, "retention", doctor.Warning, "raw records are kept for 1h0m0s, events for longer", "TRIBUTARY_RAW_MAX_AGE")
}

// TestDoctorFindsAReplicaThatIsGone kills a server of three.
func TestDoctorFindsAReplicaThatIsGone(t *testing.T) {
	t.Parallel()
	c := pipelinetest.StartCluster(t, 3, 0)
	top := streams.DefaultTopology()
	top.Replicas, top.Partitions = 3, 2
	js := c.Provision(top)
	home := t.TempDir()
	examine := func() (int, map[string]doctor.Check) {
		return checksOf(t, startWith(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TRIBUTARY_PARTITIONS=2") }, home, c.URL(), "doctor", "-o", "json"))
	}
	c.Settle(js)
	_, checks := examine()
	requireCheck(t, checks, "replicas", doctor.OK, "3 of each stream")
	requireCheck(t, checks, "durability", doctor.OK, "3 replicas")
	dead := c.Nodes[2]
	dead.Kill()
	limit := time.Now().Add(4 * patience)
	for {
		var code int
		code, checks = examine()
		if c := checks["replicas"]; c.Verdict == doctor.Problem && strings.Contains(c.Text, dead.Name()) && code == exitFailure {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("exit code %d, replicas %+v", code, checks["replicas"])
		}
	}
	contains(t, checks["replicas"].Cure, "start the servers that are gone")
}

// TestDoctorSaysWhatItMayNotRead has a user who may not read everything, in an account that learns
// how the server syncs.
func TestDoctorSaysWhatItMayNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, []byte(`
listen: "127.0.0.1:-1"
jetstream { store_dir: "`+dir+`", sync_interval: always }
system_account: SYS
accounts {
  SYS { users: [{ user: sys, password: s }], exports: [{ service: "$SYS.REQ.SERVER.PING.STATSZ", response_type: stream }] }
  APP {
    jetstream: enabled
    imports: [{ service: { account: SYS, subject: "$SYS.REQ.SERVER.PING.STATSZ" } }]
    users: [
      { user: all, password: a }
      { user: some, password: b, permissions: { publish: { deny: ["$JS.API.STREAM.INFO.SESSIONS", "$JS.API.STREAM.INFO.KV_TRIBUTARY_EDGES", "$JS.API.DIRECT.GET.KV_TRIBUTARY_EDGES"] } } }
    ]
  }
}`), 0o600); err != nil {
		t.Fatal(err)
	}
	broker := pipelinetest.StartConfigured(t, file)
	nc, err := nats.Connect(broker.ClientURL(), nats.UserInfo("all", "a"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	top := streams.DefaultTopology()
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	as := func(user, password string) func(*exec.Cmd) {
		return func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "NATS_USER="+user, "NATS_PASSWORD="+password)
		}
	}
	startWith(t, as("all", "a"), t.TempDir(), broker.ClientURL(), "run")
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == top.Partitions })
	code, checks := checksOf(t, startWith(t, as("all", "a"), t.TempDir(), broker.ClientURL(), "doctor", "-o", "json"))
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	requireCheck(t, checks, "durability", doctor.OK, "synced to the disk before it is acknowledged")
	code, out := ended(startWith(t, as("some", "b"), t.TempDir(), broker.ClientURL(), "doctor"))
	if code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	contains(t, out, "rights", "unknown", "this user may not read", "in the permissions of this user at the broker", "every record is done")
}

// TestDoctorReadsFromTheServerWhatAPowerFailureLoses has the server of up, which states how it syncs, and one that does not.
func TestDoctorReadsFromTheServerWhatAPowerFailureLoses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(`{listen: "127.0.0.1:-1", jetstream: {store_dir: "`+t.TempDir()+`"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		url     string
		verdict string
		says    string
	}{
		"the server of up":        {pipelinetest.NewServer(t, func(c *embedded.Config) { c.SyncInterval = 0 }).URL(), doctor.OK, "synced to the disk before it is acknowledged"},
		"a server of no accounts": {pipelinetest.StartConfigured(t, file).ClientURL(), doctor.Unknown, "imports $SYS.REQ.SERVER.PING.STATSZ of the system account"},
	} {
		if err := streams.Provision(t.Context(), pipelinetest.Connect(t, c.url), streams.DefaultTopology()); err != nil {
			t.Fatal(err)
		}
		_, checks := checksOf(t, start(t, t.TempDir(), c.url, "doctor", "-o", "json"))
		t.Log(name)
		requireCheck(t, checks, "durability", c.verdict, c.says)
	}
}

// TestDoctorIsTrueWithTheRightsOfEachRole has the roles of deploy/nats: the operator learns how the server syncs, and a consumer,
// who may read neither the progress nor the edges, gets no statement about them.
func TestDoctorIsTrueWithTheRightsOfEachRole(t *testing.T) {
	t.Parallel()
	b, _ := startWithSession(t)
	_, checks := checksOf(t, b.as(t, "ACME_OPERATOR", "doctor", "-o", "json"))
	requireCheck(t, checks, "rights", doctor.OK)
	requireCheck(t, checks, "durability", doctor.OK, "synced to the disk before it is acknowledged")
	requireCheck(t, checks, "receivers", doctor.OK, "none was seen")
	_, out := ended(b.as(t, "ACME_CONSUMER", "doctor"))
	contains(t, out, "lag         unknown: see rights", "rights  ", "this user may not read")
	for _, untrue := range []string{"have stopped", "no event yet", "0 partitions", "none: every record"} {
		if strings.Contains(out, untrue) {
			t.Errorf("a consumer reads %q in\n%s", untrue, out)
		}
	}
}
