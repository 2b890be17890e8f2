package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/embedded"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// edgeHome is a machine with logs, and a broker with a disk that a test can exchange.
type edgeHome struct {
	t      *testing.T
	home   string
	disk   string
	server *pipelinetest.Server
}

func newEdgeHome(t *testing.T) *edgeHome {
	t.Helper()
	h := &edgeHome{t: t, home: t.TempDir(), disk: t.TempDir()}
	h.server = pipelinetest.NewServer(t, func(c *embedded.Config) { c.StoreDir = h.disk })
	return h
}

// log returns the path of the log of a session.
func (h *edgeHome) log(session string) string {
	return filepath.Join(h.home, ".claude", "projects", "app", session+".jsonl")
}

// grow appends user messages to the log of a session.
func (h *edgeHome) grow(session string, first, last int) {
	h.t.Helper()
	var text strings.Builder
	for n := first; n <= last; n++ {
		fmt.Fprintf(&text, `{"type":"user","uuid":"%s-%d","sessionId":"%s","timestamp":"2026-03-09T09:%02d:%02d.000Z","cwd":"/home/ada/app","message":{"role":"user","content":"message %d"}}`+"\n",
			session, n, session, n/60%60, n%60, n)
	}
	write(h.t, h.log(session), text.String())
}

// once ships and returns what ship has printed.
func (h *edgeHome) once(args ...string) string {
	h.t.Helper()
	code, out := ended(start(h.t, h.home, h.server.URL(), append([]string{"ship", "--once"}, args...)...))
	if code != 0 {
		h.t.Fatalf("ship: exit code %d\n%s", code, out)
	}
	return out
}

// work runs a worker on a generation until everything is processed.
func (h *edgeHome) work(generation string) {
	h.t.Helper()
	named := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TRIBUTARY_GENERATION="+generation) }
	worker := startWith(h.t, named, h.home, h.server.URL(), "run")
	top := streams.DefaultTopology()
	top.Generation = generation
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*patience)
	defer cancel()
	js := h.server.JetStream()
	if err := awaitStored(ctx, js, "KV_TRIBUTARY", "$KV.TRIBUTARY.generation."+generation, 1); err != nil {
		h.t.Fatal(err)
	}
	if err := replay.CatchUp(ctx, js, top); err != nil {
		h.t.Fatalf("the worker does not catch up: %v\n%s", err, worker.stderr.String())
	}
	if code := worker.signal(syscall.SIGTERM); code != 0 {
		h.t.Fatalf("run: exit code %d\n%s", code, worker.stderr.String())
	}
}

// wantEvents compares the events of sessions with those of normalize.
func (h *edgeHome) wantEvents(generation string, sessions ...string) {
	h.t.Helper()
	stored := storedEvents(h.t, h.server.JetStream(), generation)
	for _, session := range sessions {
		want := output(h.t, 0, "normalize", "--source", string(envelopes.ClaudeCode), h.log(session))
		if !bytes.Equal(stored[session], want) {
			h.t.Errorf("session %s: generation %s has %d events, normalize prints %d, or they differ",
				session, generation, bytes.Count(stored[session], []byte("\n")), bytes.Count(want, []byte("\n")))
		}
	}
}

// provision waits for a server and creates the streams.
func (h *edgeHome) provision() jetstream.JetStream {
	return h.server.Provision(streams.DefaultTopology())
}

// streamDir is the folder of a stream in a store.
func streamDir(disk, stream string) string {
	return filepath.Join(disk, "jetstream", "$G", "streams", stream)
}

// exchange replaces the folder of a stream, while the broker is stopped, by that of a copy.
func (h *edgeHome) exchange(stream, copied string) {
	h.t.Helper()
	if err := errors.Join(os.RemoveAll(streamDir(h.disk, stream)), os.CopyFS(streamDir(h.disk, stream), os.DirFS(streamDir(copied, stream)))); err != nil {
		h.t.Fatal(err)
	}
}

// TestFaultOfARolledBackStoreEndsWithEveryEventOnce puts an older copy of RAW, of EVENTS or of
// both back, and lets the edge and the workers go on. They end with every event of every log
// once, or name the cure, which does.
func TestFaultOfARolledBackStoreEndsWithEveryEventOnce(t *testing.T) {
	needsFaults(t)
	t.Parallel()
	for _, c := range []struct {
		name    string
		streams []string
		others  int  // records of another producer, stored before the edge comes back
		stops   bool // the workers stop and name the cure
	}{
		{"RAW", []string{streams.RawStream}, 0, true},
		{"RAW, and it has grown since", []string{streams.RawStream}, 400, true},
		{"EVENTS", []string{streams.EventsStream("v1")}, 0, false},
		{"both", []string{streams.RawStream, streams.EventsStream("v1")}, 0, false},
		{"both, and they have grown since", []string{streams.RawStream, streams.EventsStream("v1")}, 400, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newEdgeHome(t)
			h.provision()
			h.grow("one", 1, 120)
			h.grow("two", 1, 10)
			h.once()
			h.work("v1")
			copied := t.TempDir()
			h.server.Stop()
			if err := os.CopyFS(copied, os.DirFS(h.disk)); err != nil {
				t.Fatal(err)
			}
			h.server.Start()
			for n := 121; n < 241; n += 30 {
				h.grow("one", n, n+29)
				h.once()
			}
			h.grow("three", 1, 10)
			h.once()
			h.work("v1")
			h.server.Stop()
			for _, stream := range c.streams {
				h.exchange(stream, copied)
			}
			h.server.Start()
			for _, r := range pipelinetest.Workload(5, 3, c.others) {
				pipelinetest.Publish(t, h.server.JetStream(), r)
			}
			h.grow("one", 241, 360)

			out := h.once()
			if lost := strings.Contains(out, "raw stream has lost records"); lost != (c.streams[0] == streams.RawStream) {
				t.Errorf("ship printed\n%s", out)
			}
			generation := "v1"
			if c.stops {
				code, out := finish(t, h.home, h.server.URL(), "doctor")
				if code != exitFailure || !strings.Contains(out, "raw stream has lost its tail") || !strings.Contains(out, "replay into a new generation") {
					t.Errorf("doctor: exit code %d\n%s", code, out)
				}
				generation = "v2"
			}
			h.work(generation)
			h.wantEvents(generation, "one", "two", "three")
		})
	}
}

func TestWipedBrokerGetsEverythingFromTheEdge(t *testing.T) {
	t.Parallel()
	h := newEdgeHome(t)
	h.provision()
	h.grow("one", 1, 20)
	if out := h.once(); !strings.Contains(out, "shipped 20 records") {
		t.Errorf("ship printed\n%s", out)
	}
	h.server.Stop()
	if err := os.RemoveAll(h.disk); err != nil {
		t.Fatal(err)
	}
	h.server.Start()
	h.provision()
	if out := h.once(); !strings.Contains(out, "shipped 20 records") || !strings.Contains(out, "another raw stream than before") {
		t.Errorf("after the wipe ship printed\n%s", out)
	}
	h.work("v1")
	h.wantEvents("v1", "one")
}

func TestSpellingsOfTheURLShareOneState(t *testing.T) {
	t.Parallel()
	h := newEdgeHome(t)
	h.provision()
	h.grow("one", 1, 20)
	h.once()
	port := h.server.URL()[strings.LastIndexByte(h.server.URL(), ':'):]
	spelled := "nats://localhost" + port
	if code, out := ended(start(t, h.home, spelled, "ship", "--once")); code != 0 || !strings.Contains(out, "shipped 0 records") {
		t.Errorf("another spelling: exit code %d\n%s", code, out)
	}
	if out := h.once("--again"); !strings.Contains(out, "shipped 20 records") {
		t.Errorf("ship --again printed\n%s", out)
	}
}

func TestSecondShipOnAFolderIsRefusedWithTheFirstProcess(t *testing.T) {
	t.Parallel()
	h := newEdgeHome(t)
	js := h.provision()
	h.grow("one", 1, 2)
	first := start(t, h.home, h.server.URL(), "ship")
	if err := awaitStored(t.Context(), js, streams.RawStream, "raw.>", 2); err != nil {
		t.Fatal(err)
	}
	code, out := ended(start(t, h.home, h.server.URL(), "ship", "--once"))
	if code != exitFailure || !strings.Contains(out, fmt.Sprintf("in use by process %d:", first.cmd.Process.Pid)) || !strings.Contains(out, "TRIBUTARY_DATA") {
		t.Errorf("a second ship: exit code %d\n%s", code, out)
	}
	if code, out := ended(start(t, h.home, h.server.URL(), "ship", "--dry-run")); code != 0 {
		t.Errorf("a dry run: exit code %d\n%s", code, out)
	}
	first.kill()
	h.grow("one", 3, 4)
	h.once()
	h.work("v1")
	h.wantEvents("v1", "one")
}

func TestOnceEndsWithTheCauseWithoutAStreamOrInTime(t *testing.T) {
	t.Parallel()
	h := newEdgeHome(t)
	h.grow("one", 1, 2)
	edge := start(t, h.home, h.server.URL(), "ship", "--once")
	if code, out := ended(edge); code != exitFailure || !strings.Contains(out, "no raw stream") || !strings.Contains(out, "tributary run") {
		t.Errorf("without a stream: exit code %d\n%s", code, out)
	}
	code, out := ended(start(t, h.home, h.server.URL(), "ship", "--once", "--timeout", "1s"))
	if code != exitFailure || !strings.Contains(out, "--timeout") || !strings.Contains(out, "tributary run") {
		t.Errorf("--timeout without a stream: exit code %d\n%s", code, out)
	}
	h.server.Stop()
	code, out = ended(start(t, h.home, h.server.URL(), "ship", "--once", "--timeout", "1s"))
	if code != exitFailure || !strings.Contains(out, "--timeout") || !strings.Contains(out, "not connected to the broker") {
		t.Errorf("--timeout without a broker: exit code %d\n%s", code, out)
	}
	if code, out := ended(start(t, h.home, h.server.URL(), "ship", "--timeout", "1s")); code != exitUsage {
		t.Errorf("--timeout without --once: exit code %d\n%s", code, out)
	}
}

// A complete last line is sent when the log is idle; an incomplete one is named as held back.
func TestLastLineWithoutAnEndIsSentOrNamed(t *testing.T) {
	t.Parallel()
	h := newEdgeHome(t)
	js := h.provision()
	write(t, h.log("0b6a7f58"), strings.TrimSuffix(hello, "\n"))
	h.grow("torn", 1, 1)
	write(t, h.log("torn"), again[:40])
	edge := start(t, h.home, h.server.URL(), "ship", "--idle", "300ms")
	for subject, count := range map[string]uint64{"raw.*.claude_code.0b6a7f58": 2, "raw.*.claude_code.torn": 2} { // with the end of the session
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := awaitStored(ctx, js, streams.RawStream, subject, count); err != nil {
			t.Fatal(err)
		}
	}
	if code := edge.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if out := edge.stderr.String(); !strings.Contains(out, "held back: the last 40 B of "+h.log("torn")) || strings.Contains(out, "0b6a7f58.jsonl") {
		t.Errorf("ship printed\n%s", out)
	}
}

func TestDoctorShowsTheEdges(t *testing.T) {
	t.Parallel()
	h := newEdgeHome(t)
	js := h.provision()
	h.grow("one", 1, 2)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	unknown := filepath.Join(h.home, "what.jsonl")
	write(t, unknown, `{"what":"is this"}`+"\n")
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, ".notes"), 0o700); err != nil {
		t.Fatal(err)
	}
	edge := start(t, h.home, h.server.URL(), "ship", "--idle", "200ms", h.log("one"), unknown, folder)
	if err := awaitStored(t.Context(), js, streams.RawStream, "raw.>", 2); err != nil {
		t.Fatal(err)
	}
	awaitEdge(t, js, func(e streams.Edge) bool { return e.Host == host && e.Follows && !e.Ended })
	if _, out := finish(t, h.home, h.server.URL(), "doctor"); !strings.Contains(out, "EDGE") || !strings.Contains(out, "following") || !strings.Contains(out, "skipped 1 hidden folder:") {
		t.Errorf("doctor of an edge that follows:\n%s", out)
	}
	awaitLog(edge, "matches no agent")
	edge.signal(syscall.SIGTERM)
	awaitEdge(t, js, func(e streams.Edge) bool {
		return e.Ended && e.Files == 2 && e.Records == 2 && e.Behind == 0 && e.Unknown == 1 && e.Error == ""
	})
	_, out := finish(t, h.home, h.server.URL(), "doctor")
	if !strings.Contains(out, "ended") || !strings.Contains(out, "does not send 1 file, the last: "+unknown+": the content matches no agent") || strings.Contains(out, "problem: edge") {
		t.Errorf("doctor of an edge with a file that is no log:\n%s", out)
	}
}

// A log of another agent in the folder of one is named by ship and by doctor, and its records are nobody's.
func TestDoctorNamesALogOfAnotherAgent(t *testing.T) {
	t.Parallel()
	h := newEdgeHome(t)
	js := h.provision()
	h.grow("one", 1, 2)
	write(t, h.log("qwen"), `{"uuid":"u1","parentUuid":null,"sessionId":"q","timestamp":"2026-08-05T18:47:42Z","type":"user","message":{"role":"user","parts":[{"text":"x"}]}}`+"\n")
	const want = "a log of Qwen Code"
	if _, out := ended(start(t, h.home, h.server.URL(), "ship", "--once")); !strings.Contains(out, want) || !strings.Contains(out, "in a folder of Claude Code") || !strings.Contains(out, "--source") {
		t.Errorf("ship printed\n%s", out)
	}
	awaitEdge(t, js, func(e streams.Edge) bool { return e.Ended && e.Records == 2 })
	if _, out := finish(t, h.home, h.server.URL(), "doctor"); !strings.Contains(out, want) || strings.Contains(out, "problem: edge") {
		t.Errorf("doctor:\n%s", out)
	}
}

// awaitLog waits until a process has written a text to standard error.
func awaitLog(p *process, text string) {
	p.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	limit := time.After(patience)
	for !strings.Contains(p.stderr.String(), text) {
		select {
		case <-look.C:
		case <-limit:
			p.t.Fatalf("no %q in standard error:\n%s", text, p.stderr.String())
		}
	}
}

// awaitEdge waits until ok accepts the only edge.
func awaitEdge(t *testing.T, js jetstream.JetStream, ok func(streams.Edge) bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	limit := time.After(patience)
	for {
		edges, err := streams.Edges(t.Context(), js)
		if err != nil {
			t.Fatal(err)
		}
		if len(edges) == 1 && ok(edges[0]) {
			return
		}
		select {
		case <-look.C:
		case <-limit:
			t.Fatalf("the edges do not change any more: %+v", edges)
		}
	}
}
