package geminitest

import (
	"regexp"
	"slices"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// machineSpeech has the beginnings of user texts that the program wrote.
var machineSpeech = []string{
	"<session_context>", "<hook_context>", "This is the Gemini CLI. We are setting up", "Here is the user's editor context",
	"System: Please continue.", "System: Potential loop detected. Details: ", "- **Workspace Directories:**\n",
	"User has manually exited Plan Mode. Switching to ", "[Background command completed ", "Background execution update:\n<background_output>",
}

// programSpeech has the beginnings of other user texts that are no prompts.
var programSpeech = []string{"<scratchpad>", "<state_snapshot>", "I ran the following shell command:"}

func begins(s string, with []string) bool {
	return slices.ContainsFunc(with, func(p string) bool { return strings.HasPrefix(strings.TrimSpace(s), p) })
}

// geminiTexts returns the texts of parts, except thoughts.
func geminiTexts(parts []any) (texts []string) {
	for _, p := range parts {
		if s := normalizerstest.Member[string](p, "text"); s != "" && !normalizerstest.Member[bool](p, "thought") {
			texts = append(texts, s)
		}
	}
	return texts
}

// typedTexts is geminiTexts without what a hook or the program added to a prompt.
func typedTexts(parts []any) []string {
	all := geminiTexts(parts)
	for i, s := range all {
		all[i] = unwrapped(s)
	}
	typed := slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		return begins(s, []string{"<hook_context>", "<session_context>", "<system_note>", "Background execution update:\n<background_output>"})
	})
	if len(stated(typed)) == 0 {
		return all
	}
	return typed
}

// stated returns the texts that are not blank.
func stated(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return strings.TrimSpace(s) == "" })
}

var steering = regexp.MustCompile(`(?s)^User (?:steering update|hints):\n<user_input>\n(.*?)\n</user_input>`)

// unwrapped returns what came while the agent worked, without what the program put around it.
func unwrapped(text string) string {
	if is := steering.FindStringSubmatch(strings.TrimSpace(text)); is != nil && strings.TrimSpace(is[1]) != "" {
		return is[1]
	}
	return text
}

func hasMember(parts []any, name string) bool {
	return slices.ContainsFunc(parts, func(p any) bool { return normalizerstest.Member[any](p, name) != nil })
}

// joined reports whether each of several texts, or of neighbours taken together, was said before.
func (r *geminiReader) joined(kind string, texts []string) bool {
	if texts = stated(texts); len(texts) < 2 {
		return false
	}
	reached := make([]bool, len(texts)+1) // by texts that were said
	reached[0] = true
	for from := range texts {
		for to := from + 1; reached[from] && to <= len(texts); to++ {
			reached[to] = reached[to] || to-from < len(texts) && r.texts[kind+strings.TrimSpace(unwrapped(strings.Join(texts[from:to], "")))]
		}
	}
	return reached[len(texts)]
}

// again reports whether a line of a session's file belongs to a history that is written again: behind a line that
// begins with the context of a session that had one, or that has a call of the session under another id.
func (r *geminiReader) again(record, m any, id string) bool {
	if _, ok := record.(map[string]any); !ok || normalizerstest.Member[any](record, "messages") != nil || normalizerstest.Member[any](record, "history") != nil {
		return false
	}
	kind := geminiKind(m)
	if kind != "user" && kind != "gemini" || normalizerstest.Member[any](m, "messageId") != nil {
		return false
	}
	_, known := r.phrase[id]
	for _, member := range []string{"model", "tokens", "displayContent"} {
		known = known || normalizerstest.Member[any](m, member) != nil
	}
	for _, list := range []string{"toolCalls", "thoughts"} {
		known = known || len(normalizerstest.Member[[]any](m, list)) > 0
	}
	switch {
	case id == "" || known:
		r.lines = false
	case kind == "user" && r.context && isContext(geminiBody(m)):
		r.lines = true
	case kind == "gemini":
		for _, p := range geminiBody(m) {
			call := normalizerstest.Member[string](p, "functionCall", "id")
			r.lines = r.lines || call != "" && r.emitted["call "+call]
		}
	}
	return r.lines
}

func isContext(body []any) bool {
	texts := stated(geminiTexts(body))
	return len(texts) > 0 && begins(texts[0], []string{"<session_context>", "This is the Gemini CLI. We are setting up"})
}

func (r *geminiReader) user(m any, id string) {
	body := geminiBody(m)
	r.context = r.context || isContext(body)
	display := geminiContent(normalizerstest.Member[any](m, "displayContent"))
	isShown := strings.TrimSpace(geminiText(display)) != "" && !hasMember(display, "functionResponse")
	parts := body
	if isShown {
		parts = display
	}
	texts := typedTexts(parts)
	text := strings.TrimSpace(unwrapped(strings.Join(texts, "")))
	if text == "" && (hasMember(body, "functionResponse") || !hasMember(body, "inlineData") && !hasMember(body, "fileData")) {
		return
	}
	if isShown {
		own := strings.TrimSpace(unwrapped(strings.Join(typedTexts(body), "")))
		if r.goesOn(text, own, typedTexts(body)) {
			r.fresh(id, "user", own, nil)
			return
		}
		defer func() { r.texts["user"+own] = true }()
	}
	was := r.phrase[id]
	if !r.fresh(id, "user", text, texts) || begins(text, programSpeech) || begins(text, machineSpeech) {
		return
	}
	if r.agent != "" {
		r.utter("agent", text)
		return
	}
	if was == "" && !r.copied && text != "" && r.duplicate(text, 0) {
		return
	}
	r.utter("human", text)
}

// goesOn reports whether the program goes on by itself: it shows a prompt of before, and its own text begins with
// neither the prompt nor what that prompt began with before.
func (r *geminiReader) goesOn(shown, own string, texts []string) bool {
	if begins(own, machineSpeech) || own == "Please continue." && shown != own {
		return true
	}
	first := ""
	if texts = stated(texts); len(texts) > 0 {
		first = strings.TrimSpace(texts[0])
	}
	key := shown + "\x00" + first
	isPrompt := !begins(shown, append([]string{"/", "?"}, programSpeech...)) && !begins(shown, machineSpeech)
	if isPrompt && first != "" && first != shown && r.texts["user"+shown] && !r.shown[key] {
		return true
	}
	r.shown[key] = true
	return false
}
