package gemini

import (
	"cmp"
	"slices"
	"strings"

	"tributary/normalizers/core"
)

// isNote reports whether a hook or the program added a part to a prompt.
func isNote(s string) bool {
	return slices.ContainsFunc([]string{"<hook_context>", "<session_context>", "<system_note>", backgroundUpdate}, func(prefix string) bool {
		return strings.HasPrefix(strings.TrimSpace(s), prefix)
	})
}

const (
	oldContext       = "This is the Gemini CLI. We are setting up the context for our chat"
	backgroundUpdate = "Background execution update:\n<background_output>"
	// pleaseContinue is what Gemini CLI says when the model has stopped too early. A human may type it, too.
	pleaseContinue = "Please continue."
)

// speeches classify a user's text by its beginning; the first match counts (normalizers/README.md, Speech).
var speeches = []struct {
	prefix string
	speech core.Speech
}{
	{"<session_context>", core.SpeechInjected},
	{"<hook_context>", core.SpeechInjected},
	{oldContext, core.SpeechInjected},
	{"Here is the user's editor context as a JSON object", core.SpeechInjected},
	{"Here is a summary of changes in the user's editor context", core.SpeechInjected},
	{"System: Please continue.", core.SpeechInjected},
	{"System: Potential loop detected. Details: ", core.SpeechInjected},
	{"- **Workspace Directories:**\n", core.SpeechInjected},
	{"User has manually exited Plan Mode. Switching to ", core.SpeechInjected},
	{"[Background command completed ", core.SpeechInjected},
	{backgroundUpdate, core.SpeechInjected},
	{"<scratchpad>", core.SpeechSummary},
	{"<state_snapshot>", core.SpeechSummary},
	{"I ran the following shell command:\n```", core.SpeechTerminal},
	{"/", core.SpeechCommand},
	{"?", core.SpeechCommand},
}

// speechOf classifies a user's text, and returns it unwrapped.
func speechOf(s string) (kind core.Speech, text string) {
	s = unwrapped(s)
	trimmed := strings.TrimSpace(s)
	for _, c := range speeches {
		if strings.HasPrefix(trimmed, c.prefix) {
			return c.speech, s
		}
	}
	return core.SpeechHuman, s
}

// unwrapped returns a text without what Gemini CLI puts around input that came while the agent worked: typed texts,
// and the ends of background commands.
func unwrapped(s string) string {
	trimmed := strings.TrimSpace(s)
	if strings.HasPrefix(trimmed, "User steering update:\n") || strings.HasPrefix(trimmed, "User hints:\n") {
		return cmp.Or(strings.TrimSpace(core.TagContent(trimmed, "user_input")), s)
	}
	return s
}

// speechOf classifies a user message, and returns what it says. When Gemini CLI goes on by itself, displayContent is
// the prompt that it works on, and the content is its own text.
func (k known) speechOf(w *wireMessage) (kind core.Speech, text string, goesOn bool) {
	shown, body := w.shown(), w.body()
	kind, text = speechOf(shown.prompt())
	if shown == body {
		return kind, text, false
	}
	by, own := speechOf(body.prompt())
	isContinue := strings.TrimSpace(own) == pleaseContinue && strings.TrimSpace(text) != pleaseContinue
	if by == core.SpeechInjected || isContinue || kind == core.SpeechHuman && k.goesOn(shown, body) {
		return core.SpeechInjected, own, true
	}
	return kind, text, false
}

// goesOn reports whether a displayed text is an earlier prompt that the program goes on with: its content begins
// otherwise than it did before, and not with the prompt, as that of a prompt does which a human repeats.
func (k known) goesOn(shown, body *parts) bool {
	text, first := shown.prompt(), body.first()
	if first == "" || first == strings.TrimSpace(text) || !k.said("user", text) {
		return false
	}
	_, ok := k.ids.Get(shownKey(shown, body))
	return !ok
}

// content remembers the content of a prompt that is displayed otherwise, because a rewritten history has only that.
func (k known) content(w *wireMessage) {
	shown, body := w.shown(), w.body()
	if shown == body {
		return
	}
	for _, key := range []core.Fingerprint{saidKey("user", body.prompt()), shownKey(shown, body)} {
		k.ids.Put(key, key)
	}
}

// shownKey returns the key of a displayed prompt with the first text of its content.
func shownKey(shown, body *parts) core.Fingerprint {
	return core.FingerprintOf("shown", strings.TrimSpace(shown.prompt()), body.first())
}
