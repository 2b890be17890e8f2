package envelopes

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// outline is an event without the fields for native JSON. The fields of the outer struct hide those of the same name
// in plainEvent.
type outline struct {
	plainEvent      `json:",embed"`
	Raw             skipped          `json:"raw"`
	Metadata        *outlineMetadata `json:"metadata"`
	ToolMetadata    skipped          `json:"tool_metadata"`
	ToolInput       skipped          `json:"tool_input"`
	ToolOutput      skipped          `json:"tool_output"`
	Content         skipped          `json:"content"`
	MessageMetadata skipped          `json:"message_metadata"`
}

// outlineMetadata is the part of the metadata in an outline.
type outlineMetadata struct {
	SessionID *string        `json:"sessionId"`
	Model     *string        `json:"model"`
	Error     jsontext.Value `json:"error"`
}

// skipped is a JSON value that is not decoded.
type skipped struct{}

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (skipped) UnmarshalJSONFrom(d *jsontext.Decoder) error { return d.SkipValue() }

// DecodeOutline decodes one event without the parts that are native to its vendor: Raw, ToolMetadata, ToolInput,
// ToolOutput, Content and MessageMetadata are nil, and Metadata has no extension but error. It is for sums over many
// stored events, of which these fields are most of the bytes, and does not validate what it skips. Otherwise it is
// [DecodeAgentEvent].
func DecodeOutline(data []byte) (AgentEventV1, error) {
	if e, ok := readOutline(data); ok {
		return e, nil
	}
	var o outline
	if err := json.Unmarshal(data, &o, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return AgentEventV1{}, fmt.Errorf("%w: %s", ErrInvalidEvent, jsonProblem(err))
	}
	e := AgentEventV1(o.plainEvent)
	if m := o.Metadata; m != nil {
		e.Metadata = &Metadata{SessionID: m.SessionID, Model: m.Model}
		if m.Error != nil {
			e.Metadata.Extensions = map[string]jsontext.Value{"error": m.Error}
		}
	}
	return e, nil
}
