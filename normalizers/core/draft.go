package core

import (
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/lenient"
)

// ChatDraft returns a draft of an event of the conversation; text and model may be nil.
func ChatDraft(t envelopes.EventType, text, model *string) Draft {
	d := Draft{OnChannel: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = t, text, model
	return d
}

// CallDraft returns the draft of the call of a tool. text has its arguments and may be nil; file is what it works on,
// empty for none.
func CallDraft(id, name lenient.Text, tool Tool, text *string, file string) Draft {
	d := Draft{OnChannel: tool.Channel}
	d.EventType, d.Text, d.ToolStatus = envelopes.ToolCall, text, new(envelopes.StatusInProgress)
	d.ToolName, d.ToolCallID = name.Ptr(), id.Ptr()
	d.Touch(file, tool.Op)
	return d
}

// ResultDraft returns the draft of the result of a call; text may be nil. The zero Call stands for one that is not
// known.
func ResultDraft(id lenient.Text, call Call, text *string, status envelopes.ToolStatus) Draft {
	d := Draft{OnChannel: cmp.Or(call.Channel, envelopes.ChannelOther)}
	d.EventType, d.Text, d.ToolStatus = envelopes.ToolResult, text, &status
	d.ToolName, d.ToolCallID = lenient.Text(call.Tool).Ptr(), id.Ptr()
	d.Touch(call.Path, call.Op)
	return d
}

// PartID returns the id of a further event of a record or a call; empty if that has none.
func PartID(id lenient.Text, part string) lenient.Text {
	if id == "" {
		return ""
	}
	return id + "#" + lenient.Text(part)
}

// NumberedID returns the id of a further event of an id that n events have already; empty for an empty one.
func NumberedID(id lenient.Text, n int) lenient.Text {
	if n == 0 || id == "" {
		return id
	}
	return id + lenient.Text("#"+strconv.Itoa(n))
}

// ArgumentText returns the arguments of a call as the text of its event: a string unchanged, any other value as JSON;
// nil for none.
func ArgumentText(args jsontext.Value) *string {
	switch {
	case args.Kind() == '"':
		return new(lenient.Unquote(args))
	case lenient.IsValue(args):
		return new(lenient.CompactText(args))
	default:
		return nil
	}
}

// SystemDraft returns a draft of an event by the agent's runtime, not by a participant of the conversation: role and
// channel are system. An empty text becomes nil.
func SystemDraft(t envelopes.EventType, text lenient.Text) Draft {
	d := Draft{InRole: envelopes.RoleSystem, OnChannel: envelopes.ChannelSystem}
	d.EventType, d.Text = t, text.Ptr()
	return d
}

// UnknownDraft returns the draft of the event that keeps a record of an unknown type. Such a record changes no other
// event: it does not set the time of later ones.
func UnknownDraft() Draft {
	d := SystemDraft(envelopes.Meta, "")
	d.Unknown = true
	return d
}

// ErrorDraft returns the draft of the log event for an error reported by the vendor: its text is the message, and its
// metadata has code and message.
func (s *Session) ErrorDraft(code, message string) Draft {
	d := SystemDraft(envelopes.Log, lenient.Text(message))
	d.Metadata = s.MetadataWithError(code, message)
	return d
}

// permissionFact is the decision about the permission of a call.
type permissionFact struct {
	ToolCallID *string `json:"toolCallId,omitzero"`
	Kind       *string `json:"kind,omitzero"`
	Decision   *string `json:"decision,omitzero"`
}

// PermissionDraft returns the draft of the log event for the decision about the permission of a call: its text is the
// decision, and its metadata has call, tool and decision.
func (s *Session) PermissionDraft(call, tool, decision lenient.Text) Draft {
	d := SystemDraft(envelopes.Log, decision)
	d.Metadata = s.MetadataWithFacts(map[string]any{"permission": permissionFact{NameOf(call), NameOf(tool), NameOf(decision)}})
	return d
}
