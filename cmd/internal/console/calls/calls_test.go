package calls

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/pipeline/events"
)

// event is the event of a call or a result of a session, with an outcome.
func event(n int, kind envelopes.EventType, id string, status envelopes.ToolStatus) *events.Event {
	e := &events.Event{Stored: time.Unix(int64(n), 0)}
	e.Source, e.SessionID, e.EventID, e.EventType = envelopes.Codex, "s", strconv.Itoa(n), kind
	e.ToolCallID, e.ToolStatus, e.Channel = &id, &status, new(envelopes.ChannelTerminal)
	if kind == envelopes.ToolCall {
		e.Text = new(`{"command":"` + id + `"}`)
	}
	return e
}

// outcomes puts the calls of a stream together, which is read in parts of so many events from its end.
func outcomes(list []*events.Event, part int, matches func(*events.Event) bool) map[string]envelopes.ToolStatus {
	found := map[string]envelopes.ToolStatus{}
	p := newPairs()
	called := func(c *call, outcome envelopes.ToolStatus, _ Place) {
		if _, twice := found[c.command]; twice {
			outcome = "twice"
		}
		found[c.command] = outcome
	}
	for end := len(list); end > 0; end -= part {
		for _, e := range list[max(0, end-part):end] {
			p.event(e, matches(e), called)
		}
		p.endPart(called)
	}
	return found
}

// TestCallsHaveTheirResultsInPartsOfAnySize draws a stream of calls whose results come later, or never.
func TestCallsHaveTheirResultsInPartsOfAnySize(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var list []*events.Event
		var open []string
		want := map[string]envelopes.ToolStatus{}
		for n := range 200 {
			switch {
			case len(open) == 0 || r.IntN(2) == 0:
				id := fmt.Sprint("call-", n)
				open = append(open, id)
				want[id] = envelopes.StatusInProgress
				list = append(list, event(n, envelopes.ToolCall, id, envelopes.StatusInProgress))
			default:
				i := r.IntN(len(open))
				status := []envelopes.ToolStatus{envelopes.StatusSuccess, envelopes.StatusError, envelopes.StatusInProgress}[r.IntN(3)]
				list = append(list, event(n, envelopes.ToolResult, open[i], status))
				if status != envelopes.StatusInProgress {
					want[open[i]] = status
					open = slices.Delete(open, i, i+1)
				}
			}
		}
		for _, part := range []int{1, 7, 50, 1000} {
			all := func(*events.Event) bool { return true }
			if diff := cmp.Diff(want, outcomes(list, part, all)); diff != "" {
				t.Fatalf("seed %d, parts of %d (-want +got):\n%s", seed, part, diff)
			}
			some := maps.Clone(want)
			maps.DeleteFunc(some, func(id string, _ envelopes.ToolStatus) bool { return strings.HasSuffix(id, "3") })
			but := func(e *events.Event) bool { return !strings.HasSuffix(*e.ToolCallID, "3") }
			if diff := cmp.Diff(some, outcomes(list, part, but)); diff != "" {
				t.Fatalf("seed %d, parts of %d, some calls (-want +got):\n%s", seed, part, diff)
			}
		}
	}
}

func TestListsAreBoundedAndSaySo(t *testing.T) {
	t.Parallel()
	r := newReading(&Query{Most: 10}, nil)
	for n := range maxKeys + 500 {
		r.called(&call{command: fmt.Sprint("command ", n)}, envelopes.StatusError, Place{Event: "e"})
	}
	for range 3 {
		r.called(&call{command: "command 17"}, envelopes.StatusError, Place{Event: "e"})
	}
	top := r.finish().Commands
	if len(top.List) != 10 || top.Left != maxKeys-10 || top.Beyond != 500 || top.List[0].Text != "command 17" || top.List[0].Failures != 4 {
		t.Errorf("%d of the list, %d left, %d beyond, the first is %+v", len(top.List), top.Left, top.Beyond, top.List[0])
	}
}
