package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

const (
	hello = `{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"0b6a7f58","cwd":"/home/ada/app","timestamp":"2026-03-09T09:00:00.000Z","message":{"role":"user","content":"hello"}}` + "\n"
	again = `{"type":"user","uuid":"u2","parentUuid":"u1","sessionId":"0b6a7f58","cwd":"/home/ada/app","timestamp":"2026-03-09T09:01:00.000Z","message":{"role":"user","content":"again"}}` + "\n"
)

// TestUpFollowsTheLogs writes to a log while tributary up runs: up and a tail at its broker
// print the events at once, and up sums them up at the end, with the title and the pin that were set.
func TestUpFollowsTheLogs(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	log := filepath.Join(home, ".claude", "projects", "app", "0b6a7f58.jsonl")
	write(t, log, hello)

	plain := func(c *exec.Cmd) { c.Env = append(c.Env, "TRIBUTARY_IDENTITY=plain") }
	up := startWith(t, plain, home, "", "up", "--listen", "127.0.0.1:0")
	up.expect("hello")
	up.awaitLogged("caught up, following: 1 event of 1 session")
	_, url, _ := strings.Cut(up.logged("broker at "), "broker at ")
	url, _, _ = strings.Cut(url, ",")
	tail := start(t, home, url, "tail", "--since", "all", "-o", "json")
	tail.expect(`"text":"hello"`)
	write(t, log, again)
	up.expect("again")
	if event, edge := tail.expect(`"text":"again"`), `"edge":{"host":"`+hostname()+`"`; !strings.Contains(event, edge) {
		t.Errorf("the event has no %s: %s", edge, event)
	}

	for _, args := range [][]string{{"sessions", "title", "0b6a7f58", "Greetings"}, {"sessions", "pin", "0b6a7f58"}} {
		if code, out := finish(t, home, url, args...); code != 0 {
			t.Errorf("%v: exit code %d\n%s", args, code, out)
		}
	}

	// A second process fails with the same data folder, and with the same address.
	second := start(t, home, "", "up", "--listen", "")
	if code := second.wait(); code != exitFailure || !strings.Contains(second.stderr.String(), fmt.Sprintf("in use by process %d:", up.cmd.Process.Pid)) {
		t.Errorf("a second up on the same data: exit code %d\n%s", code, &second.stderr)
	}
	taken := start(t, home, "", "up", "--samples", "--listen", strings.TrimPrefix(url, "nats://"))
	if code := taken.wait(); code != exitFailure || !strings.Contains(taken.stderr.String(), `pass --listen 127.0.0.1:0 for any free port`) {
		t.Errorf("a second up on the same port: exit code %d\n%s", code, &taken.stderr)
	}

	if code := tail.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("tail: exit code %d after SIGTERM\n%s", code, &tail.stderr)
	}
	if code := up.signal(syscall.SIGINT); code != exitInterrupted {
		t.Errorf("up: exit code %d after SIGINT\n%s", code, &up.stderr)
	}
	up.expect("* Greetings")
	up.expect("events        2: user_message 2")
}

// TestNormalizeFollowsItsInput reads from a pipe: events are printed before the input ends, and
// an interrupt ends the command.
func TestNormalizeFollowsItsInput(t *testing.T) {
	t.Parallel()
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer feed.Close()
	filter := startWith(t, func(c *exec.Cmd) { c.Stdin = in }, t.TempDir(), "", "normalize", "-")
	for _, line := range []string{hello, again} {
		if _, err := feed.WriteString(line); err != nil {
			t.Fatal(err)
		}
		filter.expect(`"event_type":"user_message"`)
	}
	if code := filter.signal(syscall.SIGINT); code != exitInterrupted {
		t.Errorf("exit code %d after SIGINT\n%s", code, &filter.stderr)
	}
}

// TestLogsThatAreShippedAgainChangeNoEvent ships all samples from the folders that the settings
// of their vendors name, then packs them and ships them again without offsets, after the
// duplicate window of the broker: no event changes.
func TestLogsThatAreShippedAgainChangeNoEvent(t *testing.T) {
	t.Parallel()
	top := streams.DefaultTopology()
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	home, logs := t.TempDir(), t.TempDir()
	if _, err := copySamples(logs); err != nil {
		t.Fatal(err)
	}
	environ := func(c *exec.Cmd) {
		c.Env = append(c.Env, "XDG_STATE_HOME="+filepath.Join(home, ".local", "state"))
		for _, v := range normalizers.Vendors() {
			if v.Logs.Env != "" {
				c.Env = append(c.Env, v.Logs.Env+"="+filepath.Join(logs, string(v.Source)))
			}
		}
	}
	once := func() string {
		t.Helper()
		edge := startWith(t, environ, logs, server.URL(), "ship", "--once")
		if code := edge.wait(); code != 0 {
			t.Fatalf("ship: exit code %d\n%s", code, &edge.stderr)
		}
		if err := replay.CatchUp(t.Context(), js, top); err != nil {
			t.Fatal(err)
		}
		return edge.logged("shipped")
	}
	worker := start(t, home, server.URL(), "run")
	first := once()
	want, sources := storedEvents(t, js, top.Generation), map[envelopes.Source]bool{}
	for e, err := range events.Read(t.Context(), js, top.Generation, events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		sources[e.Source] = true
	}
	for _, v := range normalizers.Vendors() {
		if got, want := sources[v.Source], len(v.Logs.Folders) > 0; got != want {
			t.Errorf("events of %s: %t, want %t", v.Source, got, want)
		}
	}

	stream, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	// The server may look at its ids before it knows the shorter window, and then not again
	// for as long as the window before: the second change makes it look once more.
	c := stream.CachedInfo().Config
	for _, c.Duplicates = range []time.Duration{200 * time.Millisecond, 100 * time.Millisecond} {
		if stream, err = js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	before := stream.CachedInfo().State.Msgs
	packLogs(t, logs)
	again := "known already"
	for strings.Contains(again, "known already") {
		if err := os.RemoveAll(filepath.Join(home, ".local")); err != nil {
			t.Fatal(err)
		}
		again = once()
	}
	if records, _, _ := strings.Cut(first, " ("); !strings.HasPrefix(again, records+" (") {
		t.Errorf("first %s then %s", first, again)
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs < 2*before {
		t.Errorf("of %d messages %d are stored again", before, info.State.Msgs-before)
	}
	if diff := cmp.Diff(want, storedEvents(t, js, top.Generation)); diff != "" {
		t.Errorf("events (-first +again):\n%s", diff)
	}
	if code := worker.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("run: exit code %d after SIGTERM\n%s", code, &worker.stderr)
	}
}

// packLogs packs every file of a folder.
func packLogs(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		write(t, path+".gz", packed(t, string(content)))
		return os.Remove(path)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// packed returns content in the format of gzip.
func packed(t *testing.T, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(content))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPackedLogYieldsTheEventsOfTheLog(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "0b6a7f58.jsonl")
	write(t, log, hello+again)
	want := output(t, 0, "normalize", log)
	write(t, log+".gz", packed(t, hello+again))
	if got := output(t, 0, "normalize", log+".gz"); !bytes.Equal(got, want) {
		t.Errorf("packed: %s\nplain: %s", got, want)
	}
	whole := packed(t, hello+again)
	write(t, log+".cut.gz", whole[:len(whole)/2])
	p := start(t, t.TempDir(), "", "normalize", log+".cut.gz")
	if code := p.wait(); code != exitFailure || !strings.Contains(p.stderr.String(), "the file is truncated") {
		t.Errorf("cut off: exit code %d\n%s", code, &p.stderr)
	}
}

// write appends to a file, which it creates if it is missing.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
}

// TestUpShowsTheSamplesOfEveryVendor counts the samples of the table of vendors and what `up` says
// of them.
func TestUpShowsTheSamplesOfEveryVendor(t *testing.T) {
	t.Parallel()
	files := 0
	for _, v := range normalizers.Vendors() {
		err := fs.WalkDir(v.Samples(), ".", func(_ string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				files++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	up := start(t, t.TempDir(), "", "up", "--samples", "--once", "--listen", "")
	if code := up.wait(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &up.stderr)
	}
	if want := fmt.Sprintf(" in %d files\n", files); !strings.Contains(up.stderr.String(), want) {
		t.Errorf("%q does not say%q", &up.stderr, want)
	}
	shown := make(map[string]bool)
	for line := range up.lines {
		if source, _, ok := strings.Cut(line, " "); ok {
			shown[source] = true
		}
	}
	for _, v := range normalizers.Vendors() {
		if !shown[string(v.Source)] {
			t.Errorf("no session of %s", v.Source)
		}
	}
}

// TestThousandsAreSeparated covers numbers of any length.
func TestThousandsAreSeparated(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", -7: "-7", 999: "999", 1000: "1,000", -1000: "-1,000", 123456: "123,456", 2263388: "2,263,388", -1234567890: "-1,234,567,890"} {
		if got := terminal.Thousands(n); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
}
