package worker_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
)

// claimed is the message of a record of those bytes.
func claimed(session string, data []byte) *nats.Msg {
	return records.ClaimMessage(core.Record{Source: envelopes.ClaudeCode, Session: session, Data: data})
}

// An object is an orphan when no record names it and it is old.
func TestOnlyOldObjectsWithoutARecordAreOrphans(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology(4))
	claimStore := claims.NewStore(js)
	if got := collect(t, claimStore); len(got) != 0 {
		t.Errorf("orphans of nothing: %q", got)
	}
	put := func(n uint64, size int) (data []byte, name string) {
		t.Helper()
		data = noise(n, size)
		claim, err := claimStore.Put(t.Context(), data)
		if err != nil {
			t.Fatal(err)
		}
		return data, claim.Digest
	}
	kept, keptName := put(1, 1<<20)
	gone, goneName := put(2, 10)
	_, aloneName := put(3, 700<<10)
	shared, sharedName := put(4, 100)
	// Headers that a client takes for a status of the server must not hide a record.
	disguised := claimed("a", kept)
	disguised.Header["Status"], disguised.Header["Description"] = []string{"409"}, []string{"Consumer Deleted"}
	pipelinetest.PublishMessages(t.Context(), t, js, disguised, claimed("gone", gone), claimed("b", shared), claimed("gone", shared),
		claimed("c", shared), records.Message(prompt("d", 1, 10)))
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	for _, session := range []string{"gone", "d"} { // also the last record
		if err := raw.Purge(t.Context(), jetstream.WithPurgeSubject("raw.*.*."+session)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.Publish(t.Context(), "$O.CLAIMS.C.cutoff", make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "$O.CLAIMS.C.cutoff", make([]byte, 500)); err != nil {
		t.Fatal(err)
	}

	if young, err := claimStore.Orphans(t.Context(), time.Hour); err != nil || len(young) != 0 {
		t.Errorf("young orphans %v, %v", young, err)
	}
	objects, err := claimStore.Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type brief struct {
		Size    int64
		Records int
	}
	have := map[string]brief{}
	for _, o := range objects {
		have[o.Name] = brief{o.Size, o.Records}
		if age := time.Since(o.Stored); age < 0 || age > time.Minute {
			t.Errorf("object stored %v ago", age)
		}
	}
	if diff := cmp.Diff(map[string]brief{
		keptName: {1 << 20, 1}, goneName: {10, 0}, aloneName: {700 << 10, 0}, sharedName: {100, 2}, "": {1500, 0},
	}, have); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}

	want, got := []string{"", goneName, aloneName}, collect(t, claimStore)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("orphans (-want +got):\n%s", diff)
	}
	if objects, chunks := bucket(t, js); objects != 2 || chunks != 3 {
		t.Errorf("%d objects and %d chunks are left", objects, chunks)
	}
	if data, err := claimStore.Get(t.Context(), claims.Of(kept)); err != nil || !bytes.Equal(data, kept) {
		t.Errorf("what a record names: %v", err)
	}
	if again := collect(t, claimStore); len(again) != 0 {
		t.Errorf("orphans again: %q", again)
	}
}

// Another producer may put an object anew after it was listed as an orphan: it stays, or the
// producer notices that it is gone.
func TestOrphanThatIsPutAgainStays(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology(1))
	claimStore := claims.NewStore(js)
	data := noise(1, 2<<20)
	listed := func() claims.Object {
		t.Helper()
		orphans, err := claimStore.Orphans(t.Context(), 0)
		if err != nil || len(orphans) != 1 {
			t.Fatalf("orphans %v, %v", orphans, err)
		}
		return orphans[0]
	}
	put := func() {
		t.Helper()
		if _, err := claimStore.Put(t.Context(), data); err != nil {
			t.Fatal(err)
		}
	}
	there := func() {
		t.Helper()
		if got, err := claimStore.Get(t.Context(), claims.Of(data)); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("object: %v", err)
		}
	}
	put()
	before := listed()
	put()
	if ok, err := claimStore.Remove(t.Context(), before); ok || err != nil {
		t.Errorf("removed %v, %v", ok, err)
	}
	there()
	now := listed()
	if !now.Stored.After(before.Stored) {
		t.Errorf("put at %v, and again at %v", before.Stored, now.Stored)
	}
	if ok, err := claimStore.Remove(t.Context(), now); !ok || err != nil {
		t.Errorf("removed %v, %v", ok, err)
	}
	if ok, err := claimStore.Remove(t.Context(), now); ok || err != nil {
		t.Errorf("removed twice: %v, %v", ok, err)
	}
	if objects, chunks := bucket(t, js); objects+chunks != 0 {
		t.Errorf("%d objects and %d chunks are left", objects, chunks)
	}
	put()
	there()
}

// An object with missing or wrong chunks is stored again, and not only described again.
func TestPutRepairsADamagedObject(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology(1))
	claimStore := claims.NewStore(js)
	data := noise(1, 2<<20)
	for name, damage := range map[string]func(){
		"no chunks":   func() { purgeChunks(t, js) },
		"other bytes": func() { object(t, js, claims.Of(data).Digest, []byte("other")) },
		"deleted": func() {
			inStore(t, js, func(store jetstream.ObjectStore) error {
				return store.Delete(t.Context(), claims.Of(data).Digest)
			})
		},
	} {
		for range 2 {
			if _, err := claimStore.Put(t.Context(), data); err != nil {
				t.Fatal(err)
			}
			if got, err := claimStore.Get(t.Context(), claims.Of(data)); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%s: %v", name, err)
			}
			damage()
		}
	}
	if objects, chunks := bucket(t, js); objects != 1 || chunks > 4 {
		t.Errorf("%d objects and %d chunks are left", objects, chunks)
	}
}
