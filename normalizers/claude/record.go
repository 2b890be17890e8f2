package claude

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// wireRecord is a line of a transcript or of a stream, under the vendor's names.
type wireRecord struct {
	Type               lenient.Text               `json:"type"`
	Subtype            lenient.Text               `json:"subtype"`
	UUID               lenient.Text               `json:"uuid"`
	SessionID          lenient.Text               `json:"sessionId"`
	SessionIDSnake     lenient.Text               `json:"session_id"`
	Timestamp          lenient.Text               `json:"timestamp"`
	CWD                lenient.Text               `json:"cwd"`
	Version            lenient.Text               `json:"version"`
	GitBranch          lenient.Text               `json:"gitBranch"`
	PermissionMode     lenient.Text               `json:"permissionMode"`
	IsSidechain        lenient.Flag               `json:"isSidechain"`
	AgentID            lenient.Text               `json:"agentId"`
	RequestID          lenient.Text               `json:"requestId"`
	PromptID           lenient.Text               `json:"promptId"`
	CostUSD            lenient.Number             `json:"costUSD"`
	IsMeta             lenient.Flag               `json:"isMeta"`
	IsCompactSummary   lenient.Flag               `json:"isCompactSummary"`
	IsAPIErrorMessage  lenient.Flag               `json:"isApiErrorMessage"`
	Origin             lenient.Object[origin]     `json:"origin"`
	ForkedFrom         lenient.Object[fork]       `json:"forkedFrom"`
	PromptSource       lenient.Text               `json:"promptSource"`
	Message            lenient.Object[message]    `json:"message"`
	ToolUseResult      jsontext.Value             `json:"toolUseResult"`
	SourceToolUseID    lenient.Text               `json:"sourceToolUseID"`
	Attachment         lenient.Object[attachment] `json:"attachment"`
	MessageID          lenient.Text               `json:"messageId"`
	Snapshot           lenient.Object[snapshot]   `json:"snapshot"`
	TrackingPath       lenient.Text               `json:"trackingPath"`
	Summary            lenient.Text               `json:"summary"`
	Text               lenient.Text               `json:"text"`
	Content            content                    `json:"content"`
	Operation          lenient.Text               `json:"operation"`
	Error              jsontext.Value             `json:"error"`
	APIErrorStatus     jsontext.Value             `json:"apiErrorStatus"`
	APIRefusalCategory lenient.Text               `json:"apiRefusalCategory"`
	AITitle            lenient.Text               `json:"aiTitle"`
	CustomTitle        lenient.Text               `json:"customTitle"`
	AgentName          lenient.Text               `json:"agentName"`
	Mode               lenient.Text               `json:"mode"`
	PRNumber           jsontext.Value             `json:"prNumber"`
	PRURL              lenient.Text               `json:"prUrl"`
	PRRepository       lenient.Text               `json:"prRepository"`
	WorktreeSession    jsontext.Value             `json:"worktreeSession"`
	TotalCost          jsontext.Value             `json:"totalCostUSD"`
	HasUnknownCost     jsontext.Value             `json:"hasUnknownModelCost"`

	// Records that this one replaces, or takes back.
	SupersedesUUIDs lenient.List[lenient.Text] `json:"supersedesUuids"`
	RetractedUUIDs  lenient.List[lenient.Text] `json:"retractedMessageUuids"`

	wireSDK
}

// wireSDK are the members that only the SDK writes.
type wireSDK struct {
	AuditTimestamp     lenient.Text                `json:"_audit_timestamp"` // of streams kept by the desktop application
	ParentToolUseID    lenient.Text                `json:"parent_tool_use_id"`
	RequestIDSnake     lenient.Text                `json:"request_id"`
	ToolUseResultSnake jsontext.Value              `json:"tool_use_result"`
	Model              lenient.Text                `json:"model"`
	Data               jsontext.Value              `json:"data"`
	Event              lenient.Object[streamEvent] `json:"event"`
	MCPServers         jsontext.Value              `json:"mcp_servers"`
	CodeVersion        lenient.Text                `json:"claude_code_version"`
	IsSynthetic        lenient.Flag                `json:"isSynthetic"`
	ClientComposed     lenient.Flag                `json:"client_composed"` // by a program, of what nobody typed
	Key                lenient.Text                `json:"key"`
	RateLimitInfo      lenient.Object[rateLimit]   `json:"rate_limit_info"`
	Output             content                     `json:"output"`
	CompactError       lenient.Text                `json:"compact_error"`
	Stdout             lenient.Text                `json:"stdout"`
	Stderr             lenient.Text                `json:"stderr"`

	Supersedes     lenient.List[lenient.Text] `json:"supersedes"`
	RetractedSnake lenient.List[lenient.Text] `json:"retracted_message_uuids"`

	HookEvent lenient.Text `json:"hook_event_name"` // of what a hook gets

	// Of a result.
	Usage             jsontext.Value             `json:"usage"`
	ModelUsage        jsontext.Value             `json:"modelUsage"`
	Result            jsontext.Value             `json:"result"`
	Errors            lenient.List[lenient.Text] `json:"errors"`
	IsErrorSnake      lenient.Flag               `json:"is_error"`
	IsErrorCamel      lenient.Flag               `json:"isError"`
	DurationMS        jsontext.Value             `json:"duration_ms"`
	DurationAPIMS     jsontext.Value             `json:"duration_api_ms"`
	NumTurns          jsontext.Value             `json:"num_turns"`
	TotalCostUSD      jsontext.Value             `json:"total_cost_usd"`
	StructuredOutput  jsontext.Value             `json:"structured_output"`
	PermissionDenials jsontext.Value             `json:"permission_denials"`
	StopReason        jsontext.Value             `json:"stop_reason"`
}

// origin is the author of a prompt.
type origin struct {
	Kind         lenient.Text `json:"kind"`
	From         lenient.Text `json:"from"`
	SenderTaskID lenient.Text `json:"senderTaskId"`
}

// fork names the session from which a fork copied the record.
type fork struct {
	SessionID lenient.Text `json:"sessionId"`
}

type message struct {
	ID      lenient.Text          `json:"id"`
	Role    lenient.Text          `json:"role"`
	Model   lenient.Text          `json:"model"`
	Content content               `json:"content"`
	Usage   lenient.Object[usage] `json:"usage"`

	StopReason jsontext.Value `json:"stop_reason"`
}

// unwrap converts a message that the SDK dumped as an object to a line of the stream: such an object has no type, and
// is the message itself.
func (r *wireRecord) unwrap() {
	if !lenient.IsValue(r.ToolUseResult) {
		r.ToolUseResult = r.ToolUseResultSnake
	}
	switch {
	case r.Type != "":
		return
	case r.Subtype == "init" && r.Data.Kind() == '{':
		lenient.ReadObject(r.Data.Clone(), r)
		r.Type = "system"
	case lenient.IsValue(r.NumTurns), lenient.IsValue(r.TotalCostUSD):
		r.Type = "result"
	case r.Event.OK:
		r.Type = "stream_event"
	case r.Content.present && r.Model != "":
		r.Type = "assistant"
	case r.Content.present && (r.UUID != "" || r.ToolUseResultSnake != nil):
		r.Type = "user"
	default:
		return
	}
	if (r.Type == "assistant" || r.Type == "user") && !r.Message.OK {
		r.Message.OK = true
		r.Message.Value = message{Role: r.Type, Model: r.Model, Content: r.Content}
		r.Content = content{}
	}
}

// time returns the time stated in the record, in the form of an event; empty for none.
func (r *wireRecord) time() string {
	for _, t := range []lenient.Text{r.Timestamp, r.AuditTimestamp, r.Snapshot.Value.Timestamp} {
		if ts, ok := core.ParseTime(string(t)); ok {
			return ts
		}
	}
	return ""
}

// session returns the session stated in the record, as sessionOf does; empty for none.
func (r *wireRecord) session() string {
	if r.Subtype == "init" {
		return string(cmp.Or(r.SessionIDSnake, r.SessionID))
	}
	return string(cmp.Or(r.SessionID, r.SessionIDSnake))
}

// text returns the text of the record itself, outside any message.
func (r *wireRecord) text() lenient.Text {
	text, _ := r.Content.text()
	return lenient.Text(text)
}

// isStreamed reports whether the SDK wrote the record. Records of a transcript have their session id in camel case.
func (r *wireRecord) isStreamed() bool {
	return r.SessionID == "" || r.Type == "system" && r.Subtype == "init"
}

// isCopied reports whether the record is history of another session, because a fork begins with a copy of it.
func (r *wireRecord) isCopied(session string) bool {
	from := r.ForkedFrom.Value.SessionID
	return from != "" && string(from) != session
}
