package worker_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/embedded"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// letters are the dead letters of the first generation that q selects.
func letters(tb testing.TB, js jetstream.JetStream, q events.DeadLettersQuery) []events.DeadLetter {
	tb.Helper()
	var out []events.DeadLetter
	for l, err := range events.DeadLetters(tb.Context(), js, "v1", q) {
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}

// Dead letters are listed in the order of their stream, by every filter, with all that is
// known about their records.
func TestDeadLettersAreListedByEveryFilter(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many records: the race detector sees nothing new in them")
	}
	top := topology(4)
	js := pipelinetest.NewServer(t).Provision(top)
	if got := letters(t, js, events.DeadLettersQuery{}); len(got) != 0 {
		t.Errorf("dead letters of an empty stream: %v", got)
	}
	const many = 700
	sent := make([]core.Record, many)
	for i := range sent {
		sent[i] = core.Record{
			Source: envelopes.Sources[i%3], Session: fmt.Sprintf("session %d.", i%40), Data: fmt.Appendf(nil, "{%d", i),
			Origin: core.Origin{File: "f", Position: int64(i), Previous: -1, Time: time.Unix(1, 0)},
		}
	}
	pipelinetest.Publish(t, js, sent...)
	long := strings.Repeat("long", 60)
	pipelinetest.PublishMessages(t.Context(), t, js,
		rawMessage("raw.mystery.s1", "mystery"),
		rawMessage("raw.claude_code.*", "wild"),
		records.Message(core.Record{Source: envelopes.Codex, Session: long, Data: []byte(strings.Repeat("[", 200) + strings.Repeat("]", 200))}),
		records.Message(core.Record{Source: envelopes.Codex, Session: "big", Data: slices.Concat([]byte("{"), bytes.Repeat([]byte("x"), embedded.MaxPayload-301))}),
		records.Message(core.Record{Source: envelopes.Codex, Session: "empty"}),
	)
	s := start(t, js, worker.Config{Topology: top})
	x := pipelinetest.Expectation{Topology: top}
	x.RequireExact(t, js)
	s.stop(t)

	all := letters(t, js, events.DeadLettersQuery{})
	if len(all) != many+5 {
		t.Fatalf("%d dead letters, want %d", len(all), many+5)
	}
	bySequence := make(map[uint64]events.DeadLetter)
	last := uint64(0)
	for _, l := range all {
		if l.Position <= last {
			t.Fatalf("dead letter at %d behind %d", l.Position, last)
		}
		last = l.Position
		bySequence[l.Sequence] = l
		if l.Stored.IsZero() || l.FirstSeen.IsZero() || l.Revision != normalizers.Revision || l.Generation != "v1" || l.Stream != streams.RawStream || l.Requeued != 0 {
			t.Fatalf("dead letter %+v", l)
		}
	}
	for i, r := range sent {
		l := bySequence[uint64(i)+1]
		data, err := l.Load(t.Context(), js)
		if l.Source != r.Source || l.Session != r.Session || l.Reason != "malformed" || !l.Whole || l.Size != len(r.Data) || string(data) != string(r.Data) || err != nil {
			t.Fatalf("record %d: %+v, %q, %v", i+1, l, data, err)
		}
		if got := l.Header.Get(envelopes.HeaderPosition); got != fmt.Sprintf("%d -1", i) {
			t.Fatalf("record %d stood at %q", i+1, got)
		}
	}
	for i, want := range []struct {
		source  envelopes.Source
		session string
		reason  string
		whole   bool
		size    int
	}{
		{"mystery", "s1", "unknown_source", true, 7},
		{envelopes.UnknownSource, "raw.claude_code.*", "bad_subject", true, 4},
		{envelopes.Codex, long, "too_deep", true, 400},
		{envelopes.Codex, "big", "malformed", false, embedded.MaxPayload - 300},
		{envelopes.Codex, "empty", "malformed", true, 0},
	} {
		l := bySequence[uint64(many+1+i)]
		if l.Source != want.source || l.Session != want.session || l.Reason != want.reason || l.Whole != want.whole || l.Size != want.size {
			t.Errorf("%+v, want %+v", l, want)
		}
		if data, err := l.Load(t.Context(), js); err != nil || len(data) != want.size {
			t.Errorf("record %d: %d bytes, %v", l.Sequence, len(data), err)
		}
	}

	middle := all[700].Stored
	for name, c := range map[string]struct {
		q    events.DeadLettersQuery
		want func(events.DeadLetter) bool
	}{
		"source":    {events.DeadLettersQuery{Source: envelopes.Codex}, func(l events.DeadLetter) bool { return l.Source == envelopes.Codex }},
		"session":   {events.DeadLettersQuery{Session: "session 7."}, func(l events.DeadLetter) bool { return l.Session == "session 7." }},
		"long":      {events.DeadLettersQuery{Session: long}, func(l events.DeadLetter) bool { return l.Session == long }},
		"reason":    {events.DeadLettersQuery{Reason: "too_deep"}, func(l events.DeadLetter) bool { return l.Reason == "too_deep" }},
		"partition": {events.DeadLettersQuery{Partitions: []int{0, 3}}, func(l events.DeadLetter) bool { return l.Partition == 0 || l.Partition == 3 }},
		"since":     {events.DeadLettersQuery{Since: middle}, func(l events.DeadLetter) bool { return !l.Stored.Before(middle) }},
		"until":     {events.DeadLettersQuery{Until: middle}, func(l events.DeadLetter) bool { return l.Stored.Before(middle) }},
		"sequences": {events.DeadLettersQuery{Sequences: []uint64{3, 900, 5}}, func(l events.DeadLetter) bool { return l.Sequence == 3 || l.Sequence == 5 || l.Sequence == 900 }},
		"through":   {events.DeadLettersQuery{Through: streams.Positions{all[99].Position}}, func(l events.DeadLetter) bool { return l.Position <= all[99].Position }},
		"after":     {events.DeadLettersQuery{After: streams.Positions{all[99].Position}}, func(l events.DeadLetter) bool { return l.Position > all[99].Position }},
		"between": {
			events.DeadLettersQuery{After: streams.Positions{all[99].Position}, Through: streams.Positions{all[100].Position}},
			func(l events.DeadLetter) bool { return l.Sequence == all[100].Sequence },
		},
		"after a place and a time": {
			events.DeadLettersQuery{After: streams.Positions{all[99].Position}, Since: middle},
			func(l events.DeadLetter) bool { return !l.Stored.Before(middle) },
		},
		"open":    {events.DeadLettersQuery{Standing: core.StandingOpen}, func(events.DeadLetter) bool { return true }},
		"settled": {events.DeadLettersQuery{Standing: core.StandingSettled}, func(events.DeadLetter) bool { return false }},
	} {
		var want []events.DeadLetter
		for _, l := range all {
			if c.want(l) {
				want = append(want, l)
			}
		}
		if diff := cmp.Diff(sequences(want), sequences(letters(t, js, c.q))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if name != "settled" && len(want) == 0 {
			t.Errorf("%s selects nothing", name)
		}
	}
	for _, err := range events.DeadLetters(t.Context(), js, "v1", events.DeadLettersQuery{}) {
		if err != nil {
			t.Error(err)
		}
		break // ends the iteration
	}

	// The largest record is requeued like any other.
	if got := requeue(t, js, events.DeadLettersQuery{Session: "big"}); got[events.RequeuedNow] != 1 {
		t.Errorf("requeued: %v", got)
	}
	s = start(t, js, worker.Config{Topology: top})
	x.RequireExact(t, js)
	s.stop(t)
	if got := letters(t, js, events.DeadLettersQuery{Session: "big", Standing: core.StandingOpen}); len(got) != 1 || got[0].Requeued != many+4 {
		t.Errorf("the large one that failed again: %+v", got)
	}

	// Bytes that only the raw stream has are gone with it.
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	big := letters(t, js, events.DeadLettersQuery{Session: "big", Standing: core.StandingOpen})[0]
	if _, err := big.Load(t.Context(), js); !errors.Is(err, events.ErrRecordGone) {
		t.Errorf("load what is gone: %v, want %v", err, events.ErrRecordGone)
	}
	if got := requeue(t, js, events.DeadLettersQuery{Sequences: []uint64{many + 1, many + 2, many + 3, many + 4, many + 5, many + 6}}); !cmp.Equal(got, map[events.Requeued]int{
		events.RequeuedNow: 3, events.RequeuedNowhere: 1, events.RequeuedSettled: 1, events.RequeuedGone: 1,
	}) {
		t.Errorf("requeued: %v", got)
	}
}

func sequences(letters []events.DeadLetter) []uint64 {
	out := make([]uint64, len(letters))
	for i, l := range letters {
		out[i] = l.Sequence
	}
	return out
}

// Dead letters that another process purges during a listing are listed or not; all others are.
func TestListingSurvivesAPurge(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	records := make([]core.Record, 350)
	for i := range records {
		records[i] = user("s", "boom")
	}
	pipelinetest.Publish(t, js, records...)
	s := start(t, js, worker.Config{Topology: top, Normalize: func(*core.Session, core.Record) (core.Result, error) {
		return core.Result{}, core.ErrMalformed
	}})
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	for _, keep := range []uint64{300, 0} {
		listed := uint64(0)
		for l, err := range events.DeadLetters(t.Context(), js, "v1", events.DeadLettersQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			if listed == 0 && l.Sequence != 1 && keep == 300 {
				t.Errorf("the first is %d", l.Sequence)
			}
			if listed++; listed == 1 {
				stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
				if err != nil {
					t.Fatal(err)
				}
				options := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject("deadletters.>")}
				if keep > 0 {
					options = append(options, jetstream.WithPurgeSequence(l.Position+keep))
				}
				if err := stream.Purge(t.Context(), options...); err != nil {
					t.Fatal(err)
				}
			}
		}
		if listed < 50 || listed > uint64(len(records)) {
			t.Errorf("%d dead letters are listed", listed)
		}
	}
}

// A purge skips dead letters that another process has purged, and does not report them.
func TestPurgeSkipsWhatIsGone(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, user("s", "boom"), user("s", "boom"), user("s", "boom"))
	s := start(t, js, worker.Config{Topology: top, Normalize: breaksUntil("boom", 3)})
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	found := letters(t, js, events.DeadLettersQuery{})
	if len(found) != 3 {
		t.Fatalf("%d dead letters", len(found))
	}
	for _, c := range []struct {
		listed  []events.DeadLetter
		removed int
	}{{found[:2], 2}, {found, 1}} {
		removed := 0
		err := events.PurgeDeadLetters(t.Context(), js, func(yield func(events.DeadLetter, error) bool) {
			for _, l := range c.listed {
				if !yield(l, nil) {
					return
				}
			}
		}, func(events.DeadLetter) { removed++ })
		if err != nil || removed != c.removed {
			t.Errorf("purged %d of %d: %v", removed, len(c.listed), err)
		}
	}
}

// A message at the subject of a dead letter that is not a dead letter is reported, and stops
// nothing.
func TestForeignMessageAmongDeadLettersIsReported(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, user("s", "boom"))
	s := start(t, js, worker.Config{Topology: top, Normalize: breaksUntil("boom", 1)})
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	if _, err := js.Publish(t.Context(), "deadletters.v1.0.codex.s", []byte("what is this")); err != nil {
		t.Fatal(err)
	}
	listed, wrong := 0, 0
	for l, err := range events.DeadLetters(t.Context(), js, "v1", events.DeadLettersQuery{}) {
		listed++
		if errors.Is(err, events.ErrDeadLetter) && l.Position > 0 {
			wrong++
		}
	}
	if listed != 2 || wrong != 1 {
		t.Errorf("%d messages are listed, %d of them as no dead letters", listed, wrong)
	}
	if got := requeue(t, js, events.DeadLettersQuery{}); got[events.RequeuedNow] != 1 || len(got) != 1 {
		t.Errorf("requeued: %v", got)
	}
	if got := purge(t, js, events.DeadLettersQuery{}); got != 1 || len(stored(t, js, "deadletters.>")) != 1 {
		t.Errorf("%d are purged", got)
	}
}

// A dead letter that is newer than the state of its session, as it is while a chunk goes out
// in several batches, is open: the state does not know it yet.
func TestDeadLetterNewerThanItsStateIsOpen(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, user("s", "boom"), user("s", "calm"))
	s := start(t, js, worker.Config{Topology: top, Normalize: breaksUntil("boom", 1)})
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	m := letter(t, js, 1)
	next := &nats.Msg{Subject: m.Subject, Header: nats.Header{}, Data: m.Data}
	for name, values := range m.Header {
		if strings.HasPrefix(name, "Tributary-") {
			next.Header[name] = values
		}
	}
	next.Header[envelopes.HeaderSequence] = []string{"2"}
	if _, err := js.PublishMsg(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	for _, l := range letters(t, js, events.DeadLettersQuery{}) {
		if l.Standing != core.StandingOpen {
			t.Errorf("dead letter %d is %s", l.Sequence, l.Standing)
		}
	}
}

// purge purges dead letters of the first generation and returns how many.
func purge(tb testing.TB, js jetstream.JetStream, q events.DeadLettersQuery) int {
	tb.Helper()
	n := 0
	if err := events.PurgeDeadLetters(tb.Context(), js, events.DeadLetters(tb.Context(), js, "v1", q), func(events.DeadLetter) { n++ }); err != nil {
		tb.Fatal(err)
	}
	return n
}

// A purge removes the dead letters that it is given, and leaves every other message of the
// generation as it was. A copy that was requeued before is read all the same.
func TestPurgeRemovesNothingElse(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(61, 8, 400)
	records = append(records, user("mine", "boom"), user("mine", "calm"))
	pipelinetest.Publish(t, js, records...)
	x := pipelinetest.Expectation{Topology: top, Normalize: breaksUntil("boom", uint64(len(records)))}
	s := start(t, js, worker.Config{Topology: top, Normalize: x.Normalize})
	x.RequireExact(t, js)
	s.stop(t)

	mine := letters(t, js, events.DeadLettersQuery{Session: "mine"})
	malformed := letters(t, js, events.DeadLettersQuery{Reason: "malformed"})
	if len(mine) != 1 || len(malformed) < 3 {
		t.Fatalf("dead letters %v, %v", mine, malformed)
	}
	before := stored(t, js, ">")
	first := malformed[0]
	if got := purge(t, js, events.DeadLettersQuery{Sequences: []uint64{first.Sequence}}); got != 1 {
		t.Errorf("%d are purged, want 1", got)
	}
	if data, err := first.Load(t.Context(), js); err != nil || len(data) != first.Size {
		t.Errorf("a purged dead letter: %q, %v, want the bytes of the raw stream", data, err)
	}
	if got := requeue(t, js, events.DeadLettersQuery{Session: "mine"}); got[events.RequeuedNow] != 1 {
		t.Errorf("requeued: %v", got)
	}
	if got := purge(t, js, events.DeadLettersQuery{}); got != len(malformed) {
		t.Errorf("%d are purged, want %d", got, len(malformed))
	}
	if got := purge(t, js, events.DeadLettersQuery{}); got != 0 {
		t.Errorf("%d are purged once more", got)
	}
	before = slices.DeleteFunc(before, func(m *jetstream.RawStreamMsg) bool { return strings.HasPrefix(m.Subject, "deadletters.") })
	if diff := difference(before, stored(t, js, ">")); diff != "" {
		t.Errorf("the rest of the stream (-before +after):\n%s", diff)
	}

	s = start(t, js, worker.Config{Topology: top})
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	if diff := cmp.Diff([]string{"calm", "boom"}, texts(t, js, "v1", "mine")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
