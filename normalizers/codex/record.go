package codex

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// wireRecord is a line of a rollout or of the exec stream.
type wireRecord struct {
	Timestamp  lenient.Text            `json:"timestamp"`
	Type       lenient.Text            `json:"type"`
	Payload    lenient.Object[payload] `json:"payload"`
	RecordType lenient.Text            `json:"record_type"`
	Ordinal    lenient.Number          `json:"ordinal"`
	Metadata   lenient.Object[harness] `json:"metadata"`
	execRecord
	otlp.Export
}

// harness is what Codex notes about an item beside it.
type harness struct {
	Delivered lenient.Text `json:"delivered_assistant_message"`
}

// record is the content of the current record.
type record struct {
	*payload
	kind      lenient.Text   // type of the envelope: response_item, event_msg, ...; empty for a bare item
	ordinal   lenient.Number // position of the record in its rollout
	stamp     string         // time stated in the record; empty for none
	delivered lenient.Text   // what the metadata of a message say of its delivery; empty for any other record
}

// payload is the content of an envelope, or a bare line.
type payload struct {
	Type lenient.Text `json:"type"`
	ID   lenient.Text `json:"id"`

	// Conversation.
	Role           lenient.Text                `json:"role"`
	Content        content                     `json:"content"`
	Summary        content                     `json:"summary"`
	Text           lenient.Text                `json:"text"`
	Message        lenient.Text                `json:"message"`
	Author         lenient.Text                `json:"author"`
	Recipient      lenient.Text                `json:"recipient"`
	TriggerTurn    lenient.Flag                `json:"trigger_turn"`
	Encrypted      jsontext.Value              `json:"encrypted_content"`
	Item           jsontext.Value              `json:"item"`
	Passthrough    lenient.Object[passthrough] `json:"internal_chat_message_metadata_passthrough"`
	ThreadName     lenient.Text                `json:"thread_name"`
	CodexErrorInfo jsontext.Value              `json:"codex_error_info"`
	Error          jsontext.Value              `json:"error"`
	Reason         lenient.Text                `json:"reason"`

	// Tools.
	Name          lenient.Text               `json:"name"`
	CallID        lenient.Text               `json:"call_id"`
	CallIDCamel   lenient.Text               `json:"callId"`
	Arguments     jsontext.Value             `json:"arguments"`
	Input         jsontext.Value             `json:"input"`
	Action        jsontext.Value             `json:"action"`
	Output        jsontext.Value             `json:"output"`
	Status        lenient.Text               `json:"status"`
	Result        jsontext.Value             `json:"result"`
	Server        lenient.Text               `json:"server"`
	Tool          lenient.Text               `json:"tool"`
	Tools         jsontext.Value             `json:"tools"`
	Query         lenient.Text               `json:"query"`
	Path          lenient.Text               `json:"path"`
	RevisedPrompt lenient.Text               `json:"revised_prompt"`
	RevisedCamel  lenient.Text               `json:"revisedPrompt"`
	Results       jsontext.Value             `json:"results"`
	Invocation    lenient.Object[invocation] `json:"invocation"`
	Command       jsontext.Value             `json:"command"`
	ExitCode      lenient.Number             `json:"exit_code"`
	Duration      lenient.Object[duration]   `json:"duration"`
	Stdout        lenient.Text               `json:"stdout"`
	Stderr        lenient.Text               `json:"stderr"`
	Aggregated    lenient.Text               `json:"aggregated_output"`
	Success       jsontext.Value             `json:"success"`
	Changes       jsontext.Value             `json:"changes"`
	ContentItems  content                    `json:"content_items"`

	// Session, turn and tokens.
	CWD            lenient.Text           `json:"cwd"`
	Model          lenient.Text           `json:"model"`
	Effort         lenient.Text           `json:"effort"`
	ApprovalPolicy lenient.Text           `json:"approval_policy"`
	CLIVersion     lenient.Text           `json:"cli_version"`
	Git            lenient.Object[git]    `json:"git"`
	Source         jsontext.Value         `json:"source"`
	ForkedFromID   lenient.Text           `json:"forked_from_id"`
	HistoryBase    lenient.Object[base]   `json:"history_base"`
	TurnID         lenient.Text           `json:"turn_id"`
	StartedAt      lenient.Number         `json:"started_at"`
	ParentThreadID lenient.Text           `json:"parent_thread_id"`
	ThreadSource   lenient.Text           `json:"thread_source"`
	HistoryStart   jsontext.Value         `json:"subagent_history_start_ordinal"`
	ThreadSettings lenient.Object[thread] `json:"thread_settings"`
	Info           jsontext.Value         `json:"info"`
	ThreadID       lenient.Text           `json:"thread_id"`
	ResponseID     lenient.Text           `json:"response_id"`
	Usage          lenient.Object[usage]  `json:"usage"`
	ThreadUsage    lenient.Object[usage]  `json:"thread_token_usage"`

	// Facts.
	DurationMS    lenient.Number `json:"duration_ms"`
	FirstTokenMS  lenient.Number `json:"time_to_first_token_ms"`
	GhostCommit   jsontext.Value `json:"ghost_commit"`
	AgentThreadID lenient.Text   `json:"agent_thread_id"`
	AgentPath     lenient.Text   `json:"agent_path"`
	ActivityKind  lenient.Text   `json:"kind"`
	ReviewOutput  jsontext.Value `json:"review_output"`
}

// passthrough is what Codex notes about a message in it.
type passthrough struct {
	Kinds lenient.List[lenient.Text] `json:"content_item_kinds"` // of each part of the content
}

type git struct {
	Repository lenient.Text `json:"repository_url"`
	Branch     lenient.Text `json:"branch"`
	Commit     lenient.Text `json:"commit_hash"`
}

// base is the thread whose file has the history that precedes a rollout.
type base struct {
	ThreadID   lenient.Text   `json:"thread_id"`
	EndOrdinal jsontext.Value `json:"end_ordinal_exclusive"`
}

type thread struct {
	Model          lenient.Text              `json:"model"`
	CWD            lenient.Text              `json:"cwd"`
	Effort         lenient.Text              `json:"reasoning_effort"`
	ApprovalPolicy lenient.Text              `json:"approval_policy"`
	Active         lenient.Object[activated] `json:"active_permission_profile"`
	Profile        lenient.Object[profile]   `json:"permission_profile"`
}

// activated and profile name the permissions of a thread.
type activated struct {
	ID lenient.Text `json:"id"`
}

type profile struct {
	Type lenient.Text `json:"type"`
}

type invocation struct {
	Server    lenient.Text   `json:"server"`
	Tool      lenient.Text   `json:"tool"`
	Arguments jsontext.Value `json:"arguments"`
}

type duration struct {
	Secs  lenient.Number `json:"secs"`
	Nanos lenient.Number `json:"nanos"`
}

// toolCallID returns the id of the record's call; empty for none.
func (p *payload) toolCallID() lenient.Text {
	if p.CallID != "" {
		return p.CallID
	}
	return p.CallIDCamel
}

// content is a list of parts with text, of a message, a summary or an output. A string or a single part is a list of
// one part.
type content struct {
	parts   []part
	present bool
}

type part struct {
	Type      lenient.Text `json:"type"`
	Text      lenient.Text `json:"text"`
	Encrypted lenient.Text `json:"encrypted_content"`
}

// plaintext returns the text of a part in a message between agents. Its encrypted_content is text if it has white
// space, which encrypted data never has.
func (p *part) plaintext() string {
	if p.Text == "" && strings.ContainsAny(strings.TrimSpace(string(p.Encrypted)), " \n\t") {
		return string(p.Encrypted)
	}
	return string(p.Text)
}

// ReadJSON implements [lenient.reader]. A part of an unexpected type is empty.
func (p *part) ReadJSON(c *jsonscan.Scanner) {
	*p = part{}
	if c.Kind() == '"' {
		p.Text.ReadJSON(c)
		return
	}
	if c.Kind() == '{' {
		lenient.ReadNext(c, p)
		return
	}
	c.Value()
}

// ReadJSON implements [lenient.reader].
func (c *content) ReadJSON(from *jsonscan.Scanner) {
	*c = content{}
	switch from.Kind() {
	case '"', '{':
		c.present = true
		c.parts = make([]part, 1)
		c.parts[0].ReadJSON(from)
	case '[':
		c.present = true
		(*lenient.List[part])(&c.parts).ReadJSON(from)
	default:
		from.Value()
	}
}

// texts returns the texts of the parts. Pictures have none, and the <image> tags around a picture are omitted.
func (c *content) texts() []string {
	return c.textsWith(func(p *part) string { return string(p.Text) })
}

// textsWith is [content.texts] with another way to get the text of a part.
func (c *content) textsWith(textOf func(*part) string) []string {
	var out []string
	for i := range c.parts {
		text := textOf(&c.parts[i])
		t := strings.TrimSpace(text)
		tag := strings.HasPrefix(t, "<image") && strings.HasSuffix(t, ">") && !strings.Contains(t, "\n")
		if text != "" && !tag && t != "</image>" {
			out = append(out, text)
		}
	}
	return out
}

// text returns the texts of the parts, one a line.
func (c *content) text() string { return strings.Join(c.texts(), "\n") }

// hasAttachment reports whether a part is not text: a picture or a file.
func (c *content) hasAttachment() bool {
	return slices.ContainsFunc(c.parts, func(p part) bool {
		return p.Text == "" && p.Type != "" && !strings.HasSuffix(string(p.Type), "text")
	})
}
