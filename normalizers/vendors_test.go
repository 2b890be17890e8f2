package normalizers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// TestShapesOfTheNewestVersions reads each shape of the newest versions of the vendors alone.
func TestShapesOfTheNewestVersions(t *testing.T) {
	t.Parallel()
	const (
		rollout = `{"timestamp":"2026-10-07T10:00:00Z","type":"session_meta","payload":{"id":"s1","cwd":"/w","history_mode":"paginated"}}` + "\n"
		item    = `{"timestamp":"2026-10-07T10:00:01Z","type":"event_msg","payload":{"type":"item_completed","item":%s}}`
		respond = `{"timestamp":"2026-10-07T10:00:01Z","type":"response_item","payload":%s}`
		copilot = `{"type":"session.start","data":{"sessionId":"s1"},"id":"e0","timestamp":"2026-10-07T10:00:00Z","parentId":null}` + "\n"
		event   = `{"type":%q,"data":%s,"id":"e1","timestamp":"2026-10-07T10:00:01Z","parentId":"e0"}`
		chat    = `{"sessionId":"s1","projectHash":"00","startTime":"2026-10-07T10:00:00Z","kind":"main"}` + "\n"
		run     = `{"type":"system","subtype":"init","session_id":"s1","uuid":"u0","tools":[],"mcp_servers":[],"model":"m"}` + "\n"
	)
	items := func(of ...string) string {
		for i := range of {
			of[i] = fmt.Sprintf(item, of[i])
		}
		return rollout + strings.Join(of, "\n")
	}
	for _, c := range []struct {
		name   string
		source envelopes.Source
		data   string
		want   []string // of the events after the first
	}{
		{
			"the item of a command is call and result", envelopes.Codex,
			items(`{"type":"CommandExecution","id":"exec-1","command":["sh","-c","false"],"aggregated_output":"no","exit_code":1,"duration":{"secs":1,"nanos":500000000},"status":"failed"}`),
			[]string{`tool_call exec_command exec-1 in_progress ["sh","-c","false"]`, "tool_result exec_command exec-1 error exit 1 no"},
		},
		{
			"an item adds the exit code to the result that follows", envelopes.Codex,
			rollout + strings.Join([]string{
				fmt.Sprintf(respond, `{"type":"function_call","name":"exec_command","arguments":"{}","call_id":"c1"}`),
				fmt.Sprintf(item, `{"type":"CommandExecution","id":"c1","command":["false"],"exit_code":2,"status":"failed"}`),
				fmt.Sprintf(respond, `{"type":"function_call_output","call_id":"c1","output":"plain"}`),
			}, "\n"),
			[]string{"tool_call exec_command c1 in_progress {}", "tool_result exec_command c1 error exit 2 plain"},
		},
		{
			"items of files, MCP, searches and images are calls and results", envelopes.Codex,
			items(
				`{"type":"FileChange","id":"f","changes":{"/w/a.go":{"type":"add"}},"status":"failed","stderr":"no"}`,
				`{"type":"McpToolCall","id":"m","server":"s","tool":"t","arguments":{"q":1},"status":"failed","result":{"content":[{"type":"text","text":"none"}],"isError":true}}`,
				`{"type":"McpToolCall","id":"e","server":"s","tool":"t","arguments":null,"status":"failed","error":{"message":"timed out"}}`,
				`{"type":"Extension","kind":"web.search","id":"w","query":"q","action":null,"results":[1]}`,
				`{"type":"ImageView","id":"i","path":"file:///w/a.png"}`,
				`{"type":"Extension","kind":"clock.sleep","id":"z"}`,
			),
			[]string{
				"tool_call apply_patch f in_progress", "tool_result apply_patch f error \nno",
				`tool_call mcp__s__t m in_progress {"q":1}`, "tool_result mcp__s__t m error none",
				"tool_call mcp__s__t e in_progress", "tool_result mcp__s__t e error timed out",
				"tool_call web_search w in_progress q", "tool_result web_search w success [1]",
				`tool_call view_image i in_progress {"path":"/w/a.png"}`,
				"meta",
			},
		},
		{
			"text of the program under the role of the user is meta", envelopes.Codex,
			rollout + strings.Join([]string{
				fmt.Sprintf(respond, `{"type":"message","role":"user","content":[{"type":"input_text","text":"<hook_prompt hook_run_id=\"h\">again</hook_prompt>"}]}`),
				fmt.Sprintf(respond, `{"type":"message","role":"user","content":[{"type":"input_text","text":"<codex_internal_context source=\"goal\">\ngo on\n</codex_internal_context>"}]}`),
			}, "\n"),
			[]string{`meta <hook_prompt hook_run_id="h">again</hook_prompt>`, "meta <codex_internal_context source=\"goal\">\ngo on\n</codex_internal_context>"},
		},
		{
			"a fork without history counts only its own tokens", envelopes.Codex,
			`{"timestamp":"2026-10-07T10:00:00Z","type":"session_meta","payload":{"id":"01a103a9-0000-7000-8000-000000000009","history_base":{"thread_id":"s0","end_ordinal_exclusive":5}}}
{"timestamp":"2026-10-07T10:00:01Z","type":"event_msg","payload":{"type":"task_started","turn_id":"01a103a9-1000-7000-8000-000000000001"}}
{"timestamp":"2026-10-07T10:00:02Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":900,"output_tokens":90},"last_token_usage":{"input_tokens":20,"output_tokens":3}}}}
{"timestamp":"2026-10-07T10:00:03Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":940,"output_tokens":94},"last_token_usage":{"input_tokens":40,"output_tokens":4}}}}`,
			[]string{"meta", "meta 23 tokens", "meta 44 tokens"},
		},
		{
			"a thread that continues in another file counts only its last tokens", envelopes.Codex,
			`{"timestamp":"2026-10-07T10:00:00Z","type":"session_meta","payload":{"id":"s0","history_base":{"thread_id":"s0","end_ordinal_exclusive":5}}}
{"timestamp":"2026-10-07T10:00:02Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":900,"output_tokens":90},"last_token_usage":{"input_tokens":20,"output_tokens":3}}}}`,
			[]string{"meta 23 tokens"},
		},
		{
			"searches and agents of the exec stream are calls and results", envelopes.Codex,
			`{"type":"thread.started","thread_id":"s1"}
{"type":"item.started","item":{"id":"i0","type":"web_search","query":""}}
{"type":"item.completed","item":{"id":"i0","type":"web_search","query":"go","results":[1]}}
{"type":"item.completed","item":{"id":"i1","type":"collab_tool_call","tool":"spawn_agent","prompt":"do","agents_states":{},"status":"failed"}}`,
			[]string{"tool_call web_search 1.i0 in_progress go", "tool_result web_search 1.i0 success [1]", "tool_call spawn_agent 1.i1 in_progress do", "tool_result spawn_agent 1.i1 error {}"},
		},
		{
			"each call has its own result where both results repeat", envelopes.Gemini,
			chat + `{"id":"g1","timestamp":"2026-10-07T10:00:01Z","type":"gemini","content":"","toolCalls":[` +
				`{"id":"c1","name":"read_file","args":{},"status":"success","result":[{"functionResponse":{"id":"c1","response":{"output":"A"}}},{"functionResponse":{"id":"c2","response":{"error":"B"}}}]},` +
				`{"id":"c2","name":"read_file","args":{},"status":"error","result":[{"functionResponse":{"id":"c1","response":{"output":"A"}}},{"functionResponse":{"id":"c2","response":{"error":"B"}}}]}]}`,
			[]string{"tool_call read_file c1 in_progress {}", "tool_result read_file c1 success A", "tool_call read_file c2 in_progress {}", "tool_result read_file c2 error B"},
		},
		{
			"the exit code beside the output is that of the result", envelopes.Copilot,
			copilot + fmt.Sprintf(event, "tool.execution_complete", `{"toolCallId":"t","success":true,"result":{"content":"out","contents":[{"type":"shell_exit","exitCode":3}]}}`) + "\n" +
				fmt.Sprintf(event, "tool.execution_complete", `{"toolCallId":"u","success":true,"result":{"content":"out"},"toolTelemetry":{"metrics":{"exit_code":4}}}`) + "\n" +
				fmt.Sprintf(event, "tool.execution_complete", `{"toolCallId":"v","success":true,"result":{"content":"out"},"shellExecution":{"exitCode":5}}`),
			[]string{"tool_result  t error exit 3 out", "tool_result  u error exit 4 out", "tool_result  v error exit 5 out"},
		},
		{
			"the first chunk of a message is emitted with its call", envelopes.Copilot,
			copilot + fmt.Sprintf(event, "assistant.message", `{"messageId":"m","content":"A","chunkIndex":0,"chunkCount":2,"toolRequests":[{"toolCallId":"t","name":"view","arguments":{}}]}`),
			[]string{"assistant_message A", "tool_call view t in_progress {}"},
		},
		{
			"a failed session is a log", envelopes.Copilot,
			copilot + fmt.Sprintf(event, "session.shutdown", `{"shutdownType":"error","errorReason":"lost","modelMetrics":{}}`),
			[]string{"session_summary", "log lost error lost"},
		},
		{
			"the last line of the JSON output is a summary", envelopes.Copilot,
			copilot + `{"type":"result","timestamp":"2026-10-07T10:00:02Z","sessionId":"s1","exitCode":0}`,
			[]string{"session_summary"},
		},
		{
			"the JSON output states the model", envelopes.Copilot,
			fmt.Sprintf(event, "session.tools_updated", `{"model":"gpt-6"}`) + "\n" + `{"type":"assistant.message","data":{"messageId":"m","content":"hi"},"timestamp":"2026-10-07T10:00:02Z"}`,
			[]string{"assistant_message hi by gpt-6"},
		},
		{
			"a transcript may state times and models", envelopes.Cursor,
			`{"role":"user","message":{"content":[{"type":"text","text":"<timestamp>2026-05-07T14:30:00Z</timestamp>\n<user_query>go</user_query>"}]}}
{"role":"assistant","message":{"content":[{"type":"text","text":"hi"}],"model":"composer"},"timestamp":"2026-05-07T14:31:00Z"}`,
			[]string{"assistant_message hi by composer"},
		},
		{
			"the history of a fork is copied", envelopes.ClaudeCode,
			`{"type":"user","uuid":"u0","sessionId":"s1","forkedFrom":{"sessionId":"s0","messageUuid":"x"},"message":{"role":"user","content":"old"}}
{"type":"assistant","uuid":"u1","sessionId":"s1","forkedFrom":{"sessionId":"s0","messageUuid":"y"},"message":{"id":"m1","role":"assistant","content":[{"type":"text","text":"did"}],"usage":{"input_tokens":5,"output_tokens":5}}}
{"type":"assistant","uuid":"u2","sessionId":"s1","message":{"id":"m2","role":"assistant","content":[{"type":"text","text":"do"}],"usage":{"input_tokens":3,"output_tokens":4}}}`,
			[]string{"assistant_message did copied", "assistant_message do 7 tokens"},
		},
		{
			"a plan that awaits approval is meta", envelopes.Cursor,
			`{"type":"system","subtype":"init","session_id":"s1","model":"m"}
{"type":"interaction_query","subtype":"request","query_type":"createPlanRequestQuery","query":{"id":1,"createPlanRequestQuery":{"args":{"plan":"# Plan"}}},"session_id":"s1"}
{"type":"interaction_query","subtype":"response","query_type":"createPlanRequestQuery","response":{"id":1},"session_id":"s1"}`,
			[]string{"meta # Plan", "meta"},
		},
		{
			"messages of teammates are one system message", envelopes.ClaudeCode,
			run + `{"type":"attachment","uuid":"u1","sessionId":"s1","attachment":{"type":"teammate_mailbox","messages":[{"from":"a","text":"one"},{"from":"b","text":"two"}]}}`,
			[]string{"system_message one\ntwo"},
		},
		{
			"failures beside the conversation are logs", envelopes.ClaudeCode,
			run + `{"type":"auth_status","output":["one","two"],"error":"no key","uuid":"u1","session_id":"s1"}
{"type":"auth_status","output":["three"],"uuid":"u2","session_id":"s1"}
{"type":"system","subtype":"status","status":null,"compact_result":"failed","compact_error":"too long","uuid":"u3","session_id":"s1"}
{"type":"system","subtype":"status","status":"compacting","uuid":"u4","session_id":"s1"}
{"type":"system","subtype":"mirror_error","error":"disk","uuid":"u5","session_id":"s1"}`,
			[]string{"log one\ntwo error no key", "log three", "log too long error too long", "log disk error disk"},
		},
		{
			"a run that ended with an error adds a log", envelopes.ClaudeCode,
			run + `{"type":"result","subtype":"error_max_turns","is_error":false,"num_turns":2,"errors":["too many"],"session_id":"s1","uuid":"u1"}`,
			[]string{"session_summary", "log too many error too many"},
		},
		{
			"a repeated result leaves only its tokens", envelopes.ClaudeCode,
			run + `{"type":"assistant","session_id":"s1","message":{"id":"m1","role":"assistant","content":[{"type":"web_search_tool_result","tool_use_id":"t1","content":[]}],"usage":{"output_tokens":3}}}
{"type":"assistant","session_id":"s1","message":{"id":"m2","role":"assistant","content":[{"type":"web_search_tool_result","tool_use_id":"t1","content":[]}],"usage":{"output_tokens":4}}}`,
			[]string{"tool_result  t1 success 3 tokens", "meta 4 tokens"},
		},
		{
			"the origin of a prompt decides its type", envelopes.ClaudeCode,
			run + `{"type":"user","uuid":"u1","session_id":"s1","parent_tool_use_id":null,"message":{"role":"user","content":"go on"},"origin":{"kind":"auto-continuation"}}
{"type":"user","uuid":"u2","session_id":"s1","parent_tool_use_id":null,"message":{"role":"user","content":"do"},"origin":{"kind":"coordinator"}}
{"type":"user","uuid":"u3","session_id":"s1","parent_tool_use_id":null,"message":{"role":"user","content":"hi"},"origin":{"kind":"channel","server":"chat"}}`,
			[]string{"meta go on", "system_message do", "user_message hi"},
		},
		{
			"tools of the server are calls and results", envelopes.ClaudeCode,
			run + `{"type":"assistant","uuid":"u1","session_id":"s1","message":{"id":"m1","role":"assistant","model":"m","content":[` +
				`{"type":"server_tool_use","id":"t1","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"t1","content":{"type":"web_search_tool_result_error","error_code":"max_uses_exceeded"}},` +
				`{"type":"server_tool_use","id":"t2","name":"advisor","input":{}},{"type":"advisor_tool_result","tool_use_id":"t2","content":{"type":"advisor_result","text":"think"}}]}}
{"type":"user","uuid":"u2","session_id":"s1","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t3","content":"sent"}]},"tool_use_result":{"status":"remote_launched"}}`,
			[]string{
				"tool_call web_search t1 in_progress {}", "tool_result web_search t1 error max_uses_exceeded",
				"tool_call advisor t2 in_progress {}", "tool_result advisor t2 success think",
				"tool_result  t3 in_progress sent",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, e := range eventsOf(t, c.source, "s1.jsonl", []byte(c.data))[1:] {
				got = append(got, brieflyOf(&e))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("events\n%q, want\n%q", got, c.want)
			}
		})
	}
}

// brieflyOf prints an event briefly: its type, the tool with its outcome, the text, the error.
func brieflyOf(e *envelopes.AgentEventV1) string {
	text := []string{string(e.EventType)}
	if e.ToolCallID != nil {
		text = append(text, normalizerstest.Value(e.ToolName), *e.ToolCallID, string(normalizerstest.Value(e.ToolStatus)))
	}
	if e.ToolExitCode != nil {
		text = append(text, fmt.Sprint("exit ", *e.ToolExitCode))
	}
	if normalizerstest.Value(e.Text) != "" {
		text = append(text, *e.Text)
	}
	if e.EventType == envelopes.AssistantMessage && e.Model != nil {
		text = append(text, "by", *e.Model)
	}
	if e.Origin == envelopes.OriginCopied {
		text = append(text, "copied")
	}
	if e.TokensTotal != nil {
		text = append(text, fmt.Sprint(*e.TokensTotal, " tokens"))
	}
	if e.Metadata != nil && e.Metadata.Extensions["error"] != nil {
		text = append(text, "error", normalizerstest.Member[string](normalizerstest.Parse(e.Metadata.Extensions["error"]), "message"))
	}
	return strings.Join(text, " ")
}
