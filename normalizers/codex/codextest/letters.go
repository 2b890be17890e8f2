package codextest

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// codexTask is a task for a subagent, after its header lines.
var codexTask = regexp.MustCompile(`(?s)^Message Type: NEW_TASK[ \t]*(?:\n(?:Task name|Sender|Payload):[^\n]*)*(.*)$`)

// letter is a message between agents.
type letter struct {
	form                    string // of the record that states it
	Author, Recipient, Text string
	wakes                   bool // it begins a turn
}

// letterOf returns the letter that a record states; nil for none.
func letterOf(r Raw) *letter {
	switch {
	case r.bad:
		return nil
	case r.Kind == "inter_agent_communication":
		var wakes bool
		if v, ok := normalizerstest.Member[any](r.item, "trigger_turn").(bool); ok {
			wakes = v
		}
		return &letter{
			"record", normalizerstest.Member[string](r.item, "author"), normalizerstest.Member[string](r.item, "recipient"),
			betweenAgents([]any{map[string]any{
				"text": normalizerstest.Member[string](r.item, "content"), "encrypted_content": normalizerstest.Member[string](r.item, "encrypted_content"),
			}}), wakes,
		}
	case r.Kind == "event_msg":
		content, _ := codexTexts(normalizerstest.Member[any](r.item, "item", "content"))
		switch r.of + "/" + normalizerstest.Member[string](r.item, "item", "type") {
		case "user_message/", "agent_message/":
			return writtenLetter("notice", normalizerstest.Member[string](r.item, "message"))
		case "item_completed/UserMessage", "item_completed/AgentMessage":
			return writtenLetter("notice", strings.Join(content, "\n"))
		}
		return nil
	case r.Kind != "response_item" && r.Kind != "":
		return nil
	case r.of == "agent_message":
		return &letter{
			"item", normalizerstest.Member[string](r.item, "author"), normalizerstest.Member[string](r.item, "recipient"),
			betweenAgents(normalizerstest.Member[any](r.item, "content")), false,
		}
	case r.of != "message" && r.of != "" || !slices.Contains([]string{"user", "assistant"}, normalizerstest.Member[string](r.item, "role")):
		return nil
	}
	content := normalizerstest.Member[any](r.item, "content")
	if parts, ok := content.([]any); ok && len(parts) != 1 {
		return nil
	}
	texts, _ := codexTexts(content)
	return writtenLetter("message", strings.Join(texts, "\n"))
}

// writtenLetter reads a letter that is JSON in a text; nil if the text is none.
func writtenLetter(form, text string) *letter {
	var w struct {
		Author, Recipient string
		Content           *string
		Encrypted         string `json:"encrypted_content"`
		Trigger           *bool  `json:"trigger_turn"`
	}
	if json.Unmarshal([]byte(text), &w) != nil || w.Content == nil || w.Trigger == nil || !strings.HasPrefix(w.Author, "/") || !strings.HasPrefix(w.Recipient, "/") {
		return nil
	}
	sealed := []any{map[string]any{"text": *w.Content, "encrypted_content": w.Encrypted}}
	return &letter{form, w.Author, w.Recipient, betweenAgents(sealed), *w.Trigger}
}

// sayings returns what a letter says in the rollout of its recipient: the prompt of a subagent, the answer of the root.
func (l *letter) sayings(at int, subagent bool) []*Saying {
	say := recordSayings{at: at}
	task := codexTask.FindStringSubmatch(l.Text)
	switch {
	case l.Author == "/root" && !subagent:
		say.add("assistant", l.Text, 0)
	case subagent && task != nil:
		say.add("human", strings.TrimSpace(task[1]), 0)
	case subagent && l.wakes && l.Recipient != "/root":
		say.add("human", l.Text, 0)
	}
	return say.all
}

// letters are those that records of a rollout state, in which forms each.
type letters []struct {
	author, text string
	forms        map[string]bool
}

// has reports whether a record of another form stated a letter before.
func (read *letters) has(l *letter) bool {
	text := strings.TrimSpace(l.Text)
	if l.Text == "" {
		return false
	}
	for _, o := range *read {
		if o.author == l.Author && o.text == text && !o.forms[l.form] {
			o.forms[l.form] = true
			return true
		}
	}
	*read = append(*read, struct {
		author, text string
		forms        map[string]bool
	}{l.Author, text, map[string]bool{l.form: true}})
	return false
}

// betweenAgents returns the text of a message between agents, which may be in clear where it should be encrypted.
func betweenAgents(content any) string {
	parts, _ := content.([]any)
	for i, p := range parts {
		secret := normalizerstest.Member[string](p, "encrypted_content")
		if normalizerstest.Member[string](p, "text") == "" && len(strings.Fields(secret)) > 1 {
			parts[i] = secret
		}
	}
	texts, _ := codexTexts(content)
	return strings.Join(texts, "\n")
}
