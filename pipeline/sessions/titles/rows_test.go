package titles_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// request sends a request to an endpoint and returns the body and the error code of the answer.
func (f *fixture) request(tb testing.TB, endpoint, body string) (answer, code string) {
	tb.Helper()
	m, err := f.js.Conn().RequestWithContext(deadline(tb), titles.SubjectPrefix+endpoint, []byte(body))
	if err != nil {
		tb.Fatalf("%s: %v", endpoint, err)
	}
	return string(m.Data), m.Header.Get("Nats-Service-Error-Code")
}

// fill limits the stream to the messages that it has.
func (f *fixture) fill(t *testing.T) {
	t.Helper()
	s, err := f.js.Stream(t.Context(), streams.SessionsStream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Discard, cfg.MaxMsgs = jetstream.DiscardNew, int64(s.CachedInfo().State.Msgs)
	if _, err := f.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

func storageErrorStoresNoChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	if _, err := f.SetTitle(t.Context(), k, "First"); err != nil {
		t.Fatal(err)
	}
	f.fill(t)
	before := lastSequence(t, f.js)
	_, err := f.SetTitle(t.Context(), k, "Second")
	if !errors.Is(err, titles.ErrStorage) || !strings.HasPrefix(err.Error(), "storage error: save_session: ") {
		t.Errorf("error is %v", err)
	}
	if r := f.get(t, k); r.Title != "First" || r.MetadataVersion != 1 {
		t.Errorf("record %+v", r)
	}
	if after := lastSequence(t, f.js); after != before || len(changes(t, f.js)) != 1 {
		t.Errorf("the stream goes on from %d to %d", before, after)
	}
	if err := f.js.DeleteStream(t.Context(), streams.SessionsStream); err != nil {
		t.Fatal(err)
	}
	_, err = f.SetPinned(t.Context(), k, true)
	if !errors.Is(err, titles.ErrStorage) || !strings.HasPrefix(err.Error(), "storage error: load_session: ") {
		t.Errorf("error is %v", err)
	}
}

func generatedTitleReplacesNoTitle(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	apply := func(title string, force bool) *titles.Change {
		t.Helper()
		c, err := f.ApplyGeneratedTitle(t.Context(), k, title, titles.SourceAuto, force)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, step := range []struct {
		title   string
		force   bool
		applied bool
	}{
		{"  ", false, false},
		{"  ", true, false},
		{"First", false, true}, // there is no title
		{"Second", false, false},
		{"Second", true, true},
		{"Second", true, false}, // equal
		{"New Session", true, true},
		{"Third", false, true}, // over a placeholder
	} {
		if c := apply(step.title, step.force); (c != nil) != step.applied {
			t.Errorf("%+v: change %+v", step, c)
		}
	}
	if _, err := f.ApplyGeneratedTitle(t.Context(), k, "x", "model", true); !errors.Is(err, titles.ErrInvalid) {
		t.Errorf("error of an unknown source is %v", err)
	}
	if _, err := f.ApplyGeneratedTitle(t.Context(), titles.Key{Source: k.Source, SessionID: "missing"}, " ", titles.SourceAuto, true); err != nil {
		t.Errorf("an empty candidate is the error %v", err)
	}
}

func changeStatesTheSource(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	if _, err := f.ApplyGeneratedTitle(t.Context(), k, "a", titles.SourceFallback, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ApplyGeneratedTitle(t.Context(), k, "b", titles.SourceAuto, true); err != nil {
		t.Fatal(err)
	}
	if _, err := f.SetTitle(t.Context(), k, "c"); err != nil {
		t.Fatal(err)
	}
	var got []titles.TitleSource
	for _, c := range changes(t, f.js) {
		got = append(got, c.TitleSource)
	}
	want := []titles.TitleSource{titles.SourceFallback, titles.SourceAuto, titles.SourceManual}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func versionsCountAndSaturate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	if _, err := f.SetTitle(t.Context(), k, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.SetPinned(t.Context(), k, true); err != nil {
		t.Fatal(err)
	}
	if r := f.get(t, k); r.TitleVersion != 1 || r.MetadataVersion != 2 {
		t.Errorf("record %+v", r)
	}
	last := titles.Key{Source: envelopes.Gemini, SessionID: "last"}
	f.put(t, titles.Session{Source: last.Source, SessionID: last.SessionID, Metadata: titles.Metadata{
		Title: "a", TitleVersion: math.MaxUint64, MetadataVersion: math.MaxUint64,
	}})
	c, err := f.SetTitle(t.Context(), last, "b")
	if err != nil || c == nil || c.TitleVersion != math.MaxUint64 || c.MetadataVersion != math.MaxUint64 {
		t.Errorf("%+v, %v", c, err)
	}
	if r := f.get(t, last); r.Title != "b" || r.TitleVersion != math.MaxUint64 || r.MetadataVersion != math.MaxUint64 {
		t.Errorf("record %+v", r)
	}
}

func updatedAtIsTheTimeOfTheCommit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	clock := time.Date(2026, 5, 31, 2, 0, 0, 123_456_789, time.FixedZone("", 7200))
	s, err := titles.New(f.js, titles.Config{Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.SetTitle(t.Context(), k, "a")
	if err != nil {
		t.Fatal(err)
	}
	want := time.Date(2026, 5, 31, 0, 0, 0, 123_456_000, time.UTC)
	if r := f.get(t, k); !r.UpdatedAt.Equal(want) || !c.UpdatedAt.Equal(want) {
		t.Errorf("record %v, change %v, want %v", r.UpdatedAt, c.UpdatedAt, want)
	}
	clock = clock.Add(-time.Hour) // of a replica whose clock is behind
	if c, err = s.SetPinned(t.Context(), k, true); err != nil || !c.UpdatedAt.Equal(want) {
		t.Errorf("the time goes back to %v, %v", c.UpdatedAt, err)
	}
}

func changeEqualsTheRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	for i := range 6 {
		var err error
		if i%3 == 2 {
			_, err = f.SetPinned(t.Context(), k, i == 2)
		} else {
			_, err = f.SetTitle(t.Context(), k, fmt.Sprintf("Title %d", i))
		}
		if err != nil {
			t.Fatal(err)
		}
		r, all := f.get(t, k), changes(t, f.js)
		c := all[len(all)-1]
		if c.Sequence != r.Revision+1 {
			t.Fatalf("change %d is not stored with record %d", c.Sequence, r.Revision)
		}
		if c.MetadataVersion != r.MetadataVersion || !c.UpdatedAt.Equal(r.UpdatedAt) || c.Source != r.Source || c.SessionID != r.SessionID {
			t.Errorf("change %+v of record %+v", c, r)
		}
		if c.Type == titles.TitleUpdated && (c.Title != r.Title || c.TitleVersion != r.TitleVersion || c.TitleSource != r.TitleSource) ||
			c.Type == titles.PinnedUpdated && c.Pinned != r.Pinned {
			t.Errorf("change %+v of record %+v", c, r)
		}
	}
}

func renamesInOneProcessAreSerialized(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	var both sync.WaitGroup
	for _, title := range []string{"A", "B"} {
		both.Go(func() {
			if _, err := f.SetTitle(t.Context(), k, title); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	requireVersions(t, changes(t, f.js), 2)
}

// requireVersions requires that changes are those of the title versions 1 to count, in order.
func requireVersions(tb testing.TB, all []*titles.Change, count int) {
	tb.Helper()
	if len(all) != count {
		tb.Fatalf("%d changes, want %d", len(all), count)
	}
	ids := map[string]bool{}
	for i, c := range all {
		if c.TitleVersion != uint64(i+1) || ids[c.ID] {
			tb.Fatalf("change %d: %+v", i, c)
		}
		ids[c.ID] = true
	}
}

func waitingCallDelaysNoOtherSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.session(t, "slow")
	fast := f.session(t, "fast")
	s, waits, release := f.waitingService(t, 1)
	serving(t, s, f.js.Conn())
	waiting := make(chan string, 1)
	go func() {
		body, _ := f.request(t, "set_title", `{"source":"claude_code","session_id":"slow","title":"Late"}`)
		waiting <- body
	}()
	await(t, waits)
	for i := range 20 {
		if body, _ := f.request(t, "set_title", fmt.Sprintf(`{"source":"claude_code","session_id":"fast","title":"Title %d"}`, i)); !strings.Contains(body, `"applied":true`) {
			t.Fatal(body)
		}
	}
	select {
	case body := <-waiting:
		t.Errorf("the call did not wait: %s", body)
	default:
	}
	if r := f.get(t, fast); r.TitleVersion != 20 {
		t.Errorf("record %+v", r)
	}
	release()
	if body := <-waiting; !strings.Contains(body, `"applied":true`) {
		t.Error(body)
	}
}

func renameBeatsGeneratedTitle(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	g := newGate()
	gated := newService(t, f.server.JetStream(nats.SetCustomDialer(g)))
	type result struct {
		change *titles.Change
		err    error
	}
	generated := make(chan result, 1)
	go func() {
		c, err := gated.ApplyGeneratedTitle(t.Context(), k, "Generated", titles.SourceAuto, false)
		generated <- result{c, err}
	}()
	<-g.held // it has found the session untitled
	if _, err := f.SetTitle(t.Context(), k, "Of the user"); err != nil {
		t.Fatal(err)
	}
	close(g.release)
	if r := <-generated; r.change != nil || r.err != nil {
		t.Errorf("%+v, %v", r.change, r.err)
	}
	if n := gated.Conflicts(); n != 1 {
		t.Errorf("%d conflicts, want 1", n)
	}
	if r := f.get(t, k); r.Title != "Of the user" || r.MetadataVersion != 1 || len(changes(t, f.js)) != 1 {
		t.Errorf("record %+v", r)
	}
}

// normalize runs a stage over records until they are done.
func (f *fixture) normalize(t *testing.T, records []core.Record) {
	t.Helper()
	pipelinetest.Publish(t, f.js, records...)
	stage, err := worker.New(f.js, worker.Config{Topology: topology})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- stage.Run(t.Context()) }()
	if err := replay.CatchUp(deadline(t), f.js, topology); err != nil {
		t.Fatal(err)
	}
	stage.Drain()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func stageChangesNoMetadata(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	records := pipelinetest.Workload(1, 1, 100)
	k := titles.Key{Source: records[0].Source, SessionID: records[0].Session}
	f.normalize(t, records[:10])
	if _, err := f.SetTitle(t.Context(), k, "Mine"); err != nil {
		t.Fatal(err)
	}
	before := f.get(t, k)
	f.normalize(t, records[10:])
	if diff := cmp.Diff(before, f.get(t, k)); diff != "" {
		t.Error(diff)
	}
	if n := lastSequence(t, f.js); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

func staleCopyCannotUnpin(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	records := pipelinetest.Workload(2, 1, 30)
	k := titles.Key{Source: records[0].Source, SessionID: records[0].Session}
	f.normalize(t, records[:10])
	stale := f.get(t, k)
	if _, err := f.SetPinned(t.Context(), k, true); err != nil {
		t.Fatal(err)
	}
	f.normalize(t, records[10:])
	stored := f.get(t, k)
	if saved := titles.Merge(&stored.Metadata, stale.Metadata); !saved.Pinned || saved.MetadataVersion != 1 {
		t.Errorf("saved %+v", saved)
	}
}

func getReturnsWhatWasJustSet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	other := newService(t, f.server.JetStream())
	for i := range 20 {
		title := fmt.Sprintf("Title %d", i)
		if _, err := f.SetTitle(t.Context(), k, title); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*titles.Service{f.Service, other} {
			if r, err := s.Get(t.Context(), k); err != nil || r.Title != title {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	}
}

func sessionWithoutAStageHasChanges(t *testing.T) {
	t.Parallel()
	f := newFixture(t) // no stage runs
	k := f.session(t, "s1")
	w := watching(t, f.js, 0)
	w.expect(t, titles.Synced)
	if _, err := f.SetTitle(t.Context(), k, "Mine"); err != nil {
		t.Fatal(err)
	}
	if u := w.expect(t, titles.Changed); u.Change.Title != "Mine" {
		t.Errorf("%+v", u.Change)
	}
}

func partialMessagesAreNoChanges(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var records []core.Record
	for i, line := range []string{
		`{"type":"stream_event","session_id":"s1","event":{"type":"message_start","message":{"id":"m","model":"x","role":"assistant","content":[]}}}`,
		`{"type":"stream_event","session_id":"s1","event":{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}}`,
		`{"type":"stream_event","session_id":"s1","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}}`,
		`{"type":"stream_event","session_id":"s1","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo"}}}`,
		`{"type":"stream_event","session_id":"s1","event":{"type":"content_block_stop","index":0}}`,
		`{"type":"stream_event","session_id":"s1","event":{"type":"message_stop"}}`,
	} {
		records = append(records, core.Record{
			Source: envelopes.ClaudeCode, Session: "s1", Data: []byte(line),
			Origin: core.Origin{File: "f", Position: int64(i), Previous: int64(i) - 1},
		})
	}
	f.normalize(t, append(records, core.Record{
		Source: envelopes.ClaudeCode, Session: "s1", Origin: core.Origin{File: "f", End: true},
	}))
	k := titles.Key{Source: envelopes.ClaudeCode, SessionID: "s1"}
	f.get(t, k) // the session has an event
	if n := lastSequence(t, f.js); n != 0 {
		t.Fatalf("%d messages are stored", n)
	}
	if _, err := f.SetTitle(t.Context(), k, "Mine"); err != nil {
		t.Fatal(err)
	}
	requireVersions(t, changes(t, f.js), 1)
}

func staleVersionConflicts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	if _, err := f.SetTitle(t.Context(), k, "A", titles.IfMatch(0)); err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func() (*titles.Change, error){
		"title": func() (*titles.Change, error) { return f.SetTitle(t.Context(), k, "B", titles.IfMatch(0)) },
		"equal title": func() (*titles.Change, error) {
			return f.SetTitle(t.Context(), k, "A", titles.IfMatch(7))
		},
		"generated title": func() (*titles.Change, error) {
			return f.ApplyGeneratedTitle(t.Context(), k, "B", titles.SourceAuto, true, titles.IfMatch(2))
		},
		"pin": func() (*titles.Change, error) {
			return f.SetPinned(t.Context(), k, true, titles.IfMatch(0))
		},
	} {
		var conflict *titles.VersionConflictError
		if c, err := call(); c != nil || !errors.As(err, &conflict) || conflict.Current != 1 {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
	}
	serving(t, f.Service, f.js.Conn())
	want := `{"code":"409","error":"version conflict: expected 0, current 1","expected_version":0,"current_version":1}`
	if body, code := f.request(t, "set_title", `{"source":"claude_code","session_id":"s1","title":"B","if_match":0}`); body != want || code != "409" {
		t.Errorf("answer %s, code %s", body, code)
	}
	if _, err := f.SetPinned(t.Context(), k, true, titles.IfMatch(1)); err != nil {
		t.Error(err)
	}
	if n := len(changes(t, f.js)); n != 2 {
		t.Errorf("%d changes, want 2", n)
	}
}
