package normalizers

import (
	"cmp"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// shape is as much of a record as tells its vendor, session and time.
type shape struct {
	Type           text                   `json:"type"`
	UUID           text                   `json:"uuid"`
	SessionID      text                   `json:"sessionId"`
	SessionIDSnake text                   `json:"session_id"`
	Timestamp      text                   `json:"timestamp"`
	MessageID      text                   `json:"messageId"`
	Snapshot       object[claudeSnapshot] `json:"snapshot"`
	LeafUUID       text                   `json:"leafUuid"`
	Key            text                   `json:"key"`
	AgentID        text                   `json:"agentId"`
	ProjectHash    present                `json:"projectHash"`
	Payload        object[codexShape]     `json:"payload"`
	ID             text                   `json:"id"`
	RecordType     text                   `json:"record_type"`
	Instructions   present                `json:"instructions"`
	Git            present                `json:"git"`
	CallID         text                   `json:"call_id"`
	Summary        present                `json:"summary"`
	ThreadID       text                   `json:"thread_id"`
	Item           object[codexExecItem]  `json:"item"`
	StartTime      text                   `json:"startTime"`
	Messages       kind                   `json:"messages"`
	History        kind                   `json:"history"`
	Set            object[geminiSet]      `json:"$set"`
	RewindTo       text                   `json:"$rewindTo"`
	Role           text                   `json:"role"`
	Content        kind                   `json:"content"`
	Parts          partsShape             `json:"parts"`
	Message        kind                   `json:"message"`
	Model          text                   `json:"model"`
	ToolID         text                   `json:"tool_id"`
	Response       kind                   `json:"response"`
	Stats          kind                   `json:"stats"`
	Subtype        text                   `json:"subtype"`
	Data           object[dataShape]      `json:"data"`
	ParentID       kind                   `json:"parentId"`
	ChatMessages   kind                   `json:"chatMessages"`
	Timeline       kind                   `json:"timeline"`
	ToolCall       kind                   `json:"tool_call"`
	Status         text                   `json:"status"`
	Tools          kind                   `json:"tools"`
	MCPServers     kind                   `json:"mcp_servers"`
	ClaudeVersion  text                   `json:"claude_code_version"`
	Event          kind                   `json:"event"`
	Usage          object[usageShape]     `json:"usage"`
	NumTurns       kind                   `json:"num_turns"`
	Cost           kind                   `json:"total_cost_usd"`
	ParentToolUse  kind                   `json:"parent_tool_use_id"`
	ToolUseResult  kind                   `json:"tool_use_result"`
	Run            object[runShape]       `json:"run"`
	Part           kind                   `json:"part"`
	Generic        kind                   `json:"generic"`
	Error          object[errorShape]     `json:"error"`
	RunID          text                   `json:"run_id"`
	AgentName      text                   `json:"agent_name"`
	Output         kind                   `json:"output"`
	Input          kind                   `json:"input"`
	AwaitResume    kind                   `json:"await_resume"`
	CreatedAt      text                   `json:"created_at"`
	TimestampMS    number                 `json:"timestamp_ms"`
	AuditTimestamp text                   `json:"_audit_timestamp"`
	ModelCallID    text                   `json:"model_call_id"`

	first      *shape // of an array: its first element, where that is an object
	structured bool   // an object or an array
	readable   bool   // JSON
}

// codexShape is as much of the payload of a rollout's line.
type codexShape struct {
	ID text `json:"id"`
}

// dataShape is as much of the data of an envelope: a record of Copilot, or the first
// message of Claude's SDK.
type dataShape struct {
	SessionID      text `json:"sessionId"`
	SessionIDSnake text `json:"session_id"`
}

// usageShape tells the usage of Claude from that of others.
type usageShape struct {
	Input kind `json:"input_tokens"`
}

// partsShape tells a list of parts, and those of ACP from those of Gemini.
type partsShape struct{ list, acp bool }

func (p *partsShape) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var parts list[struct {
		ContentType kind `json:"content_type"`
		Content     kind `json:"content"`
		ContentURL  kind `json:"content_url"`
		Metadata    kind `json:"metadata"`
	}]
	*p = partsShape{list: dec.PeekKind() == '['}
	if err := parts.UnmarshalJSONFrom(dec); err != nil {
		return err
	}
	for _, part := range parts {
		p.acp = p.acp || part.ContentType|part.Content|part.ContentURL|part.Metadata != 0
	}
	return nil
}

// runShape is as much of a run of ACP.
type runShape struct {
	RunID     text `json:"run_id"`
	SessionID text `json:"session_id"`
	CreatedAt text `json:"created_at"`
}

// errorShape is as much of an error of ACP.
type errorShape struct {
	Code text `json:"code"`
}

// tell is the vendor whose record has this shape; empty when it tells none.
func (s *shape) tell() envelopes.Source {
	switch {
	case s.isGemini():
		return envelopes.Gemini
	case bool(s.ProjectHash):
		return ""
	case s.isCodex():
		return envelopes.Codex
	case s.isACP():
		return envelopes.ACP
	case s.isCopilot():
		return envelopes.Copilot
	case s.isClaudeStream():
		return envelopes.ClaudeCode
	case s.isCursor():
		return envelopes.Cursor
	case s.Type == "":
		return ""
	case s.SessionID != "" && (s.UUID != "" || s.MessageID == ""):
		return envelopes.ClaudeCode
	case s.Type == "summary" && s.LeafUUID != "",
		s.Type == "file-history-snapshot" && s.Snapshot.ok,
		s.Type == "file-history-delta" && s.MessageID != "",
		(s.Type == "started" || s.Type == "result") && s.Key != "" && s.AgentID != "":
		return envelopes.ClaudeCode
	default:
		return ""
	}
}

// isCodex tells a line of a rollout, in an envelope or bare, and of the exec stream.
func (s *shape) isCodex() bool {
	switch {
	case s.Payload.ok:
		return s.Type != "" && s.SessionID == ""
	case s.RecordType != "":
		return true
	case s.Type == "": // the header of a bare rollout
		return s.ID != "" && s.Timestamp != "" && (bool(s.Instructions) || bool(s.Git)) && s.SessionID == ""
	case s.Type == "function_call", s.Type == "function_call_output":
		return s.CallID != ""
	case s.Type == "reasoning":
		return bool(s.Summary)
	case s.Type == "thread.started":
		return s.ThreadID != ""
	default:
		return isExecType(string(s.Type)) && s.Item.ok
	}
}

// isClaudeStream tells a message of Claude's SDK: a line of its stream, or a message as
// the SDK has it, without a type. Lines that Cursor writes alike tell nothing: another
// one of the file does.
func (s *shape) isClaudeStream() bool {
	if s.first != nil {
		return s.first.isClaudeStream()
	}
	switch s.Type {
	case "":
		return s.Subtype == "init" && s.Data.ok && s.ID == "" ||
			s.NumTurns != 0 && s.SessionIDSnake != "" ||
			s.Event == '{' && s.SessionIDSnake != "" ||
			s.Content == '[' && (s.Model != "" || s.ToolUseResult != 0 || s.ParentToolUse != 0)
	case "system":
		return s.SessionIDSnake != "" && (s.Tools == '[' || s.MCPServers == '[' || s.ClaudeVersion != "" || s.UUID != "")
	case "assistant", "user":
		return s.SessionID == "" && s.Message == '{' && (s.ParentToolUse != 0 || s.UUID != "" && s.SessionIDSnake != "")
	case "stream_event":
		return s.Event == '{'
	case "result":
		return s.NumTurns != 0 || s.Cost != 0 || s.Usage.value.Input != 0
	case "control_request", "control_response", "rate_limit_event", "tool_progress", "auth_status", "prompt_suggestion":
		return s.SessionID == ""
	default:
		return false
	}
}

// isCursor tells a line of Cursor's stream or of its transcripts.
func (s *shape) isCursor() bool {
	switch s.Type {
	case "":
		return s.Message == '{' && (s.Role == "user" || s.Role == "assistant") && s.UUID == "" && s.SessionID == ""
	case "system":
		return s.Subtype == "init" && s.SessionIDSnake != "" && s.Model != ""
	case "thinking":
		return s.Subtype == "delta" || s.Subtype == "completed"
	case "user", "assistant":
		return s.Message == '{' && s.SessionIDSnake != "" && s.SessionID == "" && s.UUID == "" && (s.TimestampMS.ok || s.ModelCallID != "")
	case "tool_call":
		return s.ToolCall == '{' && s.Subtype != ""
	case "connection", "retry":
		return s.Subtype != "" && s.SessionIDSnake != "" && s.TimestampMS.ok
	case "turn_ended":
		return s.Status != ""
	case "result":
		return s.Subtype != "" && s.SessionIDSnake != ""
	default:
		return false
	}
}

// isCopilot tells a line of events.jsonl, or a session of the older versions.
func (s *shape) isCopilot() bool {
	switch {
	case s.Type == "":
		return s.SessionID != "" && (s.Timeline == '[' || s.ChatMessages == '[')
	case s.ParentID != 0:
		return s.Data.ok && s.ID != "" && s.Timestamp != ""
	default: // some tools that keep logs leave out the ids
		return s.Data.ok && s.Timestamp != "" && (s.Type == "session.start" || s.Type == "user.message" || s.Type == "assistant.message")
	}
}

// isACP tells an event of a run, a run, a message, or what is sent to an agent.
func (s *shape) isACP() bool {
	switch {
	case s.first != nil:
		return s.first.isACP()
	case strings.HasPrefix(string(s.Type), "run."):
		return s.Run.ok
	case s.Type == "message.part":
		return s.Part == '{'
	case s.Type == "message.created", s.Type == "message.completed":
		return s.Message == '{'
	case s.Type == "generic":
		return s.Generic != 0
	case s.Type == "error":
		return s.Error.value.Code != "" && s.SessionID == "" && s.SessionIDSnake == ""
	case s.Type != "":
		return false
	case s.Parts.list:
		return s.Role == "user" || s.Role == "agent" || strings.HasPrefix(string(s.Role), "agent/")
	case s.AgentName != "":
		return s.Status != "" || s.Output == '[' || s.Input == '['
	default:
		return s.AwaitResume == '{' || s.RunID != "" && s.Output == '['
	}
}

// isGemini tells what Gemini CLI writes: a session's file or document, a list of prompts,
// a saved conversation, and its output.
func (s *shape) isGemini() bool {
	switch {
	case s.first != nil:
		return s.first.isGeminiLine() || s.first.isGeminiContent()
	case s.isGeminiLine(), s.Set.ok && s.Type == "", s.RewindTo != "" && s.Type == "":
		return true
	case bool(s.ProjectHash), s.Messages == '[':
		return s.SessionID != "" && s.Type == ""
	case s.History == '[':
		return s.Type == "" && s.SessionID == "" && s.SessionIDSnake == ""
	case s.Type == "":
		return s.Stats == '{' && (s.Response == '"' || s.SessionIDSnake != "")
	case s.Type == "init":
		return s.SessionIDSnake != "" && s.Model != "" && s.Timestamp != ""
	case s.Type == "tool_use", s.Type == "tool_result":
		return s.ToolID != ""
	case s.Type == "gemini":
		return s.ID != ""
	case s.Type == "user", s.Type == "info", s.Type == "warning", s.Type == "error":
		return s.ID != "" && s.Timestamp != "" && s.Content != 0 && s.SessionID == "" && s.UUID == ""
	default:
		return false
	}
}

// isGeminiLine tells a prompt of logs.json; its messageId is a number.
func (s *shape) isGeminiLine() bool {
	return s.SessionID != "" && s.Message == '"' && s.Type == "user" && s.MessageID == "" && s.UUID == ""
}

// isGeminiContent tells a content of a saved conversation.
func (s *shape) isGeminiContent() bool {
	return s.Type == "" && s.Parts.list && !s.Parts.acp && (s.Role == "user" || s.Role == "model")
}

// isDocument: the record is the whole of a file that its vendor writes again and again.
func (s *shape) isDocument() bool {
	return s.isGemini() && (s.first != nil || s.Messages == '[' || s.History == '[') || s.isCopilot() && s.Type == ""
}

// standsAlone reports whether the shape is that of a whole record, not of a part of one.
func (s *shape) standsAlone() bool {
	return s.isGemini() || s.isRollout() || s.isCopilot() || s.tell() != "" && (s.SessionID != "" || s.LeafUUID != "" || s.MessageID != "")
}

// isRollout tells a line of a rollout in an envelope, of the types that are known.
func (s *shape) isRollout() bool {
	switch s.Type {
	case "session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state":
		return s.Payload.ok && s.Timestamp != "" && s.SessionID == ""
	default:
		return false
	}
}

// session is the session that the record states itself.
func (s *shape) session() string {
	switch {
	case s.SessionIDSnake != "" && s.isClaudeStream():
		return string(s.SessionIDSnake)
	case s.SessionID != "":
		return string(s.SessionID)
	case s.AwaitResume == '{' && s.isACP():
		return string(s.SessionIDSnake) // its run is one of the session of the file
	case s.first != nil && s.isACP():
		return s.first.session()
	case s.isACP():
		return string(cmp.Or(s.Run.value.SessionID, s.SessionIDSnake, s.Run.value.RunID, s.RunID))
	case s.Data.ok && (s.Type == "session.start" || s.Type == ""):
		return string(cmp.Or(s.Data.value.SessionID, s.Data.value.SessionIDSnake))
	case s.Set.value.SessionID != "":
		return string(s.Set.value.SessionID)
	case s.Type == "session_meta" && s.Payload.ok:
		return string(s.Payload.value.ID)
	case s.Type == "" && s.isCodex():
		return string(s.ID)
	case s.Type == "thread.started":
		return string(s.ThreadID)
	default:
		return string(s.SessionIDSnake)
	}
}

// time is the time that the record states itself; zero when it states none.
func (s *shape) time() time.Time {
	for _, v := range []text{s.Timestamp, s.AuditTimestamp, s.Snapshot.value.Timestamp, s.StartTime, s.Set.value.LastUpdated, s.CreatedAt, s.Run.value.CreatedAt} {
		if ts, ok := parseTime(string(v)); ok {
			if t, err := time.Parse(time.RFC3339Nano, ts); err == nil {
				return t
			}
		}
	}
	if ts, ok := timeOfMillis(s.TimestampMS); ok {
		t, _ := time.Parse(time.RFC3339Nano, ts)
		return t
	}
	return time.Time{}
}
