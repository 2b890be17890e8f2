package printer

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
)

// TestLinesShowWhatAnExpressionMatches has matches behind the end of a line, in a later line, in an argument that is not
// shown otherwise, and none.
func TestLinesShowWhatAnExpressionMatches(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("many words ", 20)
	tool := "Bash"
	for name, c := range map[string]struct {
		text  string
		tool  *string
		match string
		want  string
	}{
		"no expression":                {long + "needle", nil, "", "many words many words many words many…"},
		"behind the end of the line":   {long + "a needle in it", nil, "ne+dle", "…many words a ❰needle❱ in it"},
		"at the beginning":             {"a needle " + long, nil, "ne+dle", "a ❰needle❱ many words many words many…"},
		"in a later line":              {long + "\nFAIL: one\nFAIL: two", nil, "(?m)^FAIL: t", "… FAIL: two"},
		"in two places":                {"needle and needle", nil, "needle", "❰needle❱ and ❰needle❱"},
		"behind a tool":                {`{"command":"` + long + `needle"}`, &tool, "needle", "Bash …many words ❰needle❱"},
		"in an argument that is left":  {`{"command":"ls","cwd":"/needle"}`, &tool, "needle", `Bash … {"command":"ls","cwd":"/❰needle❱"}`},
		"an escape sequence beside it": {"\x1b[31mneedle\x1b[0m", nil, "needle", "❰needle❱"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := envelopes.AgentEventV1{Source: envelopes.Codex, SessionID: "s", TS: "2026-03-09T09:00:00Z", EventType: envelopes.UserMessage, Text: &c.text}
			if c.tool != nil {
				e.EventType, e.ToolName = envelopes.ToolCall, c.tool
			}
			var out bytes.Buffer
			p := &Pretty{w: &out, width: 71, colour: true}
			if c.match != "" {
				p.Match = regexp.MustCompile(c.match)
			}
			if err := p.Event(&e); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			line := lines[len(lines)-1]
			if n := terminal.WidthOf(line); n > 71 {
				t.Errorf("the line has %d columns: %q", n, line)
			}
			begin := terminal.Matched.Of("x")
			begin = begin[:strings.IndexByte(begin, 'x')]
			_, content, _ := strings.Cut(line, "\x1b[0m  ")
			_, content, _ = strings.Cut(content, "\x1b[0m  ")
			if got := strings.NewReplacer(begin, "❰", "\x1b[0m", "❱").Replace(content); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
