package conversation_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"tributary/cmd/internal/conversation"
	"tributary/envelopes"
	"tributary/pipeline/sessions/transcript"
)

// TestMatchesStay has a match behind the end of the line of a command, and one in a file that was read.
func TestMatchesStay(t *testing.T) {
	t.Parallel()
	long := &transcript.Call{Tool: "Bash", Kind: envelopes.ActionCommandRun, Command: strings.Repeat("many words ", 20) + "needle", Status: envelopes.StatusSuccess}
	read := &transcript.Call{Tool: "Read", Kind: envelopes.ActionFileRead, Path: "notes.txt", Output: "a needle", Status: envelopes.StatusSuccess}
	for name, c := range map[string]*transcript.Call{"command": long, "file": read} {
		o := conversation.Options{Match: regexp.MustCompile("needle")}
		var pretty, markdown bytes.Buffer
		for _, p := range []conversation.Printer{conversation.NewPretty(&pretty, 80, false, o), conversation.NewMarkdown(&markdown, o)} {
			if err := p.Item(&transcript.Item{Type: transcript.Tool, Call: c}); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(pretty.String(), "needle") || !strings.Contains(markdown.String(), "needle") {
			t.Errorf("%s:\n%s\n%s", name, &pretty, &markdown)
		}
	}
}
