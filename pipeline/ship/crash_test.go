package ship_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
)

func TestLostOffsetsStoreNothingTwiceWithinTheDuplicateWindow(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompts("one", 1, 600)...))
	e.write("garden/two.jsonl", lines(prompts("two", 1, 3)...))
	e.once()
	before := e.count()
	if err := os.Remove(e.offsets); err != nil {
		t.Fatal(err)
	}
	got := e.once()
	if got.Records != 603 || got.Duplicates != 603 || e.count() != before {
		t.Errorf("%d messages, were %d; shipped %+v", e.count(), before, got)
	}
}

// After the duplicate window a broker stores every record again. The stage recognizes the
// second copy, because its headers are equal, and skips it.
func TestLostOffsetsEmitNothingTwiceAfterTheDuplicateWindow(t *testing.T) {
	t.Parallel()
	e, other := newEdge(t), newEdge(t)
	e.write("garden/one.jsonl", lines(prompts("one", 1, 5)...))
	e.once()
	e.append("garden/one.jsonl", lines(prompts("one", 6, 7)...))
	e.once()

	other.root, other.offsets = e.root, filepath.Join(t.TempDir(), "offsets.json")
	other.once()
	first, second := recordsOf(e.all()), recordsOf(other.all())
	same := cmp.Comparer(func(a, b stored) bool {
		return a.Session == b.Session && a.Origin == b.Origin &&
			a.header.Get(nats.MsgIdHdr) == b.header.Get(nats.MsgIdHdr) && string(a.Data) == string(b.Data)
	})
	if diff := cmp.Diff(first, second, same); diff != "" {
		t.Errorf("the second run shipped other records:\n%s", diff)
	}
	session := normalizers.NewSession(envelopes.ClaudeCode, "one")
	for i, r := range append(first, second...) {
		got, err := normalizers.Normalize(session, r.Record)
		if err != nil {
			t.Fatal(err)
		}
		if again := i >= len(first); got.Gap || (got.Skip == core.SkipDuplicate) != again {
			t.Errorf("message %d: skip %q, gap %v", i, got.Skip, got.Gap)
		}
	}
}

// A crash between acknowledgement and offset leaves the previous offsets file.
func TestCrashBetweenAcknowledgementAndOffsetStoresNothingTwice(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompts("one", 1, 4)...))
	e.once()
	before, err := os.ReadFile(e.offsets)
	if err != nil {
		t.Fatal(err)
	}
	e.append("garden/one.jsonl", lines(prompts("one", 5, 6)...))
	e.once()
	if err := os.WriteFile(e.offsets, before, 0o600); err != nil {
		t.Fatal(err)
	}
	e.append("garden/one.jsonl", lines(prompts("one", 7, 9)...))
	got := e.once()
	if got.Records != 5 || got.Duplicates != 2 {
		t.Errorf("shipped %+v", got)
	}
	want := append(prompts("one", 1, 4), "end of one")
	want = append(append(want, prompts("one", 5, 6)...), "end of one")
	e.wantStored(append(append(want, prompts("one", 7, 9)...), "end of one")...)
}

func TestDamagedOffsetsCountAsLost(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	e.once()
	if err := os.WriteFile(e.offsets, []byte(`{"version":1,"files":[{"dev`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := e.once(); got.Records != 1 || got.Duplicates != 1 {
		t.Errorf("shipped %+v", got)
	}
	if got := e.once(); got.Records != 0 {
		t.Errorf("then shipped %+v", got)
	}
}

func TestOffsetsOfALaterVersionAreKept(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	if err := os.MkdirAll(filepath.Dir(e.offsets), 0o700); err != nil {
		t.Fatal(err)
	}
	later := []byte(`{"version":4,"files":[]}`)
	if err := os.WriteFile(e.offsets, later, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := ship.New(e.js.Conn(), e.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), e.offsets) {
		t.Errorf("error is %v", err)
	}
	if got, err := os.ReadFile(e.offsets); err != nil || string(got) != string(later) {
		t.Errorf("offsets are now %s, %v", got, err)
	}
}

// dieAtCommit ships over a connection that closes before the last message of the first
// batch.
func (e *edge) dieAtCommit() {
	e.t.Helper()
	proxy := pipelinetest.NewProxy(e.t, e.server)
	proxy.Arm(pipelinetest.BeforeCommit)
	doomed := pipelinetest.Connect(e.t, proxy.URL(), nats.NoReconnect())
	c := e.config()
	c.Once = true
	s, err := ship.New(doomed.Conn(), c)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := s.Run(e.t.Context()); !errors.Is(err, ship.ErrClosed) {
		e.t.Fatalf("error is %v", err)
	}
}

func TestProducerDyingWithinABatchStoresAllOrNothing(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompts("one", 1, 50)...))
	e.dieAtCommit()
	if n := e.count(); n != 0 {
		t.Fatalf("%d messages of an unfinished batch are stored", n)
	}
	if got := e.once(); got.Records != 50 || got.Duplicates != 0 {
		t.Errorf("shipped %+v", got)
	}
	e.wantStored(append(prompts("one", 1, 50), "end of one")...)
}

// A batch whose acknowledgement is lost is sent again, and dropped as a duplicate.
func TestLostAcknowledgementStoresNothingTwice(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompts("one", 1, 30)...))
	proxy := pipelinetest.NewProxy(t, e.server)
	proxy.Arm(pipelinetest.BeforeAck, pipelinetest.BeforeCommit)
	e.js = pipelinetest.Connect(t, proxy.URL())
	got := e.once(func(c *ship.Config) { c.BatchRecords = 10 })
	if got.Records != 30 || got.Duplicates == 0 {
		t.Errorf("shipped %+v", got)
	}
	e.wantStored(append(prompts("one", 1, 30), "end of one")...)
}

// A batch of which the broker has a part already is stored completely and in order.
func TestBatchWithDuplicatesIsStoredInOrder(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompts("one", 1, 4)...))
	e.once()
	e.append("garden/one.jsonl", lines(prompts("one", 5, 9)...))
	got := e.once(func(c *ship.Config) { c.Offsets = "" })
	if got.Records != 9 || got.Duplicates != 4 {
		t.Errorf("shipped %+v", got)
	}
	e.wantStored(append(append(append(prompts("one", 1, 4), "end of one"), prompts("one", 5, 9)...), "end of one")...)
}

func TestBrokerAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	f := e.follow()
	f.until("the first record is stored", func(s ship.Summary) bool { return s.Records == 1 })
	e.server.Stop()
	e.append("garden/one.jsonl", lines(prompts("one", 2, 600)...))
	e.write("garden/two.jsonl", lines(prompts("two", 1, 5)...))
	f.until("the broker is reported as away", func(s ship.Summary) bool { return s.Stalled != nil })
	e.server.Start()
	f.until("all is stored", func(s ship.Summary) bool { return s.Records == 605 && s.Stalled == nil })
	e.sessions(map[string][]string{"one": prompts("one", 1, 600), "two": prompts("two", 1, 5)})
}

// A Ship that is stopped does not wait for the broker, and loses nothing.
func TestStopWhileTheBrokerIsAwayLosesNothing(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.js = e.server.JetStream(nats.ReconnectBufSize(-1)) // as programs have it: the connection keeps nothing for later
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	f := e.follow()
	f.until("the first record is stored", func(s ship.Summary) bool { return s.Records == 1 })
	e.server.Stop()
	e.append("garden/one.jsonl", lines(prompts("one", 2, 1500)...))
	f.until("the broker is reported as away", func(s ship.Summary) bool { return s.Stalled != nil })
	f.stop()
	if got := f.ship.Summary(); got.Records != 1 {
		t.Errorf("shipped %d records", got.Records)
	}
	e.server.Start()
	if got := e.once(); got.Records != 1499 || got.Duplicates != 0 {
		t.Errorf("then shipped %+v", got)
	}
	e.sessions(map[string][]string{"one": prompts("one", 1, 1500)})
}

// Without any stream, Stalled names the command that creates it; shipping starts when it exists.
func TestMissingTopologyIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	dir := t.TempDir()
	e := &edge{t: t, server: server, js: server.JetStream(), root: filepath.Join(dir, "projects"), offsets: filepath.Join(dir, "offsets.json")}
	e.mkdir("garden")
	e.write("garden/one.jsonl", lines(prompts("one", 1, 3)...))
	f := e.follow()
	f.until("the stream is reported as missing", func(s ship.Summary) bool { return s.Stalled != nil })
	if cause := f.ship.Summary().Stalled.Error(); !strings.Contains(cause, "tributary run") {
		t.Errorf("the cause of the stall is %s", cause)
	}
	server.Provision(streams.Topology{Generation: "v1", Partitions: 4})
	f.until("all is stored", func(s ship.Summary) bool { return s.Records == 3 && s.Stalled == nil })
}

// The first connection may succeed long after Run has begun.
func TestShipMayStartBeforeTheBroker(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	e.server.Stop()
	nc, err := nats.Connect(e.server.URL(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	f := e.followBy(nc)
	f.until("the broker is reported as away", func(s ship.Summary) bool { return s.Stalled != nil })
	if cause := f.ship.Summary().Stalled.Error(); !strings.Contains(cause, strings.TrimPrefix(e.server.URL(), "nats://")) {
		t.Errorf("the cause of the stall is %s", cause)
	}
	e.server.Start()
	f.until("all is stored", func(s ship.Summary) bool { return s.Records == 1 && s.Stalled == nil })
}

// The raw stream alone may be missing; shipping starts when it is created.
func TestMissingRawStreamIsWaitedFor(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	if err := e.js.DeleteStream(t.Context(), streams.RawStream); err != nil {
		t.Fatal(err)
	}
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	f := e.follow()
	f.until("the stream is reported as missing", func(s ship.Summary) bool { return s.Stalled != nil })
	if err := streams.Provision(t.Context(), e.js, streams.Topology{Generation: "v1", Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	f.until("all is stored", func(s ship.Summary) bool { return s.Records == 1 && s.Stalled == nil })
	e.wantStored(prompt("one", 1))
}

// Nothing is sent to a raw stream that would discard records which nobody has read, until it refuses new ones instead.
func TestRawStreamThatDiscardsIsWaitedFor(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw, err := e.js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	limited := raw.CachedInfo().Config
	limited.MaxMsgs, limited.Discard = 1000, jetstream.DiscardOld
	if _, err := e.js.UpdateStream(t.Context(), limited); err != nil {
		t.Fatal(err)
	}
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	f := e.follow()
	f.until("the limit is reported", func(s ship.Summary) bool {
		return s.Stalled != nil && strings.Contains(s.Stalled.Error(), "nats stream edit RAW --discard=new")
	})
	limited.Discard = jetstream.DiscardNew
	if _, err := e.js.UpdateStream(t.Context(), limited); err != nil {
		t.Fatal(err)
	}
	f.until("all is stored", func(s ship.Summary) bool { return s.Records == 1 && s.Stalled == nil })
	e.wantStored(prompt("one", 1))
}

// Environment variables of a victim: the root that it ships, the broker and the offsets
// file.
const (
	victimRoot    = "SHIP_VICTIM_ROOT"
	victimURL     = "SHIP_VICTIM_URL"
	victimOffsets = "SHIP_VICTIM_OFFSETS"
)

// victim is the main function of a process that follows logs until it is killed.
func victim(root ship.Root) int {
	nc, err := nats.Connect(os.Getenv(victimURL))
	if err == nil {
		var s *ship.Ship
		s, err = ship.New(nc, ship.Config{
			Roots:        []ship.Root{root},
			Offsets:      os.Getenv(victimOffsets),
			BatchRecords: 16,
		})
		if err == nil {
			err = s.Run(context.Background())
		}
	}
	fmt.Fprintln(os.Stderr, "victim ended before it was killed:", err)
	return 1
}

// killAnywhere follows the logs in processes, kills each at an arbitrary point after it has
// stored a number of records, and ships the rest. In short mode it skips the test.
func (e *edge) killAnywhere(each int) {
	e.t.Helper()
	if testing.Short() {
		e.t.Skip("needs processes of their own, of which the race detector sees nothing")
	}
	raw := e.tap()
	for kill := range 6 {
		victim := exec.CommandContext(e.t.Context(), os.Args[0])
		victim.Env = append(os.Environ(), victimRoot+"="+e.root, victimURL+"="+e.server.URL(), victimOffsets+"="+e.offsets)
		victim.Stderr = os.Stderr
		if err := victim.Start(); err != nil {
			e.t.Fatal(err)
		}
		raw.next(each + kill)
		if err := victim.Process.Kill(); err != nil {
			e.t.Fatal(err)
		}
		_ = victim.Wait() // it was killed
	}
	e.once()
}

// sessions compares the records of each session in the raw stream.
func (e *edge) sessions(want map[string][]string) {
	e.t.Helper()
	got := map[string][]string{}
	for _, r := range recordsOf(e.all()) {
		got[r.Session] = append(got[r.Session], string(r.Data))
	}
	for id, records := range want {
		if !cmp.Equal(records, got[id]) {
			e.t.Errorf("session %s: %d records, want %d, or they differ", id, len(got[id]), len(records))
		}
	}
	if len(got) != len(want) {
		e.t.Errorf("%d sessions, want %d", len(got), len(want))
	}
}

// A Ship that is killed again and again stores every record once and in order.
func TestKilledAnywhereShipsEveryRecordOnceInOrder(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	want := map[string][]string{}
	for n := range 4 {
		id := fmt.Sprintf("s%d", n)
		want[id] = prompts(id, 1, 1000)
		e.write("garden/"+id+".jsonl", lines(want[id]...))
	}
	e.killAnywhere(500)
	e.sessions(want)
}

// A batch whose upload takes longer than the timeout of a request is waited for: sending it
// again would take as long.
func TestSlowUplinkSendsABatchOnce(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	proxy := pipelinetest.NewProxy(t, e.server)
	proxy.Slow(600 << 10)
	e.js = pipelinetest.Connect(t, proxy.URL())
	text := strings.Repeat("water ", 16<<10)
	var records []string
	for n := range 40 {
		records = append(records, strings.Replace(prompt("one", n), "water ", text, 1))
	}
	e.write("garden/one.jsonl", lines(records...))
	if got := e.once(); got.Records != 40 || got.Duplicates != 0 {
		t.Errorf("shipped %+v", got)
	}
}
