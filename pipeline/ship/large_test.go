package ship_test

import (
	"fmt"
	"strings"
	"testing"

	"tributary/pipeline/claims"
	"tributary/pipeline/embedded"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
)

// smallMessages configures a server with which records of 100 KiB travel by claim check.
func smallMessages(c *embedded.Config) { c.MaxPayload = 64 << 10 }

// mixed returns records 1 to last of a session, of which every third is large.
func mixed(session string, last int) []string {
	records := prompts(session, 1, last)
	for i := 2; i < len(records); i += 3 {
		records[i] = strings.Replace(records[i], "water", strings.Repeat("water ", 100<<10/6), 1)
	}
	return records
}

// wantObjects checks that the bucket has this many objects, each named by exactly one
// record.
func (e *edge) wantObjects(want int) {
	e.t.Helper()
	objects, err := claims.NewStore(e.js).Objects(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	for _, o := range objects {
		if o.Records != 1 {
			e.t.Errorf("object %q of %d bytes is named by %d records", o.Name, o.Size, o.Records)
		}
	}
	if len(objects) != want {
		e.t.Errorf("%d objects, want %d", len(objects), want)
	}
}

// The producer dies after an object and before its message: nothing is lost or stored twice.
func TestProducerDyingBetweenObjectAndMessageStoresNothingTwice(t *testing.T) {
	t.Parallel()
	e := newEdge(t, smallMessages)
	all := mixed("one", 10)
	e.write("garden/one.jsonl", lines(all...))
	e.dieAtCommit()
	orphans, err := claims.NewStore(e.js).Orphans(t.Context(), 0)
	if err != nil || len(orphans) != 3 || e.count() != 0 {
		t.Fatalf("%d orphans, %d messages, %v", len(orphans), e.count(), err)
	}
	if got := e.once(); got.Records != 10 || got.Duplicates != 0 {
		t.Errorf("shipped %+v", got)
	}
	e.wantStored(append(all, "end of one")...)
	e.wantObjects(3)
	// Objects that were listed as orphans before, and are named now, are not removed.
	for _, o := range orphans {
		if ok, err := claims.NewStore(e.js).Remove(t.Context(), o); ok || err != nil {
			t.Errorf("removed: %v, %v", ok, err)
		}
	}
	e.wantObjects(3)
}

func TestLostAcknowledgementOfLargeRecordsStoresNothingTwice(t *testing.T) {
	t.Parallel()
	e := newEdge(t, smallMessages)
	all := mixed("one", 30)
	e.write("garden/one.jsonl", lines(all...))
	proxy := pipelinetest.NewProxy(t, e.server)
	proxy.Arm(pipelinetest.BeforeAck, pipelinetest.BeforeCommit)
	direct := e.js
	e.js = pipelinetest.Connect(t, proxy.URL())
	got := e.once(func(c *ship.Config) { c.BatchRecords = 10 })
	if got.Records != 30 || got.Duplicates == 0 {
		t.Errorf("shipped %+v", got)
	}
	e.js = direct
	e.wantStored(append(all, "end of one")...)
	e.wantObjects(10)
}

func TestBrokerAwayWhileObjectsArePutLosesNothing(t *testing.T) {
	t.Parallel()
	e := newEdge(t, smallMessages)
	const each = 60
	f := e.follow(func(c *ship.Config) { c.BatchRecords = 5 })
	want := map[string][]string{}
	for n := range 3 {
		id := fmt.Sprintf("s%d", n)
		want[id] = mixed(id, each)
		e.write("garden/"+id+".jsonl", lines(want[id]...))
	}
	for n := range 3 {
		f.until("some are stored", func(s ship.Summary) bool { return s.Records > n*40 })
		e.server.Restart()
	}
	f.until("all is stored", func(s ship.Summary) bool { return s.Records == 3*each && s.Stalled == nil })
	e.sessions(want)
}

// Without the bucket, shipping waits until it is created.
func TestMissingBucketIsWaitedFor(t *testing.T) {
	t.Parallel()
	e := newEdge(t, smallMessages)
	if err := e.js.DeleteObjectStore(t.Context(), streams.ClaimsBucket); err != nil {
		t.Fatal(err)
	}
	all := mixed("one", 3)
	e.write("garden/one.jsonl", lines(all...))
	f := e.follow()
	f.until("the bucket is reported as missing", func(s ship.Summary) bool { return s.Stalled != nil })
	if sum := f.ship.Summary(); !strings.Contains(sum.Stalled.Error(), "bucket CLAIMS") {
		t.Errorf("the cause of the stall is %v", sum.Stalled)
	}
	if err := streams.Provision(t.Context(), e.js, streams.Topology{Generation: "v1", Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	f.until("all is stored", func(s ship.Summary) bool { return s.Records == 3 && s.Stalled == nil })
	e.wantStored(all...)
}

// As TestKilledAnywhereShipsEveryRecordOnceInOrder, with every third record in the bucket.
func TestKilledAnywhereShipsLargeRecordsOnceInOrder(t *testing.T) {
	t.Parallel()
	e := newEdge(t, smallMessages)
	const each = 150
	want := map[string][]string{}
	for n := range 3 {
		id := fmt.Sprintf("s%d", n)
		want[id] = mixed(id, each)
		e.write("garden/"+id+".jsonl", lines(want[id]...))
	}
	e.killAnywhere(each / 4)
	e.sessions(want)
	claims := claims.NewStore(e.js)
	orphans, err := claims.Orphans(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range orphans { // chunks of puts that were interrupted
		if o.Name != "" {
			t.Errorf("object %s is an orphan", o.Name)
		}
		if ok, err := claims.Remove(t.Context(), o); !ok || err != nil {
			t.Errorf("remove: %v, %v", ok, err)
		}
	}
	e.wantObjects(each) // a third of 3 sessions
	e.all()             // every record can still be read
}
