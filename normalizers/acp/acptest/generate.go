package acptest

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// acpScript writes the stored records of one ACP session in the shapes of README.md: streams of runs, complete or cut
// off, single runs and messages, and what is sent to an agent.
type acpScript struct {
	normalizerstest.Script

	runs int
	run  map[string]any // in its last stated form
}

// lines generates the lines of one session.
func lines(t *rapid.T, session string) [][]byte {
	s := &acpScript{Script: normalizerstest.NewScript(t, session)}
	s.start()
	moves := []func(){
		s.start, s.stream, s.stream, s.stream, s.broken, s.end, s.end, s.ask, s.request, s.request, s.message, s.message,
		s.history, s.sync, s.again, s.other, s.other,
	}
	for range rapid.IntRange(1, 20).Draw(t, "records") {
		rapid.SampledFrom(moves).Draw(t, "move")()
	}
	return s.Lines
}

func (s *acpScript) word() string {
	if s.Chance(10) {
		return rapid.String().Draw(s.T, "text")
	}
	return rapid.SampledFrom([]string{"fix the test", "yes", "  \n", "", "two\nlines \u2028 \U0001F642", "{\"a\":1}", strings.Repeat("long ", 900)}).Draw(s.T, "word")
}

func (s *acpScript) stamp() any {
	if s.Chance(20) {
		return nil
	}
	s.Now = s.Now.Add(time.Duration(rapid.IntRange(-500, 5000).Draw(s.T, "ms")) * time.Millisecond)
	return s.Now.Format("2006-01-02T15:04:05.000Z")
}

// part is a part of any kind.
func (s *acpScript) part() map[string]any {
	p := map[string]any{}
	switch rapid.IntRange(0, 9).Draw(s.T, "part") {
	case 0:
		p["metadata"] = map[string]any{"kind": "trajectory", "message": s.word()}
	case 1, 2:
		m := map[string]any{
			"kind": "trajectory", "tool_name": rapid.SampledFrom([]string{"shell", "lookup", "read_file"}).Draw(s.T, "tool"),
			"tool_input": map[string]any{"path": "a.go", "n": 1.50},
		}
		if s.Chance(70) {
			m["tool_output"] = map[string]any{"exit_code": rapid.SampledFrom([]any{0, 1, nil, "x"}).Draw(s.T, "code"), "text": s.word()}
		}
		if s.Chance(30) {
			p["content"] = s.word()
		}
		p["metadata"] = m
	case 3:
		p["metadata"] = map[string]any{"kind": "citation", "start_index": 0, "end_index": 3, "url": "https://example.com/"}
		if s.Chance(50) {
			p["content"] = s.word()
		}
	case 4:
		p["name"], p["content"], p["content_type"] = "notes.txt", s.word(), "text/markdown"
	case 5:
		p["content_type"], p["content_url"] = "image/png", "https://example.com/a.png"
	case 6:
		p["content_type"], p["content"], p["content_encoding"] = "image/png", strings.Repeat("QUJD", rapid.IntRange(0, 3000).Draw(s.T, "size")), "base64"
	default:
		p["content"] = s.word()
	}
	if s.Chance(20) {
		p["x-more"] = s.word()
	}
	return p
}

func (s *acpScript) parts() []any {
	parts := []any{}
	for range rapid.IntRange(0, 5).Draw(s.T, "parts") {
		parts = append(parts, s.part())
	}
	return parts
}

func (s *acpScript) newMessage() map[string]any {
	role := rapid.SampledFrom([]string{"agent", "agent/writer", "agent/critic", "user"}).Draw(s.T, "role")
	return map[string]any{"role": role, "parts": s.parts(), "created_at": s.stamp(), "completed_at": s.stamp()}
}

// start begins a run.
func (s *acpScript) start() {
	s.runs++
	s.run = map[string]any{
		"run_id": fmt.Sprintf("%s-run%d", s.Session, s.runs), "agent_name": "writer", "session_id": s.Session, "output": []any{},
		"await_request": nil, "error": nil, "created_at": s.stamp(), "finished_at": nil,
	}
	s.state("created")
	if s.Chance(80) {
		s.state("in-progress")
	}
}

// state writes the run in a state.
func (s *acpScript) state(status string) {
	s.run["status"] = status
	s.Emit(map[string]any{"type": "run." + status, "run": s.run})
}

// stream writes a message in the form of a stream.
func (s *acpScript) stream() {
	m := s.newMessage()
	parts, _ := m["parts"].([]any)
	created := map[string]any{"role": m["role"], "parts": []any{}, "created_at": m["created_at"], "completed_at": nil}
	if s.Chance(20) {
		created = m // all of it at once
	}
	s.Emit(map[string]any{"type": "message.created", "message": created})
	for _, p := range parts {
		s.Emit(map[string]any{"type": "message.part", "part": p})
		if s.Chance(10) {
			s.other()
		}
	}
	if s.Chance(80) {
		s.Emit(map[string]any{"type": "message.completed", "message": m})
	}
	output, _ := s.run["output"].([]any)
	s.run["output"] = append(append([]any{}, output...), m)
}

// broken writes a part without a message.
func (s *acpScript) broken() {
	s.Emit(map[string]any{"type": "message.part", "part": s.part()})
}

// end ends the run.
func (s *acpScript) end() {
	s.run["finished_at"] = s.stamp()
	switch rapid.IntRange(0, 3).Draw(s.T, "end") {
	case 0:
		s.run["error"] = map[string]any{"code": "server_error", "message": s.word()}
		s.state("failed")
	case 1:
		s.state("cancelled")
	default:
		s.state("completed")
	}
}

// ask awaits an answer, which may follow.
func (s *acpScript) ask() {
	s.run["await_request"] = map[string]any{"type": "message", "message": s.newMessage()}
	s.state("awaiting")
	if s.Chance(60) {
		s.Emit(map[string]any{"run_id": s.run["run_id"], "await_resume": map[string]any{"type": "message", "message": s.newMessage()}})
		s.state("in-progress")
	}
}

func (s *acpScript) request() {
	r := map[string]any{"agent_name": "writer", "session_id": s.Session, "input": []any{}}
	for range rapid.IntRange(0, 3).Draw(s.T, "input") {
		input, _ := r["input"].([]any)
		r["input"] = append(input, s.newMessage())
	}
	s.Emit(r)
}

func (s *acpScript) message() { s.Emit(s.newMessage()) }

func (s *acpScript) history() {
	list := []any{}
	for range rapid.IntRange(0, 4).Draw(s.T, "history") {
		list = append(list, s.newMessage())
	}
	s.Emit(list)
	if s.Chance(40) {
		s.Emit(append(list, s.newMessage()))
	}
}

// sync writes the run by itself.
func (s *acpScript) sync() { s.Emit(s.run) }

// again repeats a line.
func (s *acpScript) again() {
	s.Lines = append(s.Lines, rapid.SampledFrom(s.Lines).Draw(s.T, "again"))
}

func (s *acpScript) other() {
	s.Emit(rapid.SampledFrom([]any{
		map[string]any{"type": "generic", "generic": map[string]any{"thought": "x"}},
		map[string]any{"type": "error", "error": map[string]any{"code": "not_found", "message": "gone"}},
		map[string]any{"type": "of-tomorrow", "x": 1},
		map[string]any{},
		[]any{},
		42, "words", nil,
		[]any{s.run, map[string]any{"type": "generic", "generic": 1}},
	}).Draw(s.T, "other"))
}
