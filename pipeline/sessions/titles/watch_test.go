package titles_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
)

// watcher runs [titles.Watch] until the test ends.
type watcher struct{ updates chan titles.Update }

func watching(t *testing.T, js jetstream.JetStream, from uint64) *watcher {
	t.Helper()
	return startWatcher(t, func(ctx context.Context, w *watcher) {
		for u, err := range titles.Watch(ctx, js, from) {
			if err != nil {
				t.Error(err)
			}
			w.updates <- u
		}
	})
}

// outliving is [watching] by a program that outlives its broker: where [titles.Watch] has ended because the broker did not
// answer in time, it goes on from the cursor.
func outliving(t *testing.T, js jetstream.JetStream) *watcher {
	t.Helper()
	return startWatcher(t, func(ctx context.Context, w *watcher) {
		for cursor := uint64(0); ctx.Err() == nil; _ = broker.Pause(ctx, 10*time.Millisecond) {
			for u, err := range titles.Watch(ctx, js, cursor) {
				if err != nil {
					if !broker.Unavailable(err) {
						t.Error(err)
					}
					continue
				}
				cursor = u.Cursor
				w.updates <- u
			}
		}
	})
}

func startWatcher(t *testing.T, run func(context.Context, *watcher)) *watcher {
	t.Helper()
	w := &watcher{make(chan titles.Update, 1000)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx, w)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

// expect waits for the next update, which must be of a kind.
func (w *watcher) expect(t *testing.T, kind titles.UpdateKind) titles.Update {
	t.Helper()
	select {
	case u := <-w.updates:
		if u.Kind != kind {
			t.Fatalf("update %+v, want %s", u, kind)
		}
		return u
	case <-deadline(t).Done():
		t.Fatalf("no %s arrives", kind)
		return titles.Update{}
	}
}

func lateWatcherGetsTheLastState(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	want := map[string]titles.Metadata{}
	for _, id := range []string{"a", "b. *>", "c"} {
		k := f.session(t, id)
		for i := range 3 {
			if _, err := f.SetTitle(t.Context(), k, fmt.Sprintf("%s %d", id, i)); err != nil {
				t.Fatal(err)
			}
			if _, err := f.SetPinned(t.Context(), k, i%2 == 0); err != nil {
				t.Fatal(err)
			}
		}
		want[id] = titles.Metadata{Title: id + " 2", TitleVersion: 3, Pinned: true, MetadataVersion: 6}
	}
	for _, kept := range []bool{true, false} {
		if !kept {
			f.forget(t, lastSequence(t, f.js))
		}
		w := watching(t, f.js, 0)
		got := map[string]titles.Metadata{}
		for range want {
			u := w.expect(t, titles.Snapshot)
			got[u.Session.SessionID] = u.Session.Metadata
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if u := w.expect(t, titles.Synced); u.Cursor != lastSequence(t, f.js) {
			t.Errorf("cursor %d, want %d", u.Cursor, lastSequence(t, f.js))
		}
	}
}

// forget removes the changes up to a sequence, as their TTL does.
func (f *fixture) forget(t *testing.T, upTo uint64) {
	t.Helper()
	s, err := f.js.Stream(t.Context(), streams.SessionsStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSubject("sessions.*.*.changes"), jetstream.WithPurgeSequence(upTo+1)); err != nil {
		t.Fatal(err)
	}
}

// Watchers in processes of their own begin while a session is renamed as fast as possible.
func changeIsInTheSnapshotOrLive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	for i := range 50 {
		if _, err := f.SetTitle(t.Context(), f.session(t, fmt.Sprintf("other %d", i)), "x"); err != nil {
			t.Fatal(err)
		}
	}
	const watchers = 4
	synced := make(chan struct{}, watchers)
	processes := make([]*pipelinetest.Process, watchers)
	for i := range processes {
		processes[i] = pipelinetest.StartProcess(t, watcherProgram, processConfig{URL: f.server.URL(), Key: k, Until: "last"})
		go func() {
			processes[i].AwaitReady()
			synced <- struct{}{}
		}()
	}
	version := uint64(0)
	for ready := 0; ready < watchers; {
		select {
		case <-synced:
			ready++
		default:
		}
		c, err := f.SetTitle(t.Context(), k, fmt.Sprintf("Title %d", version))
		if err != nil {
			t.Fatal(err)
		}
		version = c.TitleVersion
	}
	if _, err := f.SetTitle(t.Context(), k, "last"); err != nil {
		t.Fatal(err)
	}
	version++
	for _, p := range processes {
		if code := p.AwaitEnd(); code != 0 {
			t.Fatalf("exit code %d:\n%s", code, p.Output())
		}
		var seen watched
		if err := json.Unmarshal([]byte(afterPrefix(t, p.Output(), "seen ")), &seen); err != nil {
			t.Fatal(err)
		}
		t.Logf("snapshot at %d, %d changes", seen.Snapshot, len(seen.Changes))
		for i, v := range seen.Changes {
			if v != seen.Snapshot+uint64(i)+1 {
				t.Fatalf("change %d behind snapshot %d has version %d", i, seen.Snapshot, v)
			}
		}
		if got := seen.Snapshot + uint64(len(seen.Changes)); got != version {
			t.Errorf("the last version is %d, want %d", got, version)
		}
	}
}

func watchResumesOrResets(t *testing.T) {
	t.Parallel()
	t.Run("resumes_behind_each_change", resumesBehindEachChange)
	t.Run("resumes_behind_an_empty_snapshot", resumesBehindAnEmptySnapshot)
	t.Run("resets_when_changes_expired", resetsWhenChangesExpired)
	t.Run("resets_when_a_change_between_expired", resetsWhenAChangeBetweenExpired)
	t.Run("goes_on_when_only_the_cursor_expired", goesOnWhenOnlyTheCursorExpired)
	t.Run("resets_on_another_stream", resetsOnAnotherStream)
	t.Run("resets_a_watcher_that_is_too_slow", resetsASlowWatcher)
}

func resumesBehindEachChange(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(t, "a"), f.session(t, "b")
	for i := range 4 {
		for _, k := range []titles.Key{a, b} {
			if _, err := f.SetTitle(t.Context(), k, strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := changes(t, f.js)
	for i, from := range all {
		w := watching(t, f.js, from.Sequence)
		for _, want := range all[i+1:] {
			if u := w.expect(t, titles.Changed); u.Cursor != want.Sequence || u.Change.ID != want.ID {
				t.Fatalf("behind %d: %+v, want %d", from.Sequence, u, want.Sequence)
			}
		}
	}
	// The last one waits for what is new.
	w := watching(t, f.js, all[len(all)-1].Sequence)
	c, err := f.SetPinned(t.Context(), b, true)
	if err != nil {
		t.Fatal(err)
	}
	if u := w.expect(t, titles.Changed); u.Change.ID != c.ID {
		t.Errorf("%+v", u.Change)
	}
}

// A watcher that has ended on a stream without records continues with the first change, not with a second snapshot.
func resumesBehindAnEmptySnapshot(t *testing.T) {
	f := newFixture(t)
	k := f.session(t, "a")
	cursor := watching(t, f.js, 0).expect(t, titles.Synced).Cursor
	waiting := watching(t, f.js, cursor)
	first := f.rename(t, k, "1")
	for _, w := range []*watcher{waiting, watching(t, f.js, cursor)} {
		if u := w.expect(t, titles.Changed); u.Change.ID != first.ID {
			t.Errorf("%+v, want %+v", u.Change, first)
		}
	}
}

// awaitChanges waits until the stream has a number of changes.
func (f *fixture) awaitChanges(t *testing.T, count int) {
	t.Helper()
	poll(t, "expiry", func() bool { return len(changes(t, f.js)) == count })
}

func (f *fixture) rename(t *testing.T, k titles.Key, title string) *titles.Change {
	t.Helper()
	c, err := f.SetTitle(t.Context(), k, title)
	if err != nil || c == nil {
		t.Fatalf("%+v, %v", c, err)
	}
	return c
}

func resetsWhenChangesExpired(t *testing.T) {
	f := newFixture(t)
	k, other := f.session(t, "a"), f.session(t, "b")
	f.SetTTL(time.Second)
	first := f.rename(t, k, "1")
	f.rename(t, k, "2")
	last := f.rename(t, other, "1")
	f.awaitChanges(t, 0)
	if r := f.get(t, k); r.Title != "2" {
		t.Errorf("the record expires, too: %+v", r)
	}
	for _, from := range []uint64{1, first.Sequence} {
		w := watching(t, f.js, from)
		w.expect(t, titles.Reset)
		if u := w.expect(t, titles.Snapshot); u.Session.Title != "2" {
			t.Errorf("%+v", u)
		}
		w.expect(t, titles.Snapshot)
		if u := w.expect(t, titles.Synced); u.Cursor != last.Sequence {
			t.Errorf("%+v, want %d", u, last.Sequence)
		}
	}
	f.SetTTL(time.Hour)
	w := watching(t, f.js, last.Sequence) // nothing is missing behind it
	c := f.rename(t, k, "3")
	if u := w.expect(t, titles.Changed); u.Change.ID != c.ID {
		t.Errorf("%+v", u)
	}
}

func resetsWhenAChangeBetweenExpired(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(t, "a"), f.session(t, "b")
	f.SetTTL(time.Second)
	cursor := f.rename(t, a, "1").Sequence
	f.rename(t, b, "missed")
	f.awaitChanges(t, 0)
	f.SetTTL(time.Hour)
	f.rename(t, b, "kept")
	w := watching(t, f.js, cursor)
	w.expect(t, titles.Reset)
	w.expect(t, titles.Snapshot)
	if u := w.expect(t, titles.Snapshot); u.Session.Title != "kept" {
		t.Errorf("%+v", u)
	}
	w.expect(t, titles.Synced)
}

func goesOnWhenOnlyTheCursorExpired(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(t, "a"), f.session(t, "b")
	f.SetTTL(time.Second)
	f.rename(t, b, "seen")
	cursor := f.rename(t, a, "1").Sequence
	f.awaitChanges(t, 0)
	f.SetTTL(time.Hour)
	kept := f.rename(t, b, "kept")
	w := watching(t, f.js, cursor)
	if u := w.expect(t, titles.Changed); u.Change.ID != kept.ID {
		t.Errorf("%+v", u)
	}
}

func resetsOnAnotherStream(t *testing.T) {
	f := newFixture(t)
	f.rename(t, f.session(t, "a"), "1")
	w := watching(t, f.js, 1000)
	w.expect(t, titles.Reset)
	w.expect(t, titles.Snapshot)
	w.expect(t, titles.Synced)
}

// A watcher handles one change and loses its connection while a later one is stored and
// expires.
func resetsASlowWatcher(t *testing.T) {
	f := newFixture(t)
	k := f.session(t, "a")
	proxy := pipelinetest.NewProxy(t, f.server)
	js := pipelinetest.Connect(t, proxy.URL())
	f.SetTTL(time.Second)
	var kinds []titles.UpdateKind
	for u, err := range titles.Watch(deadline(t), js, 0) {
		if err != nil {
			t.Fatal(err)
		}
		switch kinds = append(kinds, u.Kind); len(kinds) {
		case 1: // Synced
			f.rename(t, k, "handled slowly")
		case 2:
			proxy.Break()
			f.rename(t, k, "missed")
			f.awaitChanges(t, 0)
			f.SetTTL(time.Hour)
			f.rename(t, k, "kept")
			proxy.Mend()
		case 4:
			if u.Session.Title != "kept" {
				t.Errorf("%+v", u)
			}
		}
		if len(kinds) == 5 {
			break
		}
	}
	want := []titles.UpdateKind{titles.Synced, titles.Changed, titles.Reset, titles.Snapshot, titles.Synced}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
}

// afterPrefix returns the rest of the line that has a prefix.
func afterPrefix(t *testing.T, output, prefix string) string {
	t.Helper()
	for line := range strings.Lines(output) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("no %q in the output:\n%s", prefix, output)
	return ""
}
