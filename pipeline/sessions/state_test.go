package sessions_test

import (
	"fmt"
	"go/build"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
)

// TestEncodedFoldsGoOnAsIfNothingHappened encodes a fold after each event, and goes on with what was decoded.
func TestEncodedFoldsGoOnAsIfNothingHappened(t *testing.T) {
	t.Parallel()
	const running, done, failed = envelopes.StatusInProgress, envelopes.StatusSuccess, envelopes.StatusError
	list := []envelopes.AgentEventV1{
		event(1, 0, envelopes.UserMessage, text("Fix it.")),
		event(2, 1, envelopes.ToolCall, tool("a", "Bash", running, nil)),
		event(3, 2, envelopes.AssistantMessage, tokens("opus", "m1", 3)),
		event(4, 3, envelopes.ToolCall, tool("", "Read", running, nil)),
		event(5, 4, envelopes.ToolCall, tool("", "Read", running, nil)),
		event(6, 5, envelopes.ToolResult, tool("a", "Bash", failed, new(int64(70)))),
		event(7, 6, envelopes.ToolResult, tool("", "Read", failed, new(int64(5)))),
		event(8, 7, envelopes.ToolResult, tool("a", "Bash", done, new(int64(900)))),
		event(9, 8, envelopes.AssistantMessage, tokens("", "m2", 1)),
		event(10, 9, envelopes.ToolResult, func(e *envelopes.AgentEventV1) {
			tool("", "", done, nil)(e)
			e.VCS = &envelopes.VCS{Branch: "main"}
			e.Edge = &envelopes.Edge{Host: "mars", Labels: map[string]string{"team": "payments"}}
		}),
		event(11, 10, envelopes.SessionSummary, text("A title")),
	}
	whole, resumed := sessions.NewFold(sessions.WholeSession), sessions.NewFold(sessions.WholeSession)
	now := time.Date(2026, 3, 9, 9, 1, 0, 0, time.UTC)
	for i := range list {
		s := sessions.NewStep(&list[i], uint64(10*i+7))
		whole.Add(&s)
		resumed.Add(&s)
		data, err := resumed.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if resumed, err = sessions.DecodeFold(data); err != nil {
			t.Fatal(err)
		}
		resumed.Add(&s) // again
		if diff := cmp.Diff(whole.Summary(now), resumed.Summary(now), cmpopts.IgnoreUnexported(sessions.Summary{})); diff != "" {
			t.Fatalf("after event %d (-whole +decoded):\n%s", i+1, diff)
		}
	}
	if first, last := resumed.Positions(); first != 7 || last != 107 {
		t.Errorf("positions %d to %d", first, last)
	}
	for _, damaged := range []string{"", "{}x", `{"k":[1,2,3]}`, `{"k":[1,5,0,0]}`, `{"k":[1,0,9,0],"c":[{}]}`} {
		if _, err := sessions.DecodeFold([]byte(damaged)); err == nil {
			t.Errorf("%s is decoded", damaged)
		}
	}
}

// TestFoldsOfHostileSessionsAreBounded has more calls, tools, models and latencies, and longer names, than any message could hold.
func TestFoldsOfHostileSessionsAreBounded(t *testing.T) {
	t.Parallel()
	const calls = 30_000
	long := strings.Repeat("x", 5000)
	many := map[string]string{}
	for i := range 1000 {
		many[fmt.Sprint(i, long)] = long
	}
	f := sessions.NewFold(sessions.WholeSession)
	for i := range calls {
		e := event(uint64(i), 0, envelopes.ToolResult, tool(fmt.Sprint(long, i), fmt.Sprint(i%2000, long), envelopes.StatusError, new(int64(i*i))))
		e.Model = new(fmt.Sprint(i%300, long))
		e.Text = &long
		e.VCS = &envelopes.VCS{Repository: long, Branch: long, PullRequest: long}
		e.Edge = &envelopes.Edge{Host: long, User: long}
		if i%1000 == 0 || i == calls-1 { // always the same, and cutting them takes most of the time
			e.Edge.Labels = many
		}
		f.Add(new(sessions.NewStep(&e, uint64(i+1))))
	}
	data, err := f.Encode()
	if err != nil || len(data) > 1<<20 {
		t.Fatalf("%d bytes: %v", len(data), err)
	}
	decoded, err := sessions.DecodeFold(data)
	if err != nil {
		t.Fatal(err)
	}
	if s := decoded.Summary(time.Time{}); s.Calls != calls || s.Failures != calls || s.Tools[0].Tool != sessions.OtherName {
		t.Errorf("%d calls, %d failures, first tool %.20s", s.Calls, s.Failures, s.Tools[0].Tool)
	}
}

// TestSessionsNeedNoBroker keeps the package light for programs that sum up events from elsewhere.
func TestSessionsNeedNoBroker(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	var visit func(path, from string)
	visit = func(path, from string) {
		if seen[path] || !strings.HasPrefix(path, "tributary/") && !strings.Contains(path, "nats-io") {
			return
		}
		seen[path] = true
		if strings.Contains(path, "nats-io") {
			t.Errorf("%s imports %s", from, path)
			return
		}
		p, err := build.ImportDir("../.."+strings.TrimPrefix(path, "tributary"), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, next := range p.Imports {
			visit(next, path)
		}
	}
	visit("tributary/pipeline/sessions", "")
	if len(seen) < 3 {
		t.Errorf("only %v is seen", seen)
	}
}
