package normalizers_test

import (
	"fmt"
	"io"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// A log is cut into records by a Framer. Normalize turns the records of each session, in their
// order, into events.
func Example() {
	const path = "/home/ada/.claude/projects/-home-ada-app/4f6c.jsonl"
	log := strings.NewReader(`{"type":"user","uuid":"u1","sessionId":"4f6c","cwd":"/home/ada/app","timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":"Which files are here?"}}
{"type":"assistant","uuid":"a1","sessionId":"4f6c","timestamp":"2026-03-01T09:00:01Z","message":{"id":"msg_1","role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"ls"}}],"usage":{"input_tokens":12,"output_tokens":5}}}
this line is no JSON
{"type":"user","uuid":"u2","sessionId":"4f6c","timestamp":"2026-03-01T09:00:02Z","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"main.go"}]}}
`) // os.Open(path)

	// Without a Source the framer detects the vendor from the records.
	framer := normalizers.NewFramer(normalizers.File{Name: "4f6c.jsonl", Path: path})
	if _, err := io.Copy(framer, log); err != nil {
		fmt.Println(err)
		return
	}
	framer.Close() // the file is complete; a file that still grows stays open

	sessions := make(map[string]*core.Session)
	for framed, ok := framer.Next(); ok; framed, ok = framer.Next() {
		record := framed.Record
		if framed.Err != nil { // a line longer than MaxRecordBytes was dropped
			fmt.Printf("line %d: %v\n", framed.Line, framed.Err)
			continue
		}
		session := sessions[record.Session]
		if session == nil {
			session = normalizers.NewSession(record.Source, record.Session)
			sessions[record.Session] = session
		}
		result, err := normalizers.Normalize(session, record)
		if err != nil { // the session is as it was before: the next record goes on
			reason, _ := core.Reason(err)
			fmt.Printf("line %d: dead letter: %s\n", framed.Line, reason)
			continue
		}
		for _, emitted := range result.Events {
			event := emitted.Event
			fmt.Printf("line %d: event %d of %s: %s %s\n", framed.Line, event.Sequence, event.Source, event.EventType, event.EventID)
		}
	}
	// Output:
	// line 1: event 1 of claude_code: user_message u1
	// line 2: event 2 of claude_code: tool_call toolu_1
	// line 3: dead letter: malformed
	// line 4: event 3 of claude_code: tool_result toolu_1#result
}

// The state of a session can be stored after any record. Decoded, it continues with the same
// sequence, and a repeated record yields nothing.
func ExampleDecodeSession() {
	record := func(id, text string) core.Record {
		return core.Record{
			Source:  envelopes.ClaudeCode,
			Session: "4f6c",
			Data:    fmt.Appendf(nil, `{"type":"user","uuid":%q,"message":{"role":"user","content":%q}}`, id, text),
		}
	}
	session := normalizers.NewSession(envelopes.ClaudeCode, "4f6c")
	if _, err := normalizers.Normalize(session, record("u1", "hello")); err != nil {
		fmt.Println(err)
		return
	}
	stored := session.Encode()

	session, err := normalizers.DecodeSession(stored)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range []core.Record{record("u1", "hello"), record("u2", "again")} {
		result, err := normalizers.Normalize(session, r)
		if err != nil {
			fmt.Println(err)
			return
		}
		if len(result.Events) == 0 {
			fmt.Println("skipped:", result.Skip)
		}
		for _, emitted := range result.Events {
			fmt.Println(emitted.Event.Sequence, *emitted.Event.Text)
		}
	}
	// Output:
	// skipped: duplicate
	// 2 again
}
