package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// growingLog is a log of Claude Code to which prompts are added.
type growingLog struct {
	t    *testing.T
	name string
	n    int
}

// add adds prompts.
func (l *growingLog) add(count int) {
	l.t.Helper()
	f, err := os.OpenFile(l.name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	for range count {
		l.n++
		if _, err := fmt.Fprintf(f, `{"type":"user","uuid":"u%d","sessionId":"one","timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":"prompt %[1]d %s"}}`+"\n",
			l.n, strings.Repeat("water ", 100)); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		l.t.Fatal(err)
	}
}

// requireEach waits until every record is done, and fails the test unless each prompt of the log is one event.
func (l *growingLog) requireEach(js jetstream.JetStream) {
	l.t.Helper()
	awaitSubject(l.t, js, "events.v1.>", uint64(l.n))
	passed := make(map[string]int)
	for e, err := range events.Read(l.t.Context(), js, "v1", events.Query{Types: []envelopes.EventType{envelopes.UserMessage}}) {
		if err != nil {
			l.t.Fatal(err)
		}
		text, _, _ := strings.Cut(*e.Text, " water")
		passed[text]++
	}
	for n := range l.n {
		if text := fmt.Sprintf("prompt %d", n+1); passed[text] != 1 {
			l.t.Errorf("%s is %d events", text, passed[text])
		}
	}
	if len(passed) != l.n {
		l.t.Errorf("%d prompts are events, and %d were sent", len(passed), l.n)
	}
}

// A raw stream that is at its limit of bytes refuses records, and says so to their producer, which keeps them; it discards none
// that it has. doctor names the limit. When there is room again, everything is sent by itself.
func TestFullRawStreamRefusesAndDiscardsNothing(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	js := server.Provision(streams.DefaultTopology())
	log := &growingLog{t: t, name: filepath.Join(t.TempDir(), "log.jsonl")}
	log.add(40)
	start(t, home, server.URL(), "run").awaitLogged("worker is running")
	edge := start(t, home, server.URL(), "ship", "--source", "claude_code", log.name)
	log.requireEach(js)
	limit := func(more int64) (before jetstream.StreamState) {
		t.Helper()
		stream, err := js.Stream(t.Context(), streams.RawStream)
		if err != nil {
			t.Fatal(err)
		}
		cfg := stream.CachedInfo().Config
		cfg.MaxBytes, cfg.Discard = int64(stream.CachedInfo().State.Bytes)+more, jetstream.DiscardNew //nolint:gosec // a small stream
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State
	}
	before := limit(100)
	log.add(60)
	edge.awaitLogged("broker takes no records: waiting, nothing is lost")
	contains(t, edge.stderr.String(), "maximum bytes exceeded")
	code, out := finish(t, home, server.URL(), "doctor")
	if code != exitFailure {
		t.Errorf("doctor: exit code %d", code)
	}
	contains(t, out, "problem: limits: stream RAW: ", "raise the limit")
	stream, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	if is := stream.CachedInfo().State; is.FirstSeq != before.FirstSeq || is.Msgs != before.Msgs {
		t.Errorf("the stream had %d messages from %d on, and has %d from %d on", before.Msgs, before.FirstSeq, is.Msgs, is.FirstSeq)
	}
	limit(1 << 30)
	log.requireEach(js)
	if code, out := finish(t, home, server.URL(), "doctor"); code != 0 {
		t.Errorf("doctor of a stream with room: exit code %d\n%s", code, out)
	}
}

// A server whose disk is full stores nothing, and sometimes answers no request of JetStream either: log, readiness and doctor say
// so, and that it has to be restarted when there is room again. Then every record is there, once, and neither the worker nor the
// edge was restarted.
func TestFaultOfAFullDiskIsSaidAndSurvived(t *testing.T) {
	needsFaults(t)
	t.Parallel()
	disk := pipelinetest.SmallDisk(t, "24")
	cluster := pipelinetest.StartClusterOn(t, disk)
	js := cluster.Provision(streams.DefaultTopology())
	home, url := t.TempDir(), cluster.URL()
	log := &growingLog{t: t, name: filepath.Join(t.TempDir(), "log.jsonl")}
	log.add(40)
	worker := startServed(t, home, url, "run")
	edge := start(t, home, url, "ship", "--source", "claude_code", log.name)
	log.requireEach(js)
	if status, body := worker.get("readyz", ""); status.StatusCode != http.StatusOK {
		t.Errorf("with room, the worker is not ready: %s", body)
	}
	release := pipelinetest.FillDisk(t, disk)
	log.add(400)
	cluster.Nodes[0].AwaitOutput("no space left on device")
	worker.awaitLogged("heartbeats of the workers cannot be exchanged")
	edge.awaitLogged("broker takes no records: waiting, nothing is lost")
	until(t, worker.process, "a worker that is not ready", func() bool {
		status, body := worker.get("readyz", "")
		return status.StatusCode == http.StatusServiceUnavailable && body != ""
	})
	var code int
	var out string
	until(t, worker.process, "the cure of a full disk", func() bool {
		code, out = finish(t, home, url, "doctor")
		return strings.Contains(out, "make room and restart it")
	})
	if code != exitFailure {
		t.Errorf("doctor: exit code %d", code)
	}
	if !strings.Contains(out, "no answer of the broker") {
		contains(t, out, "problem: no heartbeat of a worker is stored, although 1 worker answered", "last error")
	}
	release()
	cluster.Nodes[0].Kill() // one that does not answer does not end by itself either
	cluster.Start(cluster.Nodes...)
	log.requireEach(js)
	until(t, worker.process, "a worker that goes on", func() bool {
		_, out = finish(t, home, url, "doctor")
		return strings.Contains(out, "every record is done") && !strings.Contains(out, "no heartbeat of a worker")
	})
}
