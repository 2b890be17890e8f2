package codex

import (
	"slices"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// agentDraft returns the event of the agent's speech or thought.
func agentDraft(t envelopes.EventType, text, model string) core.Draft {
	return core.ChatDraft(t, &text, lenient.Text(model).Ptr())
}

// message maps a message by its role. Messages of a developer or of the system are injected.
func message(m *mapper) {
	noteParts(m.Builder, core.UnknownBlock, knownParts, &m.Content)
	if messageLetter(m) {
		return
	}
	switch m.Role {
	case "user":
		userMessage(m)
	case "assistant":
		agentSpeech(m)
	default:
		m.put(m.ID, core.DraftOf(core.SpeechInjected, m.Content.text()))
	}
}

// userMessage maps a message with the user's role: the prompt of a human, or text that a machine put into the
// conversation.
func userMessage(m *mapper) {
	content := m.userContent()
	if len(content.parts) == 0 && len(m.Content.parts) > 0 {
		injectedMessage(m, m.Content.text())
		return
	}
	parts := content.texts()
	text, speech := typedText(parts, m.joint())
	if speech == core.SpeechInjected {
		if !content.hasAttachment() {
			injectedMessage(m, text)
			return
		}
		text = "" // the human sent only a picture
	}
	if text == "" && !content.hasAttachment() {
		m.skip = core.SkipEmpty
		return
	}
	if slices.Contains(m.st.drop(&m.emitter, userText, userTexts(parts)), true) {
		m.skip = core.SkipMirror
		return
	}
	if text != "" {
		text, _ = typedText(parts, m.joint()) // the event_msg before the message may have shown how it is joined
	}
	d := core.DraftOf(core.SpeechHuman, text)
	d.Text = lenient.Text(text).Ptr()
	m.put(m.ID, d)
}

// userContent returns the content of a message without the parts that a machine wrote by their stated kinds. Kinds
// count only if each part has one.
func (p *payload) userContent() content {
	kinds := p.Passthrough.Value.Kinds
	if len(kinds) != len(p.Content.parts) {
		return p.Content
	}
	own := content{present: p.Content.present}
	for i, k := range kinds {
		if isUserKind(k) {
			own.parts = append(own.parts, p.Content.parts[i])
		}
	}
	return own
}

// isUserKind reports whether a part of this kind is the user's. A heartbeat is of a schedule, though its kind begins as
// the user's do.
func isUserKind(k lenient.Text) bool {
	switch k {
	case "", "unknown", "images.preparation_error", "images.unsupported", "audio.unsupported":
		return true
	default:
		return strings.HasPrefix(string(k), "user.") && k != "user.heartbeat"
	}
}

// injectedMessage maps a message with the user's role that a machine wrote.
func injectedMessage(m *mapper, text string) {
	if m.st.dropInjected(text) {
		m.skip = core.SkipMirror
		return
	}
	m.put(m.ID, core.DraftOf(core.SpeechInjected, text))
}

// reasoning maps the agent's reasoning. Most reasoning is encrypted and has no text.
func reasoning(m *mapper) {
	noteParts(m.Builder, core.UnknownBlock, knownParts, &m.Summary, &m.Content)
	parts := m.Summary.texts()
	if len(parts) == 0 {
		parts = m.Content.texts()
	}
	if len(parts) == 0 && m.Text != "" {
		parts = []string{string(m.Text)}
	}
	agentParts(m, m.ID, envelopes.Reasoning, reasoningText, parts)
}

// agentParts emits the agent's speech or thought, except for parts that a pending event_msg has emitted. An event_msg
// repeats a message as a whole or by parts, reasoning only by parts.
func agentParts(m *mapper, id lenient.Text, t envelopes.EventType, kind textKind, parts []string) {
	if len(parts) == 0 {
		m.skip = core.SkipEmpty
		return
	}
	texts := partTexts(kind, parts)
	if kind == agentText {
		texts = messageTexts(kind, parts)
	}
	parts = m.st.newParts(&m.emitter, kind, parts, texts)
	if len(parts) == 0 {
		m.skip = core.SkipMirror
		return
	}
	joint := byLines
	if kind == agentText {
		joint = m.joint()
	}
	m.put(id, agentDraft(t, strings.Join(parts, joint.text()), m.Session.Model))
}

// joint returns how the parts of a message are joined: as in the last event_msg that repeated several parts; before
// the first one, without a separator since 0.142.
func (e *emitter) joint() joint {
	version := e.Session.TextExtension("version")
	if e.st.Joint == unjoined && core.IsVersion(version) && core.CompareVersions(version, "0.142") >= 0 {
		return byNothing
	}
	return e.st.Joint
}

// deliveredMark begins what the metadata state of a message that a tool delivered to the user. Of one too long for the
// rollout the message has only a notice, and the metadata have its text, shortened, behind unavailableMark.
const (
	deliveredMark   = "codex:code-mode-delivery:v1:"
	unavailableMark = deliveredMark + "incomplete:"
)

// agentSpeech maps a message of the agent. One that a tool delivered has the id of its call, so its event has another
// one; without its text it is only meta.
func agentSpeech(m *mapper) {
	id, parts := m.ID, m.Content.texts()
	if strings.HasPrefix(string(m.delivered), deliveredMark) {
		id = core.PartID(id, "delivered")
	}
	if text, ok := strings.CutPrefix(string(m.delivered), unavailableMark); ok {
		if strings.TrimSpace(text) == "" {
			meta(m)
			return
		}
		parts = []string{text}
	}
	agentParts(m, id, envelopes.AssistantMessage, agentText, parts)
}

// injectedPrefixes begin texts that a machine puts into the conversation with the user's role.
var injectedPrefixes = []string{
	"# AGENTS.md instructions",
	"<INSTRUCTIONS>",
	"<environment_context>",
	"<user_instructions>",
	"<turn_aborted>",
	"<user_shell_command>",
	"<user_action>",
	"<recommended_plugins>",
	"<skill>",
	"<subagent_notification>",
	"<hook_prompt ",
	"<codex_internal_context",
	"<goal_context>",
	"<heartbeat>",
	"<extension_context>",
	"<external_",
	"<agent_message_board_notification>",
	"<permissions instructions>",
	"<collaboration_mode>",
	"<model_switch>",
	"<multi_agent_mode>",
	"<skills_instructions>",
	"<personality_spec>",
	"<app-context>",
	"<apps_instructions>",
	"<plugins_instructions>",
	"Warning: apply_patch was requested via ",
	"Warning: The maximum number of unified exec processes you can keep open is",
	"Warning: Your account was flagged for potentially high-risk cyber activity",
}

func isInjected(s string) bool {
	s = strings.TrimSpace(s)
	return slices.ContainsFunc(injectedPrefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// typedPart returns what a human typed in a part of a message: all of it, or what follows the blocks <tag>...</tag>
// of a machine; false if a machine wrote the whole part.
func typedPart(s string) (string, bool) {
	for isInjected(s) {
		rest, ok := behindBlock(strings.TrimSpace(s))
		if !ok {
			return "", false
		}
		s = rest
	}
	return s, true
}

// behindBlock returns the text behind a leading block <tag>...</tag>; false if there is none.
func behindBlock(s string) (string, bool) {
	end := strings.IndexAny(s, "> \n")
	if end < 0 || s[0] != '<' {
		return "", false
	}
	_, rest, _ := strings.Cut(s, "</"+s[1:end]+">")
	rest = strings.TrimSpace(rest)
	return rest, rest != ""
}

// requestHeading precedes the prompt if an IDE or another program put its own state, also with headings, in front of
// it.
const requestHeading = "## My request for Codex:"

// contextHeading begins the state of an IDE, and filesHeading a list of what the human attached, such as a long text
// that the human pasted as the request.
const (
	contextHeading = "# Context from my IDE setup:"
	filesHeading   = "# Files mentioned by the user"
)

// typedText returns what a human typed in the parts of a message, joined, without what a machine added. If a human
// typed nothing, the message is injected, and the text is all of it; a list of attachments alone is the prompt.
func typedText(parts []string, j joint) (string, core.Speech) {
	injected := func() (string, core.Speech) { return strings.Join(parts, "\n"), core.SpeechInjected }
	var typed []string
	for _, p := range parts {
		if p, ok := typedPart(p); ok {
			typed = append(typed, p)
		}
	}
	if len(typed) == 0 && len(parts) > 0 {
		return injected()
	}
	text := strings.Join(typed, j.text())
	if !strings.HasPrefix(strings.TrimSpace(text), "#") {
		return text, core.SpeechHuman
	}
	_, request, ok := strings.Cut(text, requestHeading)
	context := strings.HasPrefix(strings.TrimSpace(text), contextHeading)
	switch request = strings.TrimSpace(request); {
	case request != "":
		return request, core.SpeechHuman
	case !ok && !context, ok && strings.Contains(text, filesHeading):
		return text, core.SpeechHuman
	default:
		return injected()
	}
}
