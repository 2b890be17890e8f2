package normalizerstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// An account is what a file states, read a second time with nothing but encoding/json: the
// events are compared with it.

// Line is a readable or unreadable record of a file.
type Line struct {
	Number int
	Data   []byte
	Bad    bool
}

// ReadLines cuts a file of lines into records. Two objects glued together on one line are two records.
func ReadLines(data []byte) []Line {
	var out []Line
	for i, l := range bytes.Split(data, []byte("\n")) {
		rest := bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(l), []byte("\xef\xbb\xbf")))
		if len(rest) > 0 && rest[0] != '{' && rest[0] != '[' {
			out = append(out, Line{Number: i + 1, Data: rest, Bad: !json.Valid(rest)})
			continue
		}
		for len(rest) > 0 {
			dec := json.NewDecoder(bytes.NewReader(rest))
			var v json.RawMessage
			if err := dec.Decode(&v); err != nil {
				out = append(out, Line{Number: i + 1, Data: rest, Bad: true})
				break
			}
			out = append(out, Line{Number: i + 1, Data: v})
			rest = bytes.TrimSpace(rest[dec.InputOffset():])
		}
	}
	return out
}

// Account is what the raw bytes of a file state.
type Account struct {
	Sessions []string    // of each record
	Threads  []RawThread // of each record
	Speakers [][]string  // agents of the events of each record, if they differ
	// Inner are the calls of subagents in records of the main conversation: the agent by session and call.
	Inner   map[[2]string]string
	Talk    []Utterance   // the messages and their speakers, in order
	Calls   []ToolUse     // tool_use blocks, in order, each id once
	Results []ToolOutcome // tool_result blocks, in order, each id once
	Naive   map[string]Figures
	// Trimmed: one placeholder replaces the values of the file, so many ids collide and only the laws apply.
	Trimmed bool
}

// RawThread is the thread that a record states.
type RawThread struct {
	Agent    string
	Internal bool
}

// Utterance is a message of a human, an agent or the assistant.
type Utterance struct {
	Session string
	Who     string // human, agent, assistant
	Text    string // without surrounding white space
	Line    int
}

func (u Utterance) String() string {
	return fmt.Sprintf("line %d: %s: %q", u.Line, u.Who, Clip(u.Text))
}

// ToolUse is a call of a tool that a record states.
type ToolUse struct {
	Session, ID, Name string
	Line              int
}

// ToolOutcome is the result of a call that a record states.
type ToolOutcome struct {
	Session, ID string
	Form        string // "Exit code " with what stands before it; empty when no code is stated
	Code        *int64
	Failed      *bool // whether the call failed; nil where the reader does not state it
	Line        int
}

// Member reads a field of a JSON object; it is the zero value if the type differs.
func Member[T any](v any, names ...string) T {
	for _, n := range names {
		m, _ := v.(map[string]any)
		v = m[n]
	}
	out, _ := v.(T)
	return out
}

// Count reads a whole number in a field of a JSON object; 0 for anything else.
func Count(v any, names ...string) int64 {
	n, _ := Member[json.Number](v, names...).Int64()
	return n
}

// Texts reads a content: a text, or the texts of its parts, line by line.
func Texts(content any) string {
	if text, ok := content.(string); ok {
		return text
	}
	var texts []string
	parts, _ := content.([]any)
	for _, p := range parts {
		if Member[string](p, "type") == "text" {
			texts = append(texts, Member[string](p, "text"))
		}
	}
	return strings.Join(texts, "\n")
}

// CodeIn reads the number in the last match of a pattern in a text; nil for none.
func CodeIn(pattern *regexp.Regexp, text string) *int64 {
	found := pattern.FindAllStringSubmatch(text, -1)
	if found == nil {
		return nil
	}
	n, err := strconv.ParseInt(found[len(found)-1][1], 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// Parse reads JSON without changing its numbers; nil if data is not JSON.
func Parse(data []byte) any {
	var v any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	_ = dec.Decode(&v) // unreadable data states nothing
	return v
}
