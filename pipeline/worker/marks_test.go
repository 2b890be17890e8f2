package worker_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// Marks are few, have the first and the last event, and for each event that was read one before it that is not much farther
// from the end: a reader that goes back reads little again.
func TestMarksAreFewAndNearToEachEvent(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var marks events.Marks
		var read []uint64
		position := random.Uint64N(1000)
		for range 1000 {
			position += 1 + random.Uint64N(1<<random.IntN(12))
			before := slices.Clone(marks)
			next := marks.With(events.Mark{Position: position})
			if diff := difference(before, marks); diff != "" {
				t.Fatalf("marks have changed:\n%s", diff)
			}
			marks, read = next, append(read, position)
		}
		if len(marks) > 64 || marks[0].Position != read[0] || marks.Last() != position {
			t.Fatalf("%d marks from %d to %d", len(marks), marks[0].Position, marks.Last())
		}
		for i, p := range read {
			before := marks.UpTo(p)
			if !slices.IsSortedFunc(before, func(a, b events.Mark) int { return int(a.Position) - int(b.Position) }) || len(before) == 0 || before.Last() > p {
				t.Fatalf("up to %d: %v", p, before)
			}
			if again, behind := position-before.Last(), position-p; again > 8*(behind+1<<12) {
				t.Fatalf("event %d: %d is %d before the end, and its mark %d", i, p, behind, again)
			}
		}
	}
}

// A stream that goes back and grows again parts behind the last mark that it has; one whose events expire does not.
func TestFindPartingFindsTheLastCommonEvent(t *testing.T) {
	t.Parallel()
	top := topology(1)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	store := func(from, to int) {
		t.Helper()
		var records []core.Record
		for i := from; i < to; i++ {
			records = append(records, user("s", strconv.Itoa(i)))
		}
		pipelinetest.Publish(t, js, records...)
		s := start(t, js, worker.Config{Topology: top})
		if err := replay.CatchUp(deadline(t), js, top); err != nil {
			t.Fatal(err)
		}
		s.stop(t)
	}
	read := func() (marks events.Marks) {
		t.Helper()
		for e, err := range events.Read(deadline(t), js, "v1", events.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			marks = append(marks, events.MarkOf(&e))
		}
		return marks
	}
	require := func(marks events.Marks, want events.Parting, parted bool) {
		t.Helper()
		got, is, err := events.FindParting(deadline(t), js, "v1", 0, marks)
		if err != nil || is != parted {
			t.Errorf("parted %v, %v, want %v", is, err, parted)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("parting (-want +got):\n%s", diff)
		}
	}
	require(nil, events.Parting{}, false)
	empty := server.CopyStore()
	store(0, 5)
	gone := read()
	empty.PutBack(streams.EventsStream("v1"))
	js = server.JetStream()
	if got, parted, err := events.FindParting(deadline(t), js, "v1", 0, gone); err != nil || !parted || got.Common != (events.Mark{}) {
		t.Errorf("a stream without events: %+v, %v, %v", got, parted, err)
	}
	store(5, 5) // the same records again
	common := read()
	saved := server.CopyStore()
	store(5, 9)
	marks := read()
	last := marks[len(marks)-1]
	require(marks, events.Parting{Common: last, From: last.Position + 1}, false)

	saved.PutBack(streams.EventsStream("v1"))
	js = server.JetStream()
	parting := events.Parting{Common: common[4], From: common[4].Position + 1}
	require(marks, parting, true) // the stream is shorter
	store(9, 20)
	require(marks, parting, true) // and longer than it was
	again := read()
	got, parted, err := events.FindParting(deadline(t), js, "v1", 0, marks[5:])
	if err != nil || !parted || got.Common != (events.Mark{}) || got.From <= common[4].Position || got.From > again[5].Position {
		t.Errorf("nothing is common: %+v, %v, %v", got, parted, err)
	}
	forged := common[4]
	forged.ID = "another"
	require(events.Marks{common[3], forged}, events.Parting{Common: common[3], From: common[3].Position + 1}, true)

	expiring := read()[18:]
	stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("events.>")); err != nil { // as if they had expired
		t.Fatal(err)
	}
	parting = events.Parting{Common: expiring[1], From: expiring[1].Position + 1, Expired: true}
	require(expiring, parting, false)
	store(20, 21)
	require(expiring, parting, false)
}
