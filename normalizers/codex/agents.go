package codex

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Agents write to each other. The rollout of the recipient states a letter in one of four forms, of which versions that
// follow each other may leave two in one rollout. Each letter is one event, of the first form.

// form is what kind of record states a letter; several of them are a set.
type form int8

const (
	recordForm  form = 1 << iota // an envelope of its own
	itemForm                     // a response_item
	messageForm                  // JSON in the text of a message
	noticeForm                   // JSON in the text of an event_msg
)

// letter is a message from an agent to another one.
type letter struct {
	id        lenient.Text
	author    lenient.Text
	recipient lenient.Text
	text      string // empty if it is encrypted
	begins    bool   // it begins a turn of its recipient
}

// seenLetter is a letter that the session has stated.
type seenLetter struct {
	Key   core.Fingerprint `json:"k"`
	Forms form             `json:"f"`
}

// maxLetters is how many letters are remembered, to recognize them in another form.
const maxLetters = 64

// agentRecord maps a letter that has an envelope of its own.
func agentRecord(m *mapper) {
	text := part{Text: lenient.Text(m.Content.text())}
	if m.Encrypted.Kind() == '"' {
		text.Encrypted = lenient.Text(lenient.Unquote(m.Encrypted))
	}
	m.letter(recordForm, &letter{m.ID, m.Author, m.Recipient, text.plaintext(), bool(m.TriggerTurn)})
}

// agentMessage maps a letter that is a response_item. Only its header says whether it begins a turn.
func agentMessage(m *mapper) {
	noteParts(m.Builder, core.UnknownBlock, knownParts, &m.Content)
	text := strings.Join(m.Content.textsWith((*part).plaintext), "\n")
	m.letter(itemForm, &letter{id: m.ID, author: m.Author, recipient: m.Recipient, text: text})
}

// wireLetter is a letter as JSON.
type wireLetter struct {
	ID        lenient.Text   `json:"id"`
	Author    lenient.Text   `json:"author"`
	Recipient lenient.Text   `json:"recipient"`
	Content   jsontext.Value `json:"content"`
	Encrypted lenient.Text   `json:"encrypted_content"`
	Trigger   jsontext.Value `json:"trigger_turn"`
}

// letterIn returns the letter that is the whole text; nil if the text is none.
func letterIn(text string) *letter {
	v := jsontext.Value(strings.TrimSpace(text))
	if v.Kind() != '{' || !strings.Contains(text, `"trigger_turn"`) || !v.IsValid(lenient.Options) {
		return nil
	}
	var w wireLetter
	lenient.ReadObject(v, &w)
	begins := w.Trigger.Kind() == 't'
	isPath := strings.HasPrefix(string(w.Author), "/") && strings.HasPrefix(string(w.Recipient), "/")
	if !isPath || w.Content.Kind() != '"' || !begins && w.Trigger.Kind() != 'f' {
		return nil
	}
	content := part{Text: lenient.Text(lenient.Unquote(w.Content)), Encrypted: w.Encrypted}
	return &letter{w.ID, w.Author, w.Recipient, content.plaintext(), begins}
}

// messageLetter maps a message whose only part is a letter; false for any other message.
func messageLetter(m *mapper) bool {
	if len(m.Content.parts) != 1 || m.Role != "assistant" && m.Role != "user" {
		return false
	}
	l := letterIn(string(m.Content.parts[0].Text))
	if l == nil {
		return false
	}
	l.id = cmp.Or(m.ID, l.id)
	m.letter(messageForm, l)
	return true
}

// letter emits a letter, unless a record of another form stated it. A letter of the root agent in its own rollout is
// the agent's speech. One that gives a task to the subagent of the rollout, or begins its turn, is a prompt; copied
// history also has those that began a turn of the root.
func (m *mapper) letter(f form, l *letter) {
	m.st.releaseTexts(&m.emitter)
	if l.text != "" && m.st.repeatsLetter(f, l) {
		m.skip = core.SkipMirror
		return
	}
	if l.author == rootAgent && m.st.Agent == "" {
		m.put(l.id, agentDraft(envelopes.AssistantMessage, l.text, m.Session.Model))
		return
	}
	task, isTask := newTask(l.text)
	if !isTask {
		task = l.text
	}
	if m.st.Agent != "" && (isTask || l.begins && l.recipient != rootAgent) {
		d := core.DraftOf(core.SpeechHuman, task)
		d.Text = lenient.Text(task).Ptr()
		m.put(l.id, d)
		return
	}
	m.put(l.id, core.DraftOf(core.SpeechAgent, l.text))
}

// rootAgent is the path of the agent that started the others.
const rootAgent = "/root"

// repeatsLetter reports whether a record of another form stated a letter, and notes this form.
func (s *state) repeatsLetter(f form, l *letter) bool {
	key := core.FingerprintOf(string(l.author), strings.TrimSpace(l.text))
	at := slices.IndexFunc(s.Letters, func(o seenLetter) bool { return o.Key == key && o.Forms&f == 0 })
	if at < 0 {
		s.Letters = s.Letters.Push(seenLetter{key, f}, maxLetters, nil)
		return false
	}
	s.Letters = s.Letters.With(at, seenLetter{key, s.Letters[at].Forms | f})
	return true
}

// newTask returns the task in a message between agents, empty if it is encrypted; false if the message has another
// type.
func newTask(text string) (string, bool) {
	header, rest, _ := strings.Cut(text, "\n")
	if strings.TrimSpace(header) != "Message Type: NEW_TASK" {
		return "", false
	}
	for { // the rest of the header
		line, behind, _ := strings.Cut(rest, "\n")
		switch name, _, _ := strings.Cut(line, ":"); name {
		case "Task name", "Sender":
			rest = behind
		case "Payload":
			return strings.TrimSpace(behind), true
		default:
			return strings.TrimSpace(rest), true
		}
	}
}
