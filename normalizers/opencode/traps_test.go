package opencode_test

import (
	"fmt"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
	"tributary/normalizers/opencode/opencodetest"
)

// Parts of records.
const (
	created = 1773054000000 // 2026-03-09T11:00:00Z
	session = `"info":{"id":"ses_1","directory":"/w","title":"T","version":%q,"time":{"created":1773054000000}}`
)

// export is the document of a session.
func export(version string, messages ...string) string {
	return "{" + fmt.Sprintf(session, version) + `,"messages":[` + strings.Join(messages, ",") + "]}"
}

// user is a user message with its parts.
func user(id, parts string) string {
	return fmt.Sprintf(`{"info":{"role":"user","id":%q,"sessionID":"ses_1","time":{"created":%d}},"parts":[%s]}`, id, created+1000, parts)
}

// assistant is a message of the model with its tokens and its parts.
func assistant(id, tokens, parts string) string {
	return fmt.Sprintf(`{"info":{"role":"assistant","id":%q,"sessionID":"ses_1","modelID":"m","time":{"created":%d,"completed":%d},"tokens":%s},"parts":[%s]}`,
		id, created+2000, created+9000, tokens, parts)
}

func text(id, s string) string { return fmt.Sprintf(`{"type":"text","id":%q,"text":%q}`, id, s) }

// bash is a finished command; metadata are the members of its metadata.
func bash(id, callID, metadata string) string {
	return fmt.Sprintf(`{"type":"tool","tool":"bash","id":%q,"callID":%q,"state":{"status":"completed","input":{"command":"go test"},"output":"out","metadata":{%s},"time":{"start":1773054003000,"end":1773054004000}}}`, id, callID, metadata)
}

// summaries returns the events of a file in short, without the title of the session.
func summaries(t *testing.T, data string) []string {
	t.Helper()
	var out []string
	for _, e := range normalizerstest.SeedEvents(t, "", "file.jsonl", []byte(data)) {
		if strings.HasSuffix(e.EventID, "#title") {
			continue
		}
		line := string(e.EventType) + " " + e.EventID
		if e.Origin != "" {
			line += " " + string(e.Origin)
		}
		if e.AgentID != nil {
			line += " of " + *e.AgentID
		}
		if e.ToolStatus != nil && e.EventType == envelopes.ToolResult {
			line += " " + string(*e.ToolStatus)
		}
		if e.ToolExitCode != nil {
			line += fmt.Sprintf(" exit %d", *e.ToolExitCode)
		}
		if u := e.Usage; u != nil {
			line += fmt.Sprintf(" [%d %d %d %d %d = %d]", u.Input, u.CacheRead, u.CacheWrite, u.Output, u.Reasoning, *e.TokensTotal)
		}
		if e.Supersedes != "" {
			line += " supersedes " + e.Supersedes
		}
		out = append(out, line)
	}
	return out
}

// TestTraps: what breaks a reader that takes the logs at their word.
func TestTraps(t *testing.T) {
	t.Parallel()
	const used = `{"total":%s"input":100,"output":%d,"reasoning":50,"cache":{"read":30,"write":7}}`
	tokens := func(total string, output int) string {
		return strings.Replace(fmt.Sprintf(used, total, output), `"total":"`, `"`, 1)
	}
	one := `{"input":10,"output":2,"reasoning":0,"cache":{"read":0,"write":0}}`
	step := func(id, tokens string) string {
		return fmt.Sprintf(`{"type":"step-finish","id":%q,"tokens":%s}`, id, tokens)
	}
	run := func(kind, part string) string {
		return fmt.Sprintf(`{"type":%q,"timestamp":1773054010000,"sessionID":"ses_1","part":%s}`, kind, part)
	}
	event := func(kind, properties string) string {
		return fmt.Sprintf(`{"type":%q,"properties":%s}`, kind, properties)
	}
	updated := func(part string) string { return event("message.part.updated", `{"part":`+part+`}`) }
	inMessage := func(part, message string) string {
		return strings.Replace(part, `"id":`, `"messageID":"`+message+`","sessionID":"ses_1","id":`, 1)
	}
	row := func(table, columns string) string { return fmt.Sprintf(`{"table":%q,"row":%s}`, table, columns) }
	stepRow := func(id, tokens string) string {
		return row("part", fmt.Sprintf(`{"id":%q,"message_id":"m1","session_id":"ses_1","time_created":1773054003000,"data":{"type":"step-finish","tokens":%s}}`, id, tokens))
	}
	pruned := strings.Replace(bash("p2", "c", `"exit":0`), `"end":1773054004000`, `"end":1773054004000,"compacted":1773054099000`, 1)
	for _, c := range []struct {
		name string
		data string
		want []string
	}{
		{
			"1: the output includes the reasoning up to 1.3", strings.Join([]string{
				export("1.3.13", assistant("m1", tokens("207,", 70), text("p1", "a")), assistant("m2", tokens("", 70), text("p2", "b")), assistant("m3", tokens("257,", 70), text("p3", "c"))),
				strings.ReplaceAll(export("1.4.1", assistant("m4", tokens("", 20), text("p4", "d")), assistant("m5", tokens("207,", 70), text("p5", "e"))), "ses_1", "ses_2"),
			}, "\n"),
			[]string{
				"assistant_message p1 [100 30 7 20 50 = 207]", "assistant_message p2 [100 30 7 20 50 = 207]", "assistant_message p3 [100 30 7 70 50 = 257]",
				"assistant_message p4 [100 30 7 20 50 = 207]", "assistant_message p5 [100 30 7 20 50 = 207]",
			},
		},
		{
			"2: tokens are stated by the message, by its step and by the session",
			strings.Replace(export("1.18.3", assistant("m1", one, text("p1", "a")+","+step("p2", one))), `"title":"T"`, `"title":"T","tokens":`+one, 1) + "\n" + run("step_finish", inMessage(step("p2", one), "m1")),
			[]string{"assistant_message p1 [10 0 0 2 0 = 12]", "meta p2"},
		},
		{
			"3: all counts are increments, and the input has no part of the cache",
			run("step_finish", inMessage(step("p1", `{"total":13,"input":1,"output":2,"reasoning":0,"cache":{"read":10,"write":0}}`), "m1")) + "\n" +
				run("step_finish", inMessage(step("p2", `{"total":13,"input":1,"output":2,"reasoning":0,"cache":{"read":10,"write":0}}`), "m2")),
			[]string{"meta p1 [1 10 0 2 0 = 13]", "meta p2 [1 10 0 2 0 = 13]"},
		},
		{
			"4: a child session is a document of its own",
			strings.Replace(export("1.14.30", user("m1", text("p1", "find it")), assistant("m2", one, text("p2", "found"))), `"directory"`, `"parentID":"ses_0","directory"`, 1),
			[]string{"user_message p1 agent of ses_1", "assistant_message p2 of ses_1 [10 0 0 2 0 = 12]"},
		},
		{
			"5: a call and its result are one part that is written again", strings.Join([]string{
				updated(inMessage(`{"type":"tool","tool":"bash","id":"p1","state":{"status":"pending","input":{}}}`, "m1")),
				updated(inMessage(`{"type":"tool","tool":"bash","id":"p1","state":{"status":"running","input":{"command":"go test"}}}`, "m1")),
				updated(inMessage(`{"type":"tool","tool":"bash","id":"p1","state":{"status":"running","input":{"command":"go test"},"metadata":{"output":"o"}}}`, "m1")),
				updated(inMessage(bash("p1", "c", `"exit":0`), "m1")), updated(inMessage(bash("p1", "c", `"exit":0`), "m1")),
			}, "\n"),
			[]string{"tool_call p1", "tool_result p1#result success exit 0"},
		},
		{
			"6: an export is cumulative, and its old parts change",
			export("1.18.3", user("m1", text("p1", "go")), assistant("m2", one, bash("p2", "c", `"exit":0`))) + "\n" +
				export("1.18.3", strings.Replace(user("m1", text("p1", "go")), `"role"`, `"summary":{"diffs":[1]},"role"`, 1), assistant("m2", one, pruned), assistant("m3", one, text("p3", "done"))),
			[]string{"user_message p1", "tool_call p2 [10 0 0 2 0 = 12]", "tool_result p2#result success exit 0", "assistant_message p3 [10 0 0 2 0 = 12]"},
		},
		{
			"7: a command that failed is completed",
			export("1.18.3", assistant("m1", one, bash("p1", "a", `"exit":2`)+","+bash("p2", "b", `"exit":null`)+","+bash("p3", "c", `"exit":0`)+","+bash("p4", "d", ``))),
			[]string{
				"tool_call p1 [10 0 0 2 0 = 12]", "tool_result p1#result error exit 2", "tool_call p2", "tool_result p2#result error",
				"tool_call p3", "tool_result p3#result success exit 0", "tool_call p4", "tool_result p4#result success",
			},
		},
		{
			"8: user messages that no human wrote",
			export("1.18.3", user("m1", text("p1", "go")), user("m2", `{"type":"text","id":"p2","synthetic":true,"text":"Continue"}`), user("m3", `{"type":"text","id":"p3","ignored":true,"text":"saved"}`), assistant("m4", one, text("p4", "ok"))),
			[]string{"user_message p1", "meta p2 injected", "meta p3 injected", "assistant_message p4 [10 0 0 2 0 = 12]"},
		},
		{
			"9: a callID comes again in each message",
			export("1.18.3", assistant("m1", one, bash("p1", "functions.bash:0", `"exit":0`)), assistant("m2", one, bash("p2", "functions.bash:0", `"exit":1`))),
			[]string{"tool_call p1 [10 0 0 2 0 = 12]", "tool_result p1#result success exit 0", "tool_call p2 [10 0 0 2 0 = 12]", "tool_result p2#result error exit 1"},
		},
		{
			"10: ids begin anew, and the order is that of the document",
			export("1.18.21", user("msg_ffffffffd001a", text("prt_ffffffffd002a", "before")), user("msg_000000001001a", text("prt_000000001002a", "after"))),
			[]string{"user_message prt_ffffffffd002a", "user_message prt_000000001002a"},
		},
		{
			"11: ids that were taken out are not one id",
			export("1.18.3", user("REDACTED", text("REDACTED", "go")), assistant("REDACTED", one, text("REDACTED", "a")+","+bash("REDACTED", "REDACTED", `"exit":0`)), assistant("REDACTED", one, text("REDACTED", "a"))) + "\n" +
				run("text", inMessage(text("REDACTED", "a"), "REDACTED")) + "\n" + run("step_finish", inMessage(step("REDACTED", one), "REDACTED")) + "\n" + run("step_finish", inMessage(step("REDACTED", one), "REDACTED")),
			[]string{
				"user_message @m1.1", "assistant_message @m2.1 [10 0 0 2 0 = 12]", "tool_call @m2.2", "tool_result @m2.2#result success exit 0", "assistant_message @m3.1 [10 0 0 2 0 = 12]",
				"assistant_message @2", "meta @3 [10 0 0 2 0 = 12]", "meta @4 [10 0 0 2 0 = 12]",
			},
		},
		{
			"12: a message of several steps states the tokens of the last one",
			export("0.6.3", assistant("m1", one, step("p1", `{"input":500,"output":40}`)+","+step("p2", one)+","+text("p3", "a"))) + "\n" +
				run("step_finish", inMessage(step("p1", `{"input":500,"output":40}`), "m1")) + "\n" +
				run("step_finish", inMessage(step("p4", one), "m2")) + "\n" + run("step_finish", inMessage(step("p5", one), "m2")) + "\n" +
				run("step_finish", inMessage(step("p5", one), "m2")),
			[]string{"assistant_message p3 [510 0 0 42 0 = 552]", "meta p1", "meta p4 [10 0 0 2 0 = 12]", "meta p5 [10 0 0 2 0 = 12]"},
		},
		{
			"13: so it does in the database",
			row("session", `{"id":"ses_1","directory":"/w","title":"T","version":"0.6.3","time_created":1773054000000}`) + "\n" +
				row("message", `{"id":"m1","session_id":"ses_1","time_created":1773054002000,"data":{"role":"assistant","modelID":"m","time":{"created":1773054002000},"tokens":`+one+`}}`) + "\n" +
				stepRow("p1", one) + "\n" + stepRow("p2", one) + "\n" + stepRow("p2", one),
			[]string{"meta m1#usage [10 0 0 2 0 = 12]", "meta p2 [10 0 0 2 0 = 12]"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := summaries(t, c.data); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestVendorFigures: tokens_* are the figures of OpenCode under their names.
func TestVendorFigures(t *testing.T) {
	t.Parallel()
	for version, output := range map[string]int64{"1.3.13": 70, "1.4.1": 20} {
		data := export(version, assistant("m1", fmt.Sprintf(`{"input":100,"output":%d,"reasoning":50,"cache":{"read":30,"write":7}}`, output), text("p1", "a")))
		e := normalizerstest.SeedEvents(t, "", "file.json", []byte(data))[1]
		got := []int64{*e.TokensInput, *e.TokensOutput, *e.TokensCached, *e.TokensThinking, *e.TokensTotal}
		if want := []int64{100, output, 30, 50, 207}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: input, output, cached, thinking, total are %d, want %d", version, got, want)
		}
		if e.Usage.Key != "m1" {
			t.Errorf("%s: key %q", version, e.Usage.Key)
		}
	}
}

// TestForms: each form is recognized by its content, also in a stream of server-sent events,
// and states its session.
func TestForms(t *testing.T) {
	t.Parallel()
	message := user("m1", text("p1", "go"))
	line := `{"type":"text","timestamp":1773054010000,"sessionID":"ses_1","part":{"type":"text","id":"p1","text":"a"}}`
	event := `{"type":"session.idle","properties":{"sessionID":"ses_1"}}`
	for name, c := range map[string]struct {
		data    string
		records int
	}{
		"an export":                   {export("1.18.3", message), 1},
		"an export with a banner":     {"Exporting session: ses_1\n" + export("1.18.3", message) + "\n", 2},
		"an export, not a record":     {"{\n " + export("1.18.3", message)[1:] + "\n" + export("1.18.4", message), 2},
		"a message":                   {message, 1},
		"messages":                    {"[" + message + "," + message + "]", 1},
		"lines of a run":              {line + "\n" + line, 2},
		"a run in an array":           {"[" + line + ",\n" + line + "]", 2},
		"an error of a run":           {`{"type":"error","timestamp":1773054010000,"sessionID":"ses_1","error":{}}`, 1},
		"events":                      {event + "\n" + event, 2},
		"events in an array":          {"[" + event + "," + event + "]", 2},
		"events of the global stream": {`{"directory":"/w","payload":` + event + `}`, 1},
		"server-sent events":          {"data: " + event + "\n\ndata: " + event + "\n\n", 2},
		"server-sent, with ids":       {"id: 1\nevent: message\ndata: {\"type\":\"server.connected\",\"properties\":{}}\n\ndata: " + event + "\n\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			framed := normalizerstest.Frame(normalizers.File{Name: "stdin"}, []byte(c.data))
			n := 0
			for _, f := range framed {
				if f.Record.Source != envelopes.OpenCode || f.Record.Session != "ses_1" {
					t.Errorf("a record of %q of %q", f.Record.Session, f.Record.Source)
				}
				if !f.Record.Origin.End {
					n++
				}
			}
			if n != c.records {
				t.Errorf("%d records, want %d", n, c.records)
			}
			for _, s := range normalizerstest.Fold(normalizers.Normalize, framed) {
				if s.Err != nil {
					t.Error(s.Err)
				}
			}
		})
	}
	for name, data := range map[string]string{
		"a JSON Schema":       `{"type":"object","properties":{"a":{}}}`,
		"no sessionID":        `{"type":"text","timestamp":1,"part":{}}`,
		"no timestamp":        `{"type":"text","sessionID":"s","part":{}}`,
		"messages of another": `{"messages":[{"role":"user"}]}`,
	} {
		if f := normalizerstest.Frame(normalizers.File{Name: "stdin"}, []byte(data)); f[0].Record.Source == envelopes.OpenCode {
			t.Errorf("%s is recognized", name)
		}
	}
}

// TestPendingBounds: a text that no session can keep is cut, and says so; its end states all
// of it. No number of texts makes a state too large.
func TestPendingBounds(t *testing.T) {
	t.Parallel()
	update := func(id string, size int, end string) string {
		return fmt.Sprintf(`{"type":"message.part.updated","properties":{"part":{"type":"text","id":%q,"messageID":"m1","sessionID":"ses_1","text":"%s","time":{"start":1773054000000%s}}}}`,
			id, strings.Repeat(`\u0001x`, size), end)
	}
	var lines []string
	for i := range 12 {
		lines = append(lines, update(fmt.Sprintf("p%d", i), 40<<10, ""))
	}
	lines = append(lines, update("p11", 50<<10, `,"end":1773054001000`), update("q", 100<<10, ""))
	file := normalizerstest.FileNamed("", "file.jsonl")
	records := normalizerstest.Frame(file, []byte(strings.Join(lines, "\n")))
	normalizerstest.CheckLaws(t, opencodetest.Suite, records, true)
	got := normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, records))
	if len(got) != 13 {
		t.Fatalf("%d events, want one for each text", len(got))
	}
	for i, e := range got {
		whole := i == 11
		if e.TextTruncated == whole || whole && len(*e.Text) != 100<<10 || !whole && len(*e.Text) < 1<<10 {
			t.Errorf("event %d, %q: %d bytes, truncated %t", i, e.EventID, len(*e.Text), e.TextTruncated)
		}
	}
}

// TestDocumentHead: messages that were read before are passed over in a long document, and
// one that changed is found.
func TestDocumentHead(t *testing.T) {
	t.Parallel()
	const one = `{"input":1,"output":1,"reasoning":0,"cache":{"read":0,"write":0}}`
	var messages []string
	for i := range 6000 { // more than the ids and calls that a session remembers
		messages = append(messages, assistant(fmt.Sprintf("m%d", i), one, text(fmt.Sprintf("p%d", i), "a")))
	}
	changed := append([]string(nil), messages...)
	changed[5999] = assistant("m5999", one, text("p5999", "b"))
	more := append(append([]string(nil), messages...), assistant("new", one, text("new", "c")))
	got := summaries(t, strings.Join([]string{export("1.18.3", messages...), export("1.18.3", changed...), export("1.18.3", more...)}, "\n"))
	want := []string{"assistant_message p5999#r1 supersedes p5999", "assistant_message new [1 0 0 1 0 = 2]"}
	if len(got) != 6002 || fmt.Sprint(got[6000:]) != fmt.Sprint(want) {
		t.Errorf("%d events, the last %q", len(got), got[max(0, len(got)-3):])
	}
}

// TestSessionID: the id that resumes the session is what a record states, in each form, and never
// the name of the file.
func TestSessionID(t *testing.T) {
	t.Parallel()
	const part = `{"id":"prt_1","sessionID":%q,"messageID":"msg_1","type":"text","text":"Done.","time":{"start":1773054001000,"end":1773054002000}}`
	for name, c := range map[string]struct{ data, want string }{
		"export":         {export("1.2.16", user("msg_1", text("prt_1", "Fix it."))), "ses_1"},
		"message":        {user("msg_1", text("prt_1", "Fix it.")), "ses_1"},
		"list":           {"[" + user("msg_1", text("prt_1", "Fix it.")) + "]", "ses_1"},
		"run":            {fmt.Sprintf(`{"type":"text","timestamp":1773054002000,"sessionID":"ses_1","part":`+part+"}", "ses_1"), "ses_1"},
		"error of a run": {`{"type":"error","timestamp":1773054002000,"sessionID":"ses_1","error":{"name":"UnknownError","data":{"message":"x"}}}`, "ses_1"},
		"part":           {fmt.Sprintf(`{"type":"message.part.updated","properties":{"part":`+part+"}}", "ses_1"), "ses_1"},
		"error":          {`{"type":"session.error","properties":{"sessionID":"ses_1","error":{"name":"UnknownError","data":{"message":"x"}}}}`, "ses_1"},
		"retry":          {`{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"retry","message":"x"}}}`, "ses_1"},
		"removal":        {`{"type":"message.removed","properties":{"sessionID":"ses_1","messageID":"msg_1"}}`, "ses_1"},
		"taken out":      {fmt.Sprintf(`{"type":"text","timestamp":1773054002000,"sessionID":"REDACTED","part":`+part+"}", "REDACTED"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			events := normalizerstest.SeedEvents(t, "", "file.jsonl", []byte(c.data+"\n"))
			if len(events) == 0 {
				t.Fatal("no event")
			}
			for _, e := range events {
				got := ""
				if e.Metadata != nil && e.Metadata.SessionID != nil {
					got = *e.Metadata.SessionID
				}
				if got != c.want {
					t.Errorf("%s: metadata.sessionId %q, want %q", e.EventID, got, c.want)
				}
			}
		})
	}
}
