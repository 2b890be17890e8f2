package ship_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/embedded"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/ship"
	"tributary/pipeline/ship/offsets"
	"tributary/pipeline/streams"
)

// disk is the store of the broker of an edge.
type disk struct {
	*edge
	dir string
}

func newDisk(tb testing.TB) *disk {
	tb.Helper()
	dir := tb.TempDir()
	return &disk{newEdge(tb, func(c *embedded.Config) { c.StoreDir = dir }), dir}
}

// wipe gives the broker an empty disk, at the same address.
func (d *disk) wipe() {
	d.t.Helper()
	d.server.Stop()
	if err := os.RemoveAll(d.dir); err != nil {
		d.t.Fatal(err)
	}
	d.server.Start()
	d.provision()
}

func (d *disk) provision() {
	d.t.Helper()
	d.js = d.server.Provision(streams.Topology{Generation: "v1", Partitions: 4})
}

// backUp returns a copy of the store, made while the broker is stopped.
func (d *disk) backUp() string {
	d.t.Helper()
	copied := filepath.Join(d.t.TempDir(), "copy")
	d.server.Stop()
	defer d.server.Start()
	if err := os.CopyFS(copied, os.DirFS(d.dir)); err != nil {
		d.t.Fatal(err)
	}
	return copied
}

// restore puts a copy back. The broker has lost what it has stored since then.
func (d *disk) restore(copied string) {
	d.t.Helper()
	d.server.Stop()
	if err := os.RemoveAll(d.dir); err != nil {
		d.t.Fatal(err)
	}
	if err := os.CopyFS(d.dir, os.DirFS(copied)); err != nil {
		d.t.Fatal(err)
	}
	d.server.Start()
}

// purge removes messages from the raw stream.
func (d *disk) purge(options ...jetstream.StreamPurgeOpt) {
	d.t.Helper()
	s, err := d.js.Stream(context.Background(), streams.RawStream)
	if err == nil {
		err = s.Purge(context.Background(), options...)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// deleteStream deletes the raw stream; the connections stay.
func (d *disk) deleteStream() {
	d.t.Helper()
	if err := d.js.DeleteStream(d.t.Context(), streams.RawStream); err != nil {
		d.t.Fatal(err)
	}
}

// followOneLog follows a log of n records, all of which are stored.
func (d *disk) followOneLog(n int) *following {
	d.t.Helper()
	d.write("garden/one.jsonl", lines(prompts("one", 1, n)...))
	f := d.follow()
	f.until("all is stored", func(s ship.Summary) bool { return s.Records == n })
	return f
}

// others stores records of other producers.
func (d *disk) others(n int) {
	d.t.Helper()
	messages := make([]*nats.Msg, n)
	for i := range messages {
		messages[i] = &nats.Msg{Subject: "raw.claude_code.other", Data: []byte(prompt("other", i))}
	}
	pipelinetest.PublishMessages(context.Background(), d.t, d.js, messages...)
}

// forget removes the state of the edge.
func (d *disk) forget() {
	d.t.Helper()
	if err := os.Remove(d.offsets); err != nil {
		d.t.Fatal(err)
	}
}

// wantComplete checks that the raw stream has every record of a session, in order, once.
func (d *disk) wantComplete(session string, n int) {
	d.t.Helper()
	var got []string
	for _, r := range recordsOf(d.all()) {
		if r.Session == session {
			got = append(got, string(r.Data))
		}
	}
	if want := prompts(session, 1, n); strings.Join(got, "\n") != strings.Join(want, "\n") {
		d.t.Errorf("session %s: the stream has %d records, want %d in their order", session, len(got), len(want))
	}
}

func TestWipedBrokerAtTheSameAddressGetsEverything(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.write("garden/one.jsonl", lines(prompts("one", 1, 30)...))
	d.once()
	d.wipe()
	got := d.once()
	if got.Records != 30 || got.Duplicates != 0 || len(got.Losses) != 1 || !got.Losses[0].New {
		t.Errorf("shipped %+v", got)
	}
	d.wantComplete("one", 30)
	if got := d.once(); got.Records != 0 || len(got.Losses) != 0 {
		t.Errorf("then shipped %+v", got)
	}
}

func TestBrokerThatIsWipedWhileLogsAreFollowedGetsEverything(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.write("garden/one.jsonl", lines(prompts("one", 1, 30)...))
	d.write("garden/two.jsonl", lines(prompts("two", 1, 5)...))
	f := d.follow()
	f.until("all is stored", func(s ship.Summary) bool { return s.Records == 35 })
	d.wipe()
	d.append("garden/one.jsonl", lines(prompts("one", 31, 40)...))
	f.until("all is stored again", func(s ship.Summary) bool { return s.Records == 35+45 && len(s.Losses) == 1 && s.Losses[0].New })
	f.stop()
	d.wantComplete("one", 40)
	d.wantComplete("two", 5)
}

// A deleted stream that is created again is another one: its creation time says so.
func TestStreamThatIsCreatedAgainGetsEverything(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.write("garden/one.jsonl", lines(prompts("one", 1, 10)...))
	d.once()
	d.deleteStream()
	d.provision()
	if got := d.once(); got.Records != 10 || got.Duplicates != 0 || len(got.Losses) != 1 {
		t.Errorf("shipped %+v", got)
	}
	d.wantComplete("one", 10)
}

// The connection stays, so only the stall shows that the stream may be another one.
func TestStreamThatIsCreatedAgainWhileLogsAreFollowedGetsEverythingInOrder(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	f := d.followOneLog(30)
	d.deleteStream()
	d.append("garden/one.jsonl", lines(prompts("one", 31, 40)...))
	f.until("the stream is missed", func(s ship.Summary) bool { return s.Stalled != nil })
	d.provision()
	f.until("all is stored again", func(s ship.Summary) bool { return s.Records == 30+40 && len(s.Losses) == 1 })
	f.stop()
	d.wantComplete("one", 40)
}

// A sequence that the stream has given before shows the loss at once.
func TestStreamThatIsCreatedAgainUnnoticedGetsEverything(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	f := d.followOneLog(30)
	d.deleteStream()
	d.provision()
	d.append("garden/one.jsonl", lines(prompts("one", 31, 40)...))
	f.until("all is stored again", func(s ship.Summary) bool { return s.Records >= 30+40 && len(s.Losses) == 1 })
	f.stop()
	got := map[string]int{}
	for _, r := range recordsOf(d.all()) {
		got[string(r.Data)]++
	}
	for _, want := range prompts("one", 1, 40) {
		if got[want] != 1 {
			t.Errorf("%d times in the stream: %s", got[want], want)
		}
	}
}

// Another broker is no loss: each stream has offsets of its own.
func TestTwoBrokersKeepTheirOffsets(t *testing.T) {
	t.Parallel()
	d, other := newDisk(t), newDisk(t)
	other.root, other.offsets = d.root, d.offsets
	d.write("garden/one.jsonl", lines(prompts("one", 1, 10)...))
	for range 2 {
		for i, e := range []*disk{d, other} {
			got := e.once(func(c *ship.Config) { c.Broker = fmt.Sprint("broker ", i) })
			if len(got.Losses) != 0 || got.Duplicates != 0 {
				t.Errorf("shipped %+v", got)
			}
			e.wantComplete("one", 10)
		}
	}
}

func TestSpellingsOfOneBrokerShareTheirOffsets(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.write("garden/one.jsonl", lines(prompts("one", 1, 10)...))
	d.once(func(c *ship.Config) { c.Broker = "nats://localhost:4222" })
	if got := d.once(func(c *ship.Config) { c.Broker = "nats://127.0.0.1" }); got.Records != 0 || len(got.Losses) != 0 {
		t.Errorf("shipped %+v", got)
	}
}

// Without its state, an edge stores a purged stream anew, although the broker remembers the ids
// of the messages that are gone.
func TestPurgedStreamGetsEverythingFromAnEdgeWithoutState(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.write("garden/one.jsonl", lines(prompts("one", 1, 30)...))
	d.once()
	for range 2 { // a purge of what was stored under other ids is the same again
		d.purge()
		d.forget()
		if got := d.once(); got.Records != 30 || got.Duplicates != 0 || got.Revived == 0 {
			t.Errorf("shipped %+v", got)
		}
		d.wantComplete("one", 30)
	}
	// The broker still knows the first ids as those of messages that are gone.
	d.forget()
	if got := d.once(); got.Records != 30 || got.Duplicates != 30 || got.Revived != 0 {
		t.Errorf("then shipped %+v", got)
	}
	d.wantComplete("one", 30)
}

// What was purged on purpose is not shipped again, which is logged once, unless the user asks
// for it.
func TestPurgedRecordsAreShippedAgainOnlyOnRequest(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.write("garden/one.jsonl", lines(prompts("one", 1, 30)...))
	d.once()
	d.purge()
	var log pipelinetest.LogText
	logged := func(c *ship.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
	for range 2 {
		if got := d.once(logged); got.Records != 0 || len(got.Losses) != 0 {
			t.Errorf("shipped %+v", got)
		}
	}
	if n := strings.Count(log.String(), "were purged"); n != 1 {
		t.Errorf("the purge is logged %d times:\n%s", n, log.String())
	}
	d.append("garden/one.jsonl", lines(prompts("one", 31, 32)...))
	if got := d.once(); got.Records != 2 {
		t.Errorf("then shipped %+v", got)
	}
	got := d.once(func(c *ship.Config) { c.Again = true })
	if got.Records != 32 || got.Duplicates != 2 {
		t.Errorf("again shipped %+v", got)
	}
	if got := d.once(); got.Records != 0 {
		t.Errorf("after it shipped %+v", got)
	}
}

// Records that were removed one by one stay removed, also when they are the last.
func TestDeletedRecordsAreNotShippedAgain(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.write("garden/one.jsonl", lines(prompts("one", 1, 10)...))
	d.once()
	s, err := d.js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(5); seq <= s.CachedInfo().State.LastSeq; seq++ {
		if err := s.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.once(); got.Records != 0 || len(got.Losses) != 0 {
		t.Errorf("shipped %+v", got)
	}
}

func TestExpiredRecordsAreNotShippedAgain(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.write("garden/one.jsonl", lines(prompts("one", 1, 30)...))
	d.once()
	d.purge(jetstream.WithPurgeKeep(3))
	if got := d.once(); got.Records != 0 || len(got.Losses) != 0 {
		t.Errorf("shipped %+v", got)
	}
}

// rollBack ships the first records of logs, copies the store, ships more in several runs, and
// puts the copy back.
func (d *disk) rollBack() {
	d.t.Helper()
	d.write("garden/one.jsonl", lines(prompts("one", 1, 120)...))
	d.write("garden/two.jsonl", lines(prompts("two", 1, 10)...))
	d.once()
	copied := d.backUp()
	for n := 121; n <= 241; n += 11 {
		d.append("garden/one.jsonl", lines(prompts("one", n, n+10)...))
		d.once()
	}
	d.write("garden/three.jsonl", lines(prompts("three", 1, 10)...))
	d.once()
	d.restore(copied)
}

func TestRolledBackStreamGetsWhatItHasLost(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.rollBack()
	d.append("garden/one.jsonl", lines(prompts("one", 242, 300)...))
	got := d.once()
	if len(got.Losses) != 1 || got.Losses[0].New || got.Losses[0].Files != 2 {
		t.Errorf("losses %+v", got.Losses)
	}
	if got.Sessions != 2 {
		t.Errorf("records of %d sessions were shipped: the stream has lost nothing of the third", got.Sessions)
	}
	d.wantComplete("one", 300)
	d.wantComplete("two", 10)
	d.wantComplete("three", 10)
	if got := d.once(); got.Records != 0 || len(got.Losses) != 0 {
		t.Errorf("then shipped %+v", got)
	}
}

// The records of other producers have taken the sequences of the lost ones, and more.
func TestRolledBackStreamThatHasGrownSinceGetsWhatItHasLost(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.rollBack()
	d.others(400)
	if got := d.once(); len(got.Losses) != 1 || got.Losses[0].New {
		t.Errorf("losses %+v", got.Losses)
	}
	d.wantComplete("one", 241)
	d.wantComplete("three", 10)
}

// What is left of a log that was truncated since the broker acknowledged it is lost with the stream as well.
func TestRolledBackStreamGetsWhatIsLeftOfATruncatedLog(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.write("garden/one.jsonl", lines(prompts("one", 1, 13)...))
	d.once()
	copied := d.backUp()
	d.append("garden/one.jsonl", lines(prompts("one", 14, 22)...))
	d.once()
	if err := os.Truncate(d.path("garden/one.jsonl"), int64(len(lines(prompts("one", 1, 20)...)))); err != nil {
		t.Fatal(err)
	}
	d.once()
	d.restore(copied)
	if got := d.once(); len(got.Losses) != 1 || got.Losses[0].Files != 1 {
		t.Errorf("losses %+v", got.Losses)
	}
	d.wantComplete("one", 20)
}

// A Ship that follows its logs notices the loss before it publishes anything: the order of each
// session stays.
func TestRollBackWhileLogsAreFollowedIsNoticed(t *testing.T) {
	t.Parallel()
	for _, grown := range []bool{false, true} {
		t.Run(fmt.Sprintf("grown=%v", grown), func(t *testing.T) {
			t.Parallel()
			d := newDisk(t)
			d.write("garden/one.jsonl", lines(prompts("one", 1, 120)...))
			f := d.follow()
			f.until("the first records are stored", func(s ship.Summary) bool { return s.Records == 120 })
			copied := d.backUp()
			for n := 121; n <= 241; n += 11 {
				d.append("garden/one.jsonl", lines(prompts("one", n, n+10)...))
				f.until("more records are stored", func(s ship.Summary) bool { return s.Records == n+10 })
			}
			if grown {
				// The other producers come before the edge does.
				f.stop()
				d.restore(copied)
				d.others(300)
				f = d.follow()
			} else {
				d.restore(copied)
			}
			shipped := f.ship.Summary().Records
			d.append("garden/one.jsonl", lines(prompts("one", 242, 300)...))
			f.until("the loss is noticed and repaired", func(s ship.Summary) bool {
				return len(s.Losses) == 1 && s.Records-shipped >= 300-120
			})
			f.stop()
			d.wantComplete("one", 300)
		})
	}
}

// downgrade writes the offsets as version 2 of the format has them: it knew the stream, and wrote one JSON value.
func (d *disk) downgrade() {
	d.t.Helper()
	data := readOffsets(d.t, d.offsets).downgraded(d.t)
	d.forget()
	if err := os.WriteFile(d.offsets, data, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func TestOffsetsOfVersion2AreTakenOver(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.write("garden/one.jsonl", lines(prompts("one", 1, 120)...))
	d.once()
	want := readOffsets(t, d.offsets).done()
	d.downgrade()
	file, err := offsets.Read(t.Context(), offsets.Config{Path: d.offsets, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	taken := file.Latest()
	for path, done := range want {
		if got := taken.At(path).Done; got != done {
			t.Errorf("%s is shipped up to %d, want %d", path, got, done)
		}
	}
	if len(want) != 1 {
		t.Errorf("%d offsets", len(want))
	}
	copied := d.backUp()
	d.append("garden/one.jsonl", lines(prompts("one", 121, 140)...))
	if got := d.once(); got.Records != 20 || got.Duplicates != 0 {
		t.Errorf("shipped %+v", got)
	}
	d.restore(copied)
	if got := d.once(); got.Records != 20 || len(got.Losses) != 1 {
		t.Errorf("after a loss shipped %+v", got)
	}
	d.wantComplete("one", 140)
}

func TestOnceWithoutARawStreamFailsWithTheCure(t *testing.T) {
	t.Parallel()
	srv := pipelinetest.NewServer(t)
	dir := t.TempDir()
	e := &edge{t: t, server: srv, js: srv.JetStream(), root: filepath.Join(dir, "projects"), offsets: filepath.Join(dir, "offsets.json")}
	e.mkdir("garden")
	e.write("garden/one.jsonl", lines(prompts("one", 1, 3)...))
	c := e.config()
	c.Once = true
	s, err := ship.New(e.js.Conn(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.Run(ctx); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "tributary run") {
		t.Errorf("error is %v", err)
	}
}

// An edge that may not read messages of the raw stream ships, and notices a stream that is
// shorter than what it has acknowledged. One that may not read the state of the stream waits,
// and names the right.
func TestRightsThatAreMissingAreNamed(t *testing.T) {
	t.Parallel()
	options := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	for user, subjects := range map[string][]string{
		"all": {">"}, "ends": {"raw.>", "$JS.API.STREAM.INFO.RAW"}, "blind": {"raw.>"},
	} {
		options.Users = append(options.Users, &server.User{Username: user, Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: subjects}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}})
	}
	broker, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	broker.Start()
	t.Cleanup(func() { broker.Shutdown(); broker.WaitForShutdown() })
	as := func(user string) jetstream.JetStream {
		return pipelinetest.Connect(t, broker.ClientURL(), nats.UserInfo(user, "p"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	}
	dir := t.TempDir()
	e := &edge{t: t, js: as("all"), root: filepath.Join(dir, "projects"), offsets: filepath.Join(dir, "offsets.json")}
	if err := streams.Provision(t.Context(), e.js, streams.Topology{Generation: "v1", Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	e.mkdir("garden")
	e.write("garden/one.jsonl", lines(prompts("one", 1, 3)...))
	e.js = as("ends")
	e.once()
	e.append("garden/one.jsonl", lines(prompts("one", 4, 5)...))
	var log pipelinetest.LogText
	got := e.once(func(c *ship.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if got.Records != 2 || len(got.Losses) != 0 || strings.Count(log.String(), "STREAM.MSG.GET.RAW") != 1 {
		t.Errorf("shipped %+v, logged\n%s", got, log.String())
	}
	e.append("garden/one.jsonl", lines(prompts("one", 6, 7)...))
	f := e.followBy(as("blind").Conn())
	f.until("the right is named", func(s ship.Summary) bool {
		return s.Stalled != nil && strings.Contains(s.Stalled.Error(), "$JS.API.STREAM.INFO.RAW")
	})
}
