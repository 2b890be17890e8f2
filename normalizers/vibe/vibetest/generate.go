package vibetest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// script writes the messages of one session, its state, and sometimes all of it as one document.
type script struct {
	normalizerstest.Script

	n      int
	saved  []any
	totals [3]int
	parent any
}

// lines generates the records of one session.
func lines(t *rapid.T, session string) [][]byte {
	s := &script{Script: normalizerstest.NewScript(t, session)}
	if s.Chance(20) {
		s.parent = "another"
	}
	if s.Chance(20) {
		s.message("user", "Scratchpad directory: /tmp/s\nYou can read and write files here without permission prompts.\n\n"+s.word(), nil)
	}
	moves := []func(){s.prompt, s.prompt, s.injected, s.answer, s.answer, s.answer, s.result, s.result, s.state, s.state, s.Repeat}
	if s.Chance(20) {
		moves = append(moves, s.document)
	}
	s.Play(moves...)
	return s.Lines
}

func (s *script) word() string {
	return s.Text("returncode: 3", "a\nReturn code: 127\nb", "<tool_error>")
}

func (s *script) message(role, content string, more map[string]any) {
	s.n++
	m := map[string]any{"role": role, "content": content, "injected": false, "message_id": fmt.Sprintf("%s-%d", s.Session, s.n)}
	for name, v := range more {
		if m[name] = v; v == nil {
			delete(m, name)
		}
	}
	s.Emit(m)
	s.saved = append(s.saved, m)
}

func (s *script) prompt() {
	if s.Chance(20) {
		s.message("user", s.word(), map[string]any{"images": []any{map[string]any{"alias": "a.png"}}})
		return
	}
	s.message("user", s.word(), nil)
}

func (s *script) injected() {
	text := s.OneOf(
		"You are continuing a trajectory after a context compaction.\n\n<previous_user_messages>\n</previous_user_messages>\n\n<compaction_summary>\nSo far.\n</compaction_summary>",
		"You are continuing a trajectory after a context compaction.", "Manual `!` command result from the user. Use this as context only.\n\nCommand: `ls`", "<vibe_warning>x</vibe_warning>",
	)
	s.message("user", text, map[string]any{"injected": true})
}

func (s *script) answer() {
	more := make(map[string]any)
	if s.Chance(60) {
		more["reasoning_content"], more["reasoning_message_id"] = s.word(), fmt.Sprintf("%s-r%d", s.Session, s.n)
	}
	var calls []any
	for i := range rapid.IntRange(0, 3).Draw(s.T, "calls") {
		id := s.NewCall()
		function := map[string]any{"name": s.OneOf("bash", "read_file", "edit", "task", "docs_x"), "arguments": s.OneOf(`{"command": "ls", "file_path": "a.go"}`, "{", "")}
		calls = append(calls, map[string]any{"id": id, "index": i, "function": function, "type": "function"})
	}
	if calls != nil {
		more["tool_calls"] = calls
	}
	s.message("assistant", s.word(), more)
}

func (s *script) result() {
	id := s.AnyCall()
	text := s.OneOf(
		"command: ls\nstdout: "+s.word()+"\nstderr: \nreturncode: 0", "<tool_error>bash failed: Command failed: 'x'\nReturn code: 2\nStdout: "+s.word()+"</tool_error>",
		"<tool_error>bash failed: Command timed out after 9s: 'x'</tool_error>", "<user_cancellation>x</user_cancellation>",
		"response: "+s.word()+"\nturns_used: 1\ncompleted: False", s.word(),
	)
	s.message("tool", text, map[string]any{"name": s.OneOf("bash", "task"), "tool_call_id": id, "message_id": nil})
}

// meta is the state of the session, whose totals grow, or begin again.
func (s *script) meta() map[string]any {
	if s.Chance(20) {
		s.totals = [3]int{}
	}
	input := rapid.SampledFrom([]int{0, 1, 57, 11_480}).Draw(s.T, "input")
	s.totals[0] += input
	s.totals[1] += rapid.SampledFrom([]int{0, 1, 9}).Draw(s.T, "output")
	s.totals[2] += rapid.IntRange(0, input).Draw(s.T, "cached")
	return map[string]any{
		"session_id": s.Session + "-id", "parent_session_id": s.parent, "start_time": s.Stamp(), "end_time": s.Stamp(), "title": s.word(),
		"git_commit": rapid.SampledFrom([]any{nil, "4b7e9a1c02d85f36e1a94c7b0d2f58e6a3917c40"}).Draw(s.T, "commit"), "git_branch": s.OneOf("main", "HEAD", "fix"),
		"environment": map[string]any{"working_directory": "/home/ada/app"}, "config": map[string]any{"active_model": s.OneOf("devstral-2", "devstral-3")},
		"stats": map[string]any{"session_prompt_tokens": s.totals[0], "session_completion_tokens": s.totals[1], "session_cached_tokens": s.totals[2]},
	}
}

func (s *script) state() { s.Emit(s.meta()) }

func (s *script) document() {
	m := s.meta()
	m["session_id"] = s.Session
	s.Emit(map[string]any{"metadata": m, "messages": append([]any{}, slices.Clone(s.saved)...)})
}
