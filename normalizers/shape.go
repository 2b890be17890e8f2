package normalizers

import (
	"time"

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
	Parts          kind                   `json:"parts"`
	Message        kind                   `json:"message"`
	Model          text                   `json:"model"`
	ToolID         text                   `json:"tool_id"`
	Response       kind                   `json:"response"`
	Stats          kind                   `json:"stats"`

	first      *shape // of an array: its first element, where that is an object
	structured bool   // an object or an array
	readable   bool   // JSON
}

// codexShape is as much of the payload of a rollout's line.
type codexShape struct {
	ID text `json:"id"`
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
	return s.Type == "" && s.Parts == '[' && (s.Role == "user" || s.Role == "model")
}

// isDocument: the record is the whole of a file that its vendor writes again and again.
func (s *shape) isDocument() bool {
	return s.isGemini() && (s.first != nil || s.Messages == '[' || s.History == '[')
}

// standsAlone reports whether the shape is that of a whole record, not of a part of one.
func (s *shape) standsAlone() bool {
	return s.isGemini() || s.isRollout() || s.tell() != "" && (s.SessionID != "" || s.LeafUUID != "" || s.MessageID != "")
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
	case s.SessionID != "":
		return string(s.SessionID)
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
	for _, v := range []text{s.Timestamp, s.Snapshot.value.Timestamp, s.StartTime, s.Set.value.LastUpdated} {
		if ts, ok := parseTime(string(v)); ok {
			if t, err := time.Parse(time.RFC3339Nano, ts); err == nil {
				return t
			}
		}
	}
	return time.Time{}
}
