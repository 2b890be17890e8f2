package normalizers

import (
	"bytes"
	"strings"

	"tributary/normalizers/core"
)

// unsupportedAgent is an agent with known logs but no normalizer. Without its row, a log that resembles another
// agent's would be taken for that.
type unsupportedAgent struct {
	name string
	// marker returns what identifies a record of the agent, like the Recognize of a vendor.
	marker func(*core.Shape) string
}

// unsupported are the agents without a normalizer. They are asked before the vendors, so a marker must be something
// that no vendor writes. Agents with a common log format share a row.
var unsupported = []unsupportedAgent{
	{"Qwen Code", qwenRun},
	{"Amp", amp},
}

// aiderTitle begins a log of Aider, which is not JSON.
var aiderTitle = []byte("# aider chat started at ")

// detectUnsupported returns the agent without a normalizer that writes such records, and what identified it; empty
// for none.
func detectUnsupported(s *core.Shape, data []byte) (name, marker string) {
	if !s.Readable {
		if bytes.HasPrefix(bytes.TrimLeft(data, "\xef\xbb\xbf \t\r\n"), aiderTitle) {
			return "Aider", "title"
		}
		return "", ""
	}
	if s.First != nil {
		s = s.First
	}
	for _, agent := range unsupported {
		if marker := agent.marker(s); marker != "" {
			return agent.name, marker
		}
	}
	return "", ""
}

// first returns the first of the dotted paths that has a non-null member in the record.
func first(s *core.Shape, paths ...string) string {
	for _, path := range paths {
		if k := s.Kind(strings.Split(path, ".")...); k != 0 && k != 'n' {
			return path
		}
	}
	return ""
}

// has reports whether a record has non-null members at all paths.
func has(s *core.Shape, paths ...string) bool {
	for _, path := range paths {
		if first(s, path) == "" {
			return false
		}
	}
	return true
}

// qwenRun recognizes the first line that a run prints.
func qwenRun(s *core.Shape) string { return first(s, "qwen_code_version") }

// amp recognizes a thread, whose id begins with T-, and what a run prints.
func amp(s *core.Shape) string {
	switch {
	case strings.HasPrefix(s.Text("session_id"), "T-"):
		return "session_id T-"
	case s.Kind("messages") == '[' && (strings.HasPrefix(s.Text("id"), "T-") || has(s, "id", "title") && !has(s, "sessionId")):
		return "id, messages"
	default:
		return ""
	}
}
