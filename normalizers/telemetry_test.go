package normalizers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// Telemetry goes to the agent whose service or scope it names.
func TestAssignTelemetry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, service, scope string
		attributes           map[string]string
		want                 normalizers.Assignment
		ok                   bool
	}{
		{
			"by its service", "claude-code", "",
			map[string]string{"session.id": "s1", "event.sequence": "7"},
			normalizers.Assignment{Source: envelopes.ClaudeCode, Session: "s1", Sequence: "7"},
			true,
		},
		{
			"by its scope", "team-a", "com.anthropic.claude_code.events",
			map[string]string{"session.id": "s1"},
			normalizers.Assignment{Source: envelopes.ClaudeCode, Session: "s1"},
			true,
		},
		{
			"a span by the conventions, of an agent with log records of its own", "qwen-code", "qwen-code",
			map[string]string{"session.id": "s1", "gen_ai.conversation.id": "s1", "gen_ai.operation.name": "chat"},
			normalizers.Assignment{Source: envelopes.Qwen, Session: "s1"},
			true,
		},
		{
			"of an agent under another service", "team-a", "qwen-code",
			map[string]string{"session.id": "s1", "prompt_id": "s1#explore-7f3c#0"},
			normalizers.Assignment{Source: envelopes.Qwen, Session: "s1"},
			true,
		},
		{"without a session", "claude-code", "", nil, normalizers.Assignment{Source: envelopes.ClaudeCode}, true},
		{
			"spans of an agent with a row of its own by its scope, not by the conventions", "my-agent", "github.copilot",
			map[string]string{"gen_ai.conversation.id": "s1", "gen_ai.operation.name": "chat"},
			normalizers.Assignment{Source: envelopes.Copilot, Session: "s1"},
			true,
		},
		{
			"by its service, whatever the scope", "github-copilot", "ledger",
			map[string]string{"gen_ai.conversation.id": "s1"}, // a span permission has no operation
			normalizers.Assignment{Source: envelopes.Copilot, Session: "s1"},
			true,
		},
		{
			"an editor's own agent: its conversation is a request", "copilot-chat", "copilot-chat",
			map[string]string{"gen_ai.conversation.id": "r1", "copilot_chat.chat_session_id": "s1", "copilot_chat.session_id": "s0", "gen_ai.operation.name": "chat"},
			normalizers.Assignment{Source: envelopes.VSCodeCopilot, Session: "s1"},
			true,
		},
		{
			"a subagent of it", "copilot-chat", "copilot-chat",
			map[string]string{"copilot_chat.chat_session_id": "call_1", "copilot_chat.parent_chat_session_id": "s1", "gen_ai.operation.name": "chat"},
			normalizers.Assignment{Source: envelopes.VSCodeCopilot, Session: "s1"},
			true,
		},
		{
			"a call of it outside of chats", "copilot-chat", "copilot-chat",
			map[string]string{"gen_ai.conversation.id": "r1", "session.id": "window", "gen_ai.operation.name": "chat"},
			normalizers.Assignment{Source: envelopes.VSCodeCopilot},
			true,
		},
		{
			"a program by the conventions", "ledger", "ledger",
			map[string]string{"gen_ai.conversation.id": "s1", "gen_ai.operation.name": "chat"},
			normalizers.Assignment{Source: envelopes.OTel, Session: "s1"},
			true,
		},
		{"of nobody", "checkout", "http", map[string]string{"session.id": "s1"}, normalizers.Assignment{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, ok := normalizers.AssignTelemetry(c.service, c.scope, func(name string) string { return c.attributes[name] })
			if got != c.want || ok != c.ok {
				t.Errorf("%+v, %t, want %+v", got, ok, c.want)
			}
		})
	}
}

// exportedLog is a log record of a session as an exporter writes it.
func exportedLog(session, event string, second int) string {
	return fmt.Sprintf(`{"timeUnixNano":"17730480%02d000000000","body":{"stringValue":%q},"attributes":[{"key":"session.id","value":{"stringValue":%q}}]}`, second, event, session)
}

// exportRequest is an export request of a service with log records.
func exportRequest(service string, records ...string) string {
	return fmt.Sprintf(`{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":%q}}]},"scopeLogs":[{"scope":{"name":"of.it"},"logRecords":[%s]}]}]}`,
		service, strings.Join(records, ","))
}

// A file that a collector writes has batches, also of services that are no agents. Each record has the session and time
// that it states, however the file is cut into writes.
func TestFilesOfTelemetry(t *testing.T) {
	t.Parallel()
	data := []byte(strings.Join([]string{
		exportRequest("claude-code", exportedLog("a", "one", 1), exportedLog("b", "two", 2), exportedLog("a", "three", 3)),
		exportRequest("claude-code", exportedLog("b", "four", 4)),
	}, "\n") + "\n")
	whole := normalizerstest.Frame(normalizerstest.FileNamed("", "telemetry.jsonl"), data)
	var got []string
	last := int64(-1)
	for _, r := range whole {
		if r.Record.Source != envelopes.ClaudeCode {
			t.Errorf("a record of %q", r.Record.Source)
		}
		if r.Record.Origin.End {
			got = append(got, r.Record.Session+" ends")
			continue
		}
		if r.Record.Origin.Position <= last || r.End <= r.Record.Origin.Position {
			t.Errorf("a record from %d to %d behind %d", r.Record.Origin.Position, r.End, last)
		}
		last = r.Record.Origin.Position
		got = append(got, fmt.Sprintf("%d %s at %s, behind %t", r.Line, r.Record.Session, r.Record.Origin.Time.Format("05"), r.Record.Origin.Previous >= 0))
	}
	want := []string{"1 a at 01, behind false", "1 b at 02, behind false", "1 a at 03, behind true", "2 b at 04, behind true", "a ends", "b ends"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if string(whole[3].Record.Data) != exportRequest("claude-code", exportedLog("b", "four", 4)) {
		t.Errorf("the only record of a line is changed: %s", whole[3].Record.Data)
	}
	for splits := range uint64(20) {
		if err := normalizerstest.FramedOtherwise(whole, normalizerstest.FrameSplit(normalizerstest.FileNamed("", "telemetry.jsonl"), data, splits)); err != nil {
			t.Error(err)
		}
	}
}

// Telemetry in a log has its own session, and lends it to nobody else's records.
func TestTelemetryBesideALog(t *testing.T) {
	t.Parallel()
	const prompt = `{"type":"user","uuid":"u1","sessionId":"log","timestamp":"2026-03-09T09:00:00Z","message":{"role":"user","content":"hi"}}`
	var got []string
	for _, r := range normalizerstest.Frame(normalizerstest.FileNamed("", "log.jsonl"), []byte(prompt+"\n"+exportRequest("claude-code", exportedLog("told", "x", 1))+"\n"+prompt)) {
		got = append(got, r.Record.Session)
	}
	if want := []string{"log", "told", "log", "log", "told"}; !slices.Equal(got, want) {
		t.Errorf("sessions %q, want %q", got, want)
	}
}

// A file of telemetry of no agent is read as nobody's.
func TestTelemetryOfNobody(t *testing.T) {
	t.Parallel()
	if is := recognize(exportRequest("checkout", exportedLog("a", "one", 1))); is.Source != "" {
		t.Errorf("taken for %s by %s", is.Source, is.Marker)
	}
	if is := recognize(exportRequest("claude-code", exportedLog("a", "one", 1))); is.Source != envelopes.ClaudeCode {
		t.Errorf("taken for %q", is.Source)
	}
}
