package codex

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What is known beside the types that a function is for (rollout.go, exec.go): whatever stands
// neither there nor here is counted as unknown (normalizers/README.md, Drift).
var (
	// knownParts are the types of the parts of a message or a summary.
	knownParts = map[lenient.Text]bool{
		"input_text": true, "output_text": true, "text": true, "summary_text": true, "reasoning_text": true,
		"input_image": true, "image": true, "input_file": true, "input_audio": true, "encrypted_content": true,
	}
	// knownOutputs are the types of the parts of an output, those of MCP among them.
	knownOutputs = map[lenient.Text]bool{
		"input_text": true, "output_text": true, "text": true, "input_image": true, "image": true, "input_audio": true,
		"audio": true, "resource": true, "resource_link": true, "encrypted_content": true,
	}
)

// noteRecord notes the type of a record of a rollout that no function maps.
func noteRecord(m *mapper) {
	switch {
	case m.kind == "event_msg" && m.Type == "item_completed":
		var i completedItem
		lenient.ReadObject(m.Item, &i)
		if i.Type == "Extension" {
			m.Unknown(core.UnknownRecord, m.Type, i.Type, i.Kind)
		} else {
			m.Unknown(core.UnknownRecord, m.Type, i.Type)
		}
	case m.kind == "event_msg":
		m.Unknown(core.UnknownRecord, m.kind, m.Type)
	case m.kind == "response_item", m.kind == "":
		m.Unknown(core.UnknownRecord, "response_item", m.itemType())
	default:
		m.Unknown(core.UnknownRecord, m.kind)
	}
}

// noteParts notes the parts of unknown types of contents.
func noteParts(b *core.Builder, kind core.UnknownKind, known map[lenient.Text]bool, contents ...*content) {
	for _, c := range contents {
		for i := range c.parts {
			if p := &c.parts[i]; !known[p.Type] && (p.Type != "" || p.Text == "") {
				b.Unknown(kind, p.Type)
			}
		}
	}
}

// noteOutput notes the form of an output that is not known: of a value that is neither text
// nor parts, or of one of its parts.
func noteOutput(m *mapper, parts *content) {
	switch m.Output.Kind() {
	case '0', 't', 'f':
		m.Unknown(core.UnknownOutput, core.OutputForm(m.Output))
	case '{', '[':
		noteParts(m.Builder, core.UnknownOutput, knownOutputs, parts)
	default: // a text, or nothing
	}
}

// noteUsage notes the members of figures that are not known.
func noteUsage(b *core.Builder, usages ...*usage) {
	for _, u := range usages {
		b.UnknownMembers(core.UnknownUsage, u.Others)
	}
}

// noteInfo notes the members of the info of a token_count that are not known.
func noteInfo(b *core.Builder, info *tokenInfo) {
	noteUsage(b, &info.Total.Value, &info.Last.Value)
	b.UnknownMembers(core.UnknownUsage, info.Others)
}

// usageBeside are the members of a usage that are known and not read, and those that are not
// known.
type usageBeside struct {
	Total  lenient.Present `json:"total_tokens"`
	Others jsontext.Value  `json:",embed"`
}

// infoBeside are those of an info.
type infoBeside struct {
	Window lenient.Present `json:"model_context_window"`
	Model  lenient.Present `json:"model"`
	Others jsontext.Value  `json:",embed"`
}
