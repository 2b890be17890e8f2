package cursor

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Who said what: the prompts of both formats, and the messages of a transcript, which
// have no ids, no times and no model.

// block is a part of a message.
type block struct {
	Type      lenient.Text   `json:"type"`
	Text      lenient.Text   `json:"text"`
	Thinking  lenient.Text   `json:"thinking"`
	ID        lenient.Text   `json:"id"`
	Name      lenient.Text   `json:"name"`
	Input     jsontext.Value `json:"input"`
	ToolUseID lenient.Text   `json:"tool_use_id"`
	Content   jsontext.Value `json:"content"`
	IsError   lenient.Flag   `json:"is_error"`
}

// blocks are the parts of a message, of which a text alone is one.
func (r *wireRecord) blocks() []block { return blocks(r.Message.Value.Content) }

func blocks(v jsontext.Value) []block {
	if v.Kind() == '"' {
		return []block{{Type: "text", Text: lenient.Text(lenient.Unquote(v))}}
	}
	if v.Kind() != '[' {
		return nil
	}
	var blocks []block
	for _, e := range lenient.Elements(v) {
		var b block
		if e.Kind() == '"' {
			b.Type, b.Text = "text", lenient.Text(lenient.Unquote(e))
		}
		lenient.ReadObject(e, &b)
		blocks = append(blocks, b)
	}
	return blocks
}

// joinTexts joins the texts of blocks.
func joinTexts(blocks []block, separator string) string {
	var texts []string
	for _, b := range blocks {
		if b.Type == "text" {
			texts = append(texts, string(b.Text))
		}
	}
	return strings.Join(texts, separator)
}

// message maps a prompt, or a message of a transcript block by block; its texts are one
// event, where the first of them stands. A record that tells nothing else is kept whole.
func (c *mapper) message() core.SkipReason {
	blocks := c.blocks()
	c.st.Segment = segment{}
	human := c.Role == "user" || c.Type == "user"
	c.Session.SetModel(string(c.Message.Value.Model))
	words := joinTexts(blocks, "\n")
	said, known := false, len(blocks) > 0
	for i := range blocks {
		switch b := &blocks[i]; b.Type {
		case "text":
			if !said {
				c.utter(human, words)
			}
			said = true
		case "image":
			if human && !said && strings.TrimSpace(words) == "" {
				c.Emit(core.DraftOf(core.SpeechHuman, ""))
				said = true
			}
		case "thinking":
			c.say(envelopes.Reasoning, string(b.Thinking+b.Text), nil)
		case "tool_use":
			c.use(b)
		case "tool_result":
			c.resultOf(b)
		default:
			known = false
		}
	}
	if c.First < 0 && !c.Duplicate && !known && (len(blocks) > 0 || !c.Message.OK) {
		c.runtime(envelopes.Meta, "")
	}
	if c.Duplicate {
		return core.SkipDuplicate
	}
	return core.SkipEmpty
}

// utter emits the texts of a message.
func (c *mapper) utter(human bool, words string) {
	if !human {
		c.say(envelopes.AssistantMessage, words, nil)
		return
	}
	kind, words := speechOf(words)
	if strings.TrimSpace(words) != "" {
		c.Emit(core.DraftOf(kind, words))
	}
}

// elements are the elements that Cursor puts around and beside a prompt.
var elements = []string{
	"timestamp", "user_info", "git_status", "project_layout", "rules", "user_rules", "always_applied_workspace_rules",
	"agent_requestable_workspace_rules", "cursor_rules_context", "agent_skills", "available_skills", "manually_attached_skills",
	"cursor_commands", "attached_files", "image_files", "code_selection", "open_and_recently_viewed_files", "recently_viewed_files",
	"additional_data", "external_links", "mcp_file_system", "mcp_instructions", "agent_transcripts", "system_reminder", "system-reminder",
	"system_notification", "task_notification", "plan_mode", "ask_mode", "debug_mode", "linter_errors", "edit_history", "terminal_files_information",
	"uploaded_documents", "conversation_summary",
}

// speechOf tells what a human typed from what Cursor wrote around it. With
// <user_query> elements it is what stands in them; without, what is left when the
// elements of Cursor are cut at the beginning and at the end. Nothing left: injected.
func speechOf(s string) (kind core.Speech, words string) {
	var typed []string
	for rest := s; ; {
		_, after, ok := strings.Cut(rest, "<user_query>")
		if !ok {
			break
		}
		var query string
		if query, rest, ok = strings.Cut(after, "</user_query>"); !ok {
			rest = ""
		}
		typed = append(typed, strings.TrimSpace(query))
	}
	if len(typed) > 0 {
		return core.SpeechHuman, strings.Join(typed, "\n")
	}
	words, cut := s, false
	for again := true; again; {
		again = false
		for _, name := range elements {
			if rest, ok := cutElement(words, name); ok {
				words, cut, again = rest, true, true
			}
		}
	}
	if cut && words == "" {
		return core.SpeechInjected, s
	}
	return core.SpeechHuman, words
}

// cutElement cuts an element that a text begins or ends with.
func cutElement(s, name string) (string, bool) {
	trimmed := strings.TrimSpace(s)
	opening, closing := "<"+name+">", "</"+name+">"
	if strings.HasPrefix(trimmed, opening) {
		if _, after, ok := strings.Cut(trimmed, closing); ok {
			return strings.TrimSpace(after), true
		}
	}
	if strings.HasSuffix(trimmed, closing) {
		if at := strings.LastIndex(trimmed, opening); at >= 0 {
			return strings.TrimSpace(trimmed[:at]), true
		}
	}
	return s, false
}

// cursorTime reads the time that a transcript's prompt is wrapped with, as a human
// reads it, in minutes: "Thursday, Mar 5, 2026, 10:15 AM (UTC-8)"; or in the usual form.
func cursorTime(s string) (string, bool) {
	s = strings.TrimSpace(s)
	if ts, ok := core.ParseTime(s); ok {
		return ts, true
	}
	clock, zone, ok := strings.Cut(strings.TrimSuffix(s, ")"), " (UTC")
	if !ok || len(s) > 64 {
		return "", false
	}
	hours, minutes, _ := strings.Cut(zone, ":")
	switch {
	case hours == "":
		hours = "+00"
	case len(hours) == 2:
		hours = hours[:1] + "0" + hours[1:]
	}
	if minutes == "" {
		minutes = "00"
	}
	t, err := time.Parse("Monday, Jan 2, 2006, 3:04 PM -07:00", clock+" "+hours+":"+minutes)
	if err != nil || t.UTC().Year() < 0 || t.UTC().Year() > 9999 {
		return "", false
	}
	return t.UTC().Format("2006-01-02T15:04:05Z"), true
}

// use emits the call of a tool in a transcript. One without an id takes the id of its
// event: nothing else names it.
func (c *mapper) use(b *block) {
	id := b.ID
	if id == "" {
		id = lenient.Text(c.OrdinalID(&core.Pending{Record: c.Session.Records}))
	}
	c.call(string(id), tool{name: string(b.Name), args: b.Input})
}

// resultOf emits the result of a tool in a transcript, which has the id of its call, or
// one that no call has.
func (c *mapper) resultOf(b *block) {
	made, _ := c.Session.RecallCall(string(b.ToolUseID))
	d := core.Draft{OnChannel: envelopes.ChannelOther}
	d.EventType = envelopes.ToolResult
	d.EventID = resultEventID(string(b.ToolUseID))
	d.ToolCallID, d.ToolName = b.ToolUseID.Ptr(), lenient.Text(made.Tool).Ptr()
	if made.Channel != "" {
		d.OnChannel = made.Channel
	}
	d.Touch(made.Path, made.Op)
	d.ToolStatus = new(envelopes.StatusUnknown)
	if lenient.IsValue(b.Content) {
		words := joinTexts(blocks(b.Content), "\n")
		if b.Content.Kind() == '{' {
			words = lenient.CompactText(b.Content)
		}
		d.Text, d.ToolStatus = &words, new(envelopes.StatusSuccess)
	}
	if b.IsError {
		d.ToolStatus = new(envelopes.StatusError)
	}
	c.Emit(d)
}

// resultEventID is the id of the result of a call; empty where the call has none.
func resultEventID(call string) string {
	if call == "" {
		return ""
	}
	return call + "#result"
}
