package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// agentLog is the log of a session of Claude Code, which the program follows.
type agentLog struct {
	t       *testing.T
	session string
	path    string
	lines   int

	folder, branch, model string // of the next records
}

// newLog begins the log of a session.
func (s *server) newLog(t *testing.T, session string) *agentLog {
	t.Helper()
	dir := filepath.Join(s.logs, "projects", "-home-ada-app")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return &agentLog{
		t: t, session: session, path: filepath.Join(dir, session+".jsonl"),
		folder: "/home/ada/app", branch: "main", model: "claude-opus-4-5-20251101",
	}
}

// page is the address of the session.
func (l *agentLog) page() string { return "/sessions/claude_code/" + l.session }

// begun is when the first record of a log was written.
var begun = time.Date(2026, 3, 9, 9, 0, 0, 0, time.UTC)

// record returns the next line. content is that of the message.
func (l *agentLog) record(role string, content any) []byte {
	l.t.Helper()
	message := map[string]any{"role": role, "content": content}
	if role == "assistant" {
		message["id"], message["model"] = fmt.Sprintf("msg_%d", l.lines), l.model
		message["usage"] = map[string]any{"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 100}
	}
	line, err := json.Marshal(map[string]any{
		"type": role, "uuid": fmt.Sprintf("%s-%d", l.session, l.lines), "sessionId": l.session, "cwd": l.folder, "gitBranch": l.branch,
		"timestamp": begun.Add(time.Duration(l.lines) * time.Second).Format("2006-01-02T15:04:05.000Z"), "version": "2.1.112", "message": message,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.lines++
	return append(line, '\n')
}

func (l *agentLog) prompt(text string) []byte { l.t.Helper(); return l.record("user", text) }

func (l *agentLog) answer(text string) []byte {
	l.t.Helper()
	return l.record("assistant", []any{map[string]any{"type": "text", "text": text}})
}

// call returns the lines of a command and of its result.
func (l *agentLog) call(command, result string, failed bool) []byte {
	l.t.Helper()
	return l.tool("Bash", map[string]any{"command": command}, result, failed)
}

// use returns the lines of the use of a tool.
func (l *agentLog) use(tool string, input map[string]any, result string) []byte {
	l.t.Helper()
	return l.tool(tool, input, result, false)
}

func (l *agentLog) tool(name string, input map[string]any, result string, failed bool) []byte {
	l.t.Helper()
	id := fmt.Sprintf("toolu_%s_%d", l.session, l.lines)
	call := l.record("assistant", []any{map[string]any{"type": "tool_use", "id": id, "name": name, "input": input}})
	answer := map[string]any{"type": "tool_result", "tool_use_id": id, "content": result}
	if failed {
		answer["is_error"] = true
	}
	return append(call, l.record("user", []any{answer})...)
}

// write appends lines to the log.
func (l *agentLog) write(lines ...[]byte) {
	l.t.Helper()
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, line := range lines {
		if _, err := f.Write(line); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		l.t.Fatal(err)
	}
}
