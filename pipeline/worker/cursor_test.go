package worker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/worker"
)

// Ids and names of Cursor are any text: a newline in a call_id, two ids that differ only in a
// newline and a space, a session id with the wildcards of subjects, a tool name of 300
// characters. They pass the broker unchanged, and calls and results pair.
func TestCursorIDsPassTheBrokerUnchanged(t *testing.T) {
	t.Parallel()
	const session, lines = "a.b.*.> c/d\\e\u2028 \U0001F642", "call_x\nfc_y"
	tool := strings.Repeat("x", 300)
	calls := []struct{ id, tool, output string }{
		{lines, "shell", "of the newline"},
		{"call_x fc_y", "shell", "of the space"},
		{"call_x\r\nfc_y", "shell", "of the line end"},
		{"*.>", tool, "of a long name"},
	}
	var records []core.Record
	add := func(session, data string) {
		records = append(records, core.Record{Source: envelopes.Cursor, Session: session, Data: []byte(data)})
	}
	line := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	call := func(subtype, id, tool, output string) string {
		body := map[string]any{"args": map[string]any{"command": id}}
		if subtype == "completed" {
			body["result"] = map[string]any{"success": map[string]any{"stdout": output, "exitCode": 0}}
		}
		return line(map[string]any{
			"type": "tool_call", "subtype": subtype, "call_id": id, "session_id": session, "timestamp_ms": 1770823434041,
			"tool_call": map[string]any{tool + "ToolCall": body},
		})
	}
	add(session, line(map[string]any{"type": "system", "subtype": "init", "session_id": session, "model": "Auto\n", "cwd": "/home/dev/a b"}))
	add(session, "Warning: not \x00 JSON \u2028")
	for _, c := range calls {
		add(session, call("started", c.id, c.tool, ""))
	}
	for i := range calls { // completed in another order
		c := calls[len(calls)-1-i]
		add(session, call("completed", c.id, c.tool, c.output))
	}
	other := strings.ReplaceAll(session, " ", "\n") // a session of its own
	add(other, `{"type":"user","message":{"role":"user","content":[{"type":"text","text":"hello"}]}}`)

	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, records...)
	s := start(t, js, worker.Config{Topology: top})
	r := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	if r.Sessions != 2 || r.DeadLetters != 0 {
		t.Errorf("%d sessions, %d dead letters", r.Sessions, r.DeadLetters)
	}

	var got []string
	for e, err := range events.Read(t.Context(), js, "v1", events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.SessionID != session {
			if e.SessionID != other || *e.Text != "hello" {
				t.Errorf("event %q of session %q", e.EventID, e.SessionID)
			}
			continue
		}
		switch e.EventType {
		case envelopes.ToolCall:
			got = append(got, fmt.Sprintf("call %q %q %q", e.EventID, *e.ToolCallID, *e.ToolName))
		case envelopes.ToolResult:
			got = append(got, fmt.Sprintf("result %q %q %q %q", e.EventID, *e.ToolCallID, *e.ToolName, *e.Text))
		default:
			got = append(got, fmt.Sprintf("%s %q", e.EventType, *e.Text))
		}
	}
	want := []string{
		fmt.Sprintf("system_message %q", "Session: "+session+", Model: Auto\n"),
		fmt.Sprintf("system_message %q", "Warning: not \x00 JSON \u2028"),
	}
	for _, c := range calls {
		want = append(want, fmt.Sprintf("call %q %q %q", c.id, c.id, c.tool))
	}
	for i := range calls {
		c := calls[len(calls)-1-i]
		want = append(want, fmt.Sprintf("result %q %q %q %q", c.id+"#result", c.id, c.tool, c.output))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
