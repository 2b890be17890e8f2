package ship_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// rawSubjects counts the messages of the raw streams by subject, and those of each cell.
func rawSubjects(tb testing.TB, e *edge, cells int) (subjects map[string]uint64, perCell []uint64) {
	tb.Helper()
	subjects = make(map[string]uint64)
	for c := range cells {
		s, err := e.js.Stream(tb.Context(), streams.RawStreamOf(c))
		if err != nil {
			tb.Fatal(err)
		}
		info, err := s.Info(tb.Context(), jetstream.WithSubjectFilter(">"))
		if err != nil {
			tb.Fatal(err)
		}
		perCell = append(perCell, info.State.Msgs)
		maps.Copy(subjects, info.State.Subjects)
	}
	return subjects, perCell
}

// Each session goes to the cell of its partition, and the next run ships nothing again. A cell that was
// rolled back gets what it has lost, and no other cell anything.
func TestSessionsGoToTheirCells(t *testing.T) {
	t.Parallel()
	const sessions, records = 24, 6
	e := newEdge(t)
	e.server = pipelinetest.NewServer(t)
	top := streams.Topology{Generation: "v1", Partitions: 8, Cells: 4}
	e.js = e.server.Provision(top)
	log := func(from, to int) {
		for i := range sessions {
			session := fmt.Sprintf("s%d", i)
			e.append("garden/"+session+".jsonl", lines(prompts(session, from, to)...))
		}
	}
	log(1, records/2)
	e.once()
	saved := e.server.CopyStore()
	e.js = e.server.JetStream()
	log(records/2+1, records)
	e.once()
	subjects, before := rawSubjects(t, e, 4)
	want := make(map[string]uint64)
	for i := range sessions {
		session := fmt.Sprintf("s%d", i)
		p := envelopes.Partition(envelopes.ClaudeCode, session, top.Partitions)
		want[envelopes.PartitionSubject(p, envelopes.ClaudeCode, session)] = records + 2 // with an end of each run
	}
	if diff := cmp.Diff(want, subjects); diff != "" {
		t.Errorf("raw streams (-want +have):\n%s", diff)
	}
	if sum := e.once(); sum.Records != 0 || len(sum.Losses) != 0 {
		t.Errorf("the next run ships %d records, losses %v", sum.Records, sum.Losses)
	}
	saved.PutBack(streams.RawStreamOf(2))
	e.js = e.server.JetStream()
	sum := e.once()
	if len(sum.Losses) != 1 || sum.Losses[0].New || sum.Losses[0].Files == 0 || sum.Losses[0].Files == sessions {
		t.Errorf("losses %+v, want one of some of the logs", sum.Losses)
	}
	if _, after := rawSubjects(t, e, 4); !cmp.Equal(before, after) {
		t.Errorf("messages by cell %v, want %v", after, before)
	}
}
