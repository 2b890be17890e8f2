package codex

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Known types without a function of their own (rollout.go, exec.go). A type that neither has a function nor is listed
// here is counted as unknown (normalizers/README.md, Drift).
var (
	// knownParts are the types of the parts of a message or a summary.
	knownParts = map[lenient.Text]bool{
		"input_text": true, "output_text": true, "text": true, "summary_text": true, "reasoning_text": true,
		"input_image": true, "image": true, "input_file": true, "input_audio": true, "encrypted_content": true,
	}
	// knownOutputs are the types of the parts of an output, including those of MCP.
	knownOutputs = map[lenient.Text]bool{
		"input_text": true, "output_text": true, "text": true, "input_image": true, "image": true, "input_audio": true,
		"audio": true, "resource": true, "resource_link": true, "encrypted_content": true,
	}
)

// noteRecord counts the type of a rollout record that no function maps.
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

// noteParts counts parts of unknown types in contents.
func noteParts(b *core.Builder, kind core.UnknownKind, known map[lenient.Text]bool, contents ...*content) {
	for _, c := range contents {
		for i := range c.parts {
			if p := &c.parts[i]; !known[p.Type] && (p.Type != "" || p.Text == "") {
				b.Unknown(kind, p.Type)
			}
		}
	}
}

// noteOutput counts an unknown form of an output: a value that is neither text nor parts, or an unknown part.
func noteOutput(m *mapper, parts *content) {
	switch m.Output.Kind() {
	case '0', 't', 'f':
		m.Unknown(core.UnknownOutput, core.OutputForm(m.Output))
	case '{', '[':
		noteParts(m.Builder, core.UnknownOutput, knownOutputs, parts)
	default: // a text, or nothing
	}
}

// noteUsage counts unknown members of token counts.
func noteUsage(b *core.Builder, usages ...*usage) {
	for _, u := range usages {
		b.UnknownMembers(core.UnknownUsage, u.Others)
	}
}

// noteInfo counts unknown members in the info of a token_count.
func noteInfo(b *core.Builder, info *tokenInfo) {
	noteUsage(b, &info.Total.Value, &info.Last.Value)
	b.UnknownMembers(core.UnknownUsage, info.Others)
}

// usageBeside has the members of a usage that are known but not read, and the unknown ones.
type usageBeside struct {
	Total  lenient.Present `json:"total_tokens"`
	Others jsontext.Value  `json:",embed"`
}

// infoBeside has the members of an info that are known but not read, and the unknown ones.
type infoBeside struct {
	Window lenient.Present `json:"model_context_window"`
	Model  lenient.Present `json:"model"`
	Others jsontext.Value  `json:",embed"`
}
