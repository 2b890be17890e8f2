package claudetest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// ToolCase is a call of a tool, its structured result, and the expected tool_metadata, null for none.
type ToolCase struct {
	Name     string          `json:"name"`
	Tool     string          `json:"tool_name"`
	Input    json.RawMessage `json:"tool_input"`
	Result   json.RawMessage `json:"tool_use_result"`
	IsError  json.RawMessage `json:"is_error"`
	Expected any             `json:"expected"`
	Proposed any             `json:"proposed"` // in the seed's project, without its bug
	Current  any             `json:"current"`  // in the other profile, our own
}

// ToolCases reads a file of cases.
func ToolCases(t *testing.T, data []byte) []ToolCase {
	t.Helper()
	var cases []ToolCase
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	return cases
}

// OwnFile reads a file of our own cases.
func OwnFile(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(Suite.TestData(), name))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// ToolSession is the session of the records of cases.
const ToolSession = "5b5f2f0e"

// ToolRecords returns the call and the result of a case, the result spelled as in a stream or, with camel, as in a
// transcript.
func ToolRecords(tb rapid.TB, c ToolCase, camel bool) [2][]byte {
	tb.Helper()
	or := func(v json.RawMessage) json.RawMessage {
		if v == nil {
			return json.RawMessage("null")
		}
		return v
	}
	session, result := "session_id", "tool_use_result"
	if camel {
		session, result = "sessionId", "toolUseResult"
	}
	block := map[string]any{"type": "tool_result", "tool_use_id": "toolu_1", "content": "told to the model"}
	if c.IsError != nil {
		block["is_error"] = c.IsError
	}
	var out [2][]byte
	for i, r := range []map[string]any{
		{"type": "assistant", "uuid": "a1", session: ToolSession, "message": map[string]any{"role": "assistant", "content": []any{
			map[string]any{"type": "tool_use", "id": "toolu_1", "name": c.Tool, "input": or(c.Input)},
		}}},
		{"type": "user", "uuid": "u1", session: ToolSession, "message": map[string]any{"role": "user", "content": []any{block}}, result: or(c.Result)},
	} {
		b, err := json.Marshal(r)
		if err != nil {
			tb.Fatal(err)
		}
		out[i] = b
	}
	return out
}

// ToolResult normalizes the records of a case in a new session, and returns the event of the result.
func ToolResult(tb rapid.TB, records [2][]byte, profile core.Profile) envelopes.AgentEventV1 {
	tb.Helper()
	s := normalizers.NewSession(envelopes.ClaudeCode, ToolSession)
	s.UseProfile(profile)
	var last envelopes.AgentEventV1
	for i, data := range records {
		r, err := normalizers.Normalize(s, core.Record{Source: envelopes.ClaudeCode, Session: ToolSession, Sequence: uint64(i + 1), Stored: normalizerstest.Modified, Data: data})
		if err != nil || len(r.Events) != 1 {
			tb.Fatalf("record %d: %d events, %v", i, len(r.Events), err)
		}
		last = r.Events[0].Event
	}
	if last.EventType != envelopes.ToolResult {
		tb.Fatalf("the result is a %s", last.EventType)
	}
	return last
}

var uuidV5 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// SameMetadata compares tool_metadata with the expected value. The ids of to-do items must be different UUIDs.
func SameMetadata(t *testing.T, want any, got []byte) {
	t.Helper()
	var v any
	if got != nil {
		if err := json.Unmarshal(got, &v); err != nil {
			t.Fatalf("tool_metadata is no JSON: %v", err)
		}
	}
	seen := make(map[string]bool)
	for _, todo := range normalizerstest.Member[[]any](v, "todos") {
		m, _ := todo.(map[string]any)
		id, ok := m["id"].(string)
		if !ok {
			continue
		}
		if !uuidV5.MatchString(id) || seen[id] {
			t.Errorf("id %q is no UUID of its own", id)
		}
		seen[id] = true
		m["id"] = "<generated-uuid>"
	}
	if diff := cmp.Diff(want, v); diff != "" {
		t.Errorf("tool_metadata (-want +got):\n%s", diff)
	}
}
