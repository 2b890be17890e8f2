package pipeline_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers"
	"tributary/pipeline"
	"tributary/pipeline/objects"
	"tributary/pipeline/pipelinetest"
)

// folderOf returns an empty folder.
func folderOf(t *testing.T) objects.Store {
	t.Helper()
	return objects.Folder{Dir: filepath.Join(t.TempDir(), "archives")}
}

// bucketOf returns a part of the bucket of a store. A request that it does not take fails at once.
func bucketOf(s *pipelinetest.ObjectStore) objects.Store {
	return &objects.Bucket{Client: s.Client, Name: pipelinetest.Bucket, Prefix: "states", Limit: 1, Logger: slog.New(slog.DiscardHandler)}
}

// archivesOf returns the objects of the archives in a place.
func archivesOf(t *testing.T, place objects.Store, js jetstream.JetStream) []string {
	t.Helper()
	stream, err := js.Stream(t.Context(), pipeline.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := place.List(t.Context(), fmt.Sprintf("v1-%x", stream.CachedInfo().Created.UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range list {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return names
}

// one returns a record of each of so many sessions.
func one(sessions int, text string) (records []normalizers.Record) {
	for i := range sessions {
		records = append(records, user(fmt.Sprintf("s%d", i), text))
	}
	return records
}

// An archive has one object: what was replaced is removed, and so is what a worker has left behind that died
// before its message was stored. Archives that were in the events stream leave it with their next move.
func TestReplacedArchivesAreRemoved(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	runArchiving(t, js, archiving(top), 0, one(10, "one")...)
	versions := func() (of []byte) {
		for _, m := range stored(t, js, "archives.>") {
			of = append(of, m.Data[0])
		}
		return of
	}
	if got := versions(); !bytes.Equal(got, bytes.Repeat([]byte{1}, 10)) {
		t.Errorf("versions of archives in the events stream: %v", got)
	}

	place := folderOf(t)
	cfg := archiving(top)
	cfg.Archives = place
	move := func(text string) []string {
		pipelinetest.Publish(t, js, one(10, text)...)
		s := start(t, js, cfg)
		if err := pipeline.CatchUp(deadline(t), js, top); err != nil {
			t.Fatal(err)
		}
		awaitStates(t, js, 0)
		s.stop(t)
		return archivesOf(t, place, js)
	}
	before := move("two")
	if len(before) != 10 {
		t.Errorf("10 archives have %d objects", len(before))
	}
	orphan := filepath.Dir(before[3]) + "/orphan"
	if err := place.Put(t.Context(), orphan, []byte("of a worker that has died")); err != nil {
		t.Fatal(err)
	}
	if n := len(move("three")); n != 21 { // what it replaces stays: an older copy of the broker may name it
		t.Errorf("%d objects of 10 archives that were replaced just now", n)
	}
	cfg = pipeline.ReplacingAtOnce(cfg)
	after := move("four") // what that replaces stays, too
	if len(after) != 20 || slices.Contains(after, orphan) {
		t.Errorf("objects of 10 archives: %v", after)
	}
	for _, name := range before {
		if slices.Contains(after, name) {
			t.Errorf("%s was replaced twice and is there", name)
		}
	}
	if got := versions(); !bytes.Equal(got, bytes.Repeat([]byte{2}, 10)) {
		t.Errorf("versions of archives outside: %v", got)
	}
	pipelinetest.Expectation{Topology: top, Archives: place}.RequireExact(t, js)
}

// While the place does not answer, sessions that are new go on, also those that belong to the archives there. A late record
// waits, and nothing becomes a dead letter.
func TestLateRecordsWaitForTheirArchive(t *testing.T) {
	t.Parallel()
	top := topology(1)
	same := sameArchive(10)
	js := pipelinetest.NewServer(t).Provision(top)
	store := pipelinetest.NewObjectStore(t)
	cfg := archiving(top)
	cfg.Archives = bucketOf(store)
	var old, late, fresh []normalizers.Record
	for i, session := range same {
		if i%2 == 0 {
			old, late = append(old, user(session, "one")), append(late, user(session, "two"))
		} else {
			fresh = append(fresh, user(session, "one"))
		}
	}
	runArchiving(t, js, cfg, 0, old...)

	store.Intercept(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		pipelinetest.RefuseObject(w, http.StatusServiceUnavailable, "SlowDown")
	})
	cfg.ArchiveAfter = 0
	s := start(t, js, cfg)
	pipelinetest.Publish(t, js, fresh...)
	x := pipelinetest.Expectation{Topology: top, Archives: bucketOf(store)}
	if err := pipeline.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	pipelinetest.Publish(t, js, late...)
	for ctx := deadline(t); s.Ready() == nil; {
		if ctx.Err() != nil {
			t.Fatal("the worker is ready without the archives that it waits for")
		}
	}
	if err := s.Ready(); err == nil || !errors.Is(err, pipeline.ErrArchives) || !strings.Contains(err.Error(), "SlowDown") {
		t.Errorf("the worker waits because %v", err)
	}
	store.Intercept(nil)
	x.RequireExact(t, js)
	s.stop(t)
	if n := len(letters(t, js, pipeline.DeadLettersQuery{Archives: cfg.Archives})); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// An archive whose object is missing or has other bytes costs the sessions that are in it.
func TestDamagedObjectCostsOnlyItsSessions(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	place := objects.Folder{Dir: t.TempDir()}
	cfg := archiving(top)
	cfg.Archives = place
	runArchiving(t, js, cfg, 0, one(10, "one")...)
	names := archivesOf(t, place, js)
	if err := os.Remove(filepath.Join(place.Dir, names[0])); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(place.Dir, names[1]), []byte("other bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	pipelinetest.Publish(t, js, one(10, "two")...)
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := start(t, js, cfg)
	if err := pipeline.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	awaitStates(t, js, 0)
	s.stop(t)
	dead := letters(t, js, pipeline.DeadLettersQuery{Reason: "state", Archives: place})
	if len(dead) != 2 {
		t.Errorf("%d dead letters, want one of each of 2 sessions", len(dead))
	}
	for _, want := range []string{names[0] + " of " + place.Dir + " is missing", names[1] + " of " + place.Dir + " has other bytes"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log.String())
		}
	}
	var whole int
	for i := range 10 {
		if slices.Equal(texts(t, js, "v1", fmt.Sprintf("s%d", i)), []string{"one", "two"}) {
			whole++
		}
	}
	if whole != 8 {
		t.Errorf("%d sessions went on, want 8", whole)
	}
}

// A worker refuses to begin without the place of the archives, or with another one: it would take sessions for new, or for
// lost. A drop of the generation needs it, too, and removes what is there.
func TestPlaceOfArchivesIsChecked(t *testing.T) {
	t.Parallel()
	top := topology(2)
	top.Cells = 2
	js := pipelinetest.NewServer(t).Provision(top)
	place := folderOf(t)
	cfg := archiving(top)
	cfg.Archives = place
	runArchiving(t, js, cfg, 0, one(10, "one")...)

	for name, c := range map[string]struct {
		place objects.Store
		want  string
	}{
		"none":    {nil, "set TRIBUTARY_ARCHIVES as the other workers have it"},
		"another": {folderOf(t), "set TRIBUTARY_ARCHIVES to where they are"},
	} {
		cfg := pipeline.Config{Topology: top, Archives: c.place}
		stage, err := pipeline.New(js, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := stage.Run(deadline(t)); !errors.Is(err, pipeline.ErrArchives) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the worker ended with %v", name, err)
		}
		if err := pipeline.CheckArchives(t.Context(), js, "v1", c.place); !errors.Is(err, pipeline.ErrArchives) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the check says %v", name, err)
		}
	}
	if err := pipeline.CheckArchives(t.Context(), js, "v1", place); err != nil {
		t.Error(err)
	}

	follower := member(top, "w")
	follower.Archives = place
	w := work(t, js, follower)
	startReplay(t, js, pipeline.Replay{Name: "b"})
	caughtUp(t, js, top)
	if _, err := pipeline.PromoteGeneration(deadline(t), js, "b", true); err != nil {
		t.Fatal(err)
	}
	w.stop(t)
	if err := pipeline.DropGeneration(t.Context(), js, "v1", nil); !errors.Is(err, pipeline.ErrArchives) {
		t.Errorf("dropped without the place: %v", err)
	}
	if len(archivesOf(t, place, js)) == 0 {
		t.Error("there are no archives before the drop")
	}
	if err := pipeline.DropGeneration(t.Context(), js, "v1", place); err != nil {
		t.Fatal(err)
	}
	list, err := place.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, o := range list {
		left = append(left, o.Name)
	}
	if diff := cmp.Diff([]string{"tributary-archives.txt"}, left); diff != "" {
		t.Errorf("objects after the drop (-want +got):\n%s", diff)
	}
}
