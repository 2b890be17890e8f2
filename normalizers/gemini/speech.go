package gemini

import (
	"slices"
	"strings"

	"tributary/normalizers/core"
)

// isNote reports whether a hook or the program added a part to a prompt.
func isNote(s string) bool {
	return slices.ContainsFunc([]string{"<hook_context>", "<session_context>", "<system_note>"}, func(prefix string) bool {
		return strings.HasPrefix(strings.TrimSpace(s), prefix)
	})
}

// speeches classify a user's text by its beginning; the first match counts (normalizers/README.md, Speech).
var speeches = []struct {
	prefix string
	speech core.Speech
}{
	{"<session_context>", core.SpeechInjected},
	{"<hook_context>", core.SpeechInjected},
	{"This is the Gemini CLI. We are setting up the context for our chat", core.SpeechInjected},
	{"Here is the user's editor context as a JSON object", core.SpeechInjected},
	{"Here is a summary of changes in the user's editor context", core.SpeechInjected},
	{"System: Please continue.", core.SpeechInjected},
	{"<scratchpad>", core.SpeechSummary},
	{"<state_snapshot>", core.SpeechSummary},
	{"I ran the following shell command:\n```", core.SpeechTerminal},
	{"/", core.SpeechCommand},
	{"?", core.SpeechCommand},
}

// speechOf classifies a user's text, and returns it without what Gemini CLI wraps around input typed while the agent
// worked.
func speechOf(s string) (kind core.Speech, text string) {
	trimmed := strings.TrimSpace(s)
	for _, c := range speeches {
		if strings.HasPrefix(trimmed, c.prefix) {
			return c.speech, s
		}
	}
	if strings.HasPrefix(trimmed, "User steering update:\n") || strings.HasPrefix(trimmed, "User hints:\n") {
		if typed := strings.TrimSpace(core.TagContent(trimmed, "user_input")); typed != "" {
			return core.SpeechHuman, typed
		}
	}
	return core.SpeechHuman, s
}
