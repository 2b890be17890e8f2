package cursor

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// wireRecord has the members of a line of the stream or of a transcript, and distinguishes a row of the database from them.
// Older versions write some names with underscores.
type wireRecord struct {
	Table lenient.Text   `json:"table"` // of the database
	Row   jsontext.Value `json:"row"`

	Type           lenient.Text                `json:"type"`
	Subtype        lenient.Text                `json:"subtype"`
	Role           lenient.Text                `json:"role"` // of a transcript, instead of Type
	SessionID      lenient.Text                `json:"session_id"`
	SessionIDCamel lenient.Text                `json:"sessionId"`
	Model          lenient.Text                `json:"model"`
	Cwd            lenient.Text                `json:"cwd"`
	Mode           lenient.Text                `json:"permissionMode"`
	ModeSnake      lenient.Text                `json:"permission_mode"`
	KeySource      lenient.Text                `json:"apiKeySource"`
	KeySourceSnake lenient.Text                `json:"api_key_source"`
	Timestamp      lenient.Text                `json:"timestamp"`
	TimestampMS    lenient.Number              `json:"timestamp_ms"`
	ModelCallID    lenient.Text                `json:"model_call_id"`
	Message        lenient.Object[wireMessage] `json:"message"`
	Text           lenient.Text                `json:"text"`
	CallID         lenient.Text                `json:"call_id"`
	ToolCall       jsontext.Value              `json:"tool_call"`
	IsError        lenient.Flag                `json:"is_error"`
	Result         jsontext.Value              `json:"result"`
	RequestID      lenient.Text                `json:"request_id"`
	Query          jsontext.Value              `json:"query"`
	Usage          lenient.Object[wireUsage]   `json:"usage"`
	Status         lenient.Text                `json:"status"`
	Error          jsontext.Value              `json:"error"`
}

type wireMessage struct {
	Model   lenient.Text   `json:"model"`
	Content jsontext.Value `json:"content"`
}

// wireUsage is what a run has used. The input is without cache reads and writes, but before April 2026 with them: a run
// states 134,150 input tokens with 113,472 cache reads among them.
type wireUsage struct {
	Input      lenient.Number `json:"inputTokens"`
	Output     lenient.Number `json:"outputTokens"`
	CacheRead  lenient.Number `json:"cacheReadTokens"`
	CacheWrite lenient.Number `json:"cacheWriteTokens"`
	Others     jsontext.Value `json:",embed"`
}

// consumption converts the counts to parts that do not overlap. An input below the cache is without it at any time.
func (u *wireUsage) consumption(isOld bool) core.Consumption {
	c := core.Consumption{
		Input: u.Input.Count(), CacheRead: u.CacheRead.Count(), CacheWrite: u.CacheWrite.Count(), Output: u.Output.Count(),
	}
	if cached := c.CacheRead + c.CacheWrite; isOld && c.Input >= cached {
		c.Input -= cached
	}
	return c
}

// mode returns the permission mode stated in the record.
func (r *wireRecord) mode() lenient.Text { return cmp.Or(r.Mode, r.ModeSnake) }

// isMessage reports whether the record is a message of the stream or of a transcript.
func (r *wireRecord) isMessage() bool {
	switch r.Type {
	case "user", "assistant":
		return true
	case "":
		return r.Message.OK && (r.Role == "user" || r.Role == "assistant")
	default:
		return false
	}
}

// time returns the record's own time in the form of an event; empty for none. In a transcript only a prompt may have
// one, in an element of its text.
func (r *wireRecord) time() string {
	if ts, ok := core.TimeOfMillis(r.TimestampMS); ok {
		return ts
	}
	if ts, ok := core.ParseTime(string(r.Timestamp)); ok {
		return ts
	}
	if r.Role != "user" {
		return ""
	}
	for _, b := range r.blocks() {
		if ts, ok := parsePromptTime(core.TagContent(string(b.Text), "timestamp")); ok {
			return ts
		}
	}
	return ""
}

// errorText returns the message of an error: a text, the message in an object, or else the value as JSON.
func errorText(v jsontext.Value) string {
	var in struct {
		Error lenient.Text `json:"error"`
	}
	lenient.ReadObject(v, &in)
	_, message := core.VendorError(v)
	switch {
	case v.Kind() == '"':
		return lenient.Unquote(v)
	case message != "":
		return message
	case in.Error != "":
		return string(in.Error)
	case lenient.IsValue(v):
		return lenient.CompactText(v)
	default:
		return ""
	}
}
