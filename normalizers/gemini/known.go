package gemini

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Members that are known but not read. The remaining members of a struct are unknown and counted
// (normalizers/README.md, Drift).

// knownValues are the values of a patch that become one meta event when they are new.
var knownValues = map[string]bool{
	"projectHash": true, "startTime": true, "kind": true, "directories": true, "memoryScratchpad": true,
}

// partBeside has the known members of a part without text: media, code, and additions to a text.
type partBeside struct {
	ThoughtSignature lenient.Present `json:"thoughtSignature"`
	InlineData       lenient.Present `json:"inlineData"`
	FileData         lenient.Present `json:"fileData"`
	VideoMetadata    lenient.Present `json:"videoMetadata"`
	ExecutableCode   lenient.Present `json:"executableCode"`
	CodeResult       lenient.Present `json:"codeExecutionResult"`

	Others jsontext.Value `json:",embed"`
}

// tokensBeside has the members of a message's token counts that are not read.
type tokensBeside struct {
	Total  lenient.Present `json:"total"`
	Others jsontext.Value  `json:",embed"`
}

// statsBeside has the members of a run's token counts that are not read.
type statsBeside struct {
	Duration  lenient.Present `json:"duration_ms"`
	ToolCalls lenient.Present `json:"tool_calls"`
	Uncached  lenient.Present `json:"input"`
	Tools     lenient.Present `json:"tools"`
	Files     lenient.Present `json:"files"`

	Others jsontext.Value `json:",embed"`
}

// modelTokensBeside has the members of a model's token counts that are not read.
type modelTokensBeside struct {
	Input  lenient.Present `json:"input"`
	Total  lenient.Present `json:"total"`
	Others jsontext.Value  `json:",embed"`
}

// displayBeside has the members of a result's display that are not read: of an edit, a subagent, and a search.
type displayBeside struct {
	FileName     lenient.Present `json:"fileName"`
	FileDiff     lenient.Present `json:"fileDiff"`
	Original     lenient.Present `json:"originalContent"`
	New          lenient.Present `json:"newContent"`
	DiffStat     lenient.Present `json:"diffStat"`
	IsProgress   lenient.Present `json:"isSubagentProgress"`
	AgentName    lenient.Present `json:"agentName"`
	Activity     lenient.Present `json:"recentActivity"`
	State        lenient.Present `json:"state"`
	Terminate    lenient.Present `json:"terminateReason"`
	TargetFolder lenient.Present `json:"targetDir"`
	Payload      lenient.Present `json:"payload"`

	Others jsontext.Value `json:",embed"`
}

// noteMessage counts unknown parts, token counts and results in a message.
func noteMessage(m *mapper, w *wireMessage) {
	noteParts(m.Builder, core.UnknownBlock, &w.Content, &w.Parts, &w.DisplayContent)
	m.UnknownMembers(core.UnknownUsage, w.Tokens.Value.Others)
	for i := range w.ToolCalls {
		noteResult(m, &w.ToolCalls[i].Value)
	}
}

// noteParts counts unknown members of parts, and tool responses of an unknown form among them: usually a response is
// an object with an output or an error.
func noteParts(b *core.Builder, kind core.UnknownKind, contents ...*parts) {
	for _, c := range contents {
		for i := range c.parts {
			p := &c.parts[i]
			b.UnknownMembers(kind, p.Others)
			if v := p.FunctionResponse.Value.Response; lenient.IsValue(v) && v.Kind() != '{' && v.Kind() != '"' {
				b.Unknown(core.UnknownOutput, "response", core.OutputForm(v))
			}
		}
	}
}

// noteResult counts what is unknown in the result of a call: its status, its parts, and its display.
func noteResult(m *mapper, c *call) {
	if c.Status != "" && statusOf(c.Status) == "" {
		m.Unknown(core.UnknownOutput, "status", c.Status)
	}
	noteParts(m.Builder, core.UnknownOutput, &c.Result)
	switch v := c.ResultDisplay; v.Kind() {
	case '{':
		var in display
		lenient.ReadObject(v, &in)
		for _, o := range lenient.ObjectMembers(in.Others) {
			m.Unknown(core.UnknownOutput, "resultDisplay", lenient.Text(o.Name))
		}
	case '0', 't', 'f':
		m.Unknown(core.UnknownOutput, "resultDisplay", core.OutputForm(v))
	default: // a text, a screen, or nothing
	}
}

// noteStats counts unknown members in the token counts of a run.
func noteStats(m *mapper, s *wireStats) {
	m.UnknownMembers(core.UnknownUsage, s.Others)
	for _, model := range slices.Sorted(maps.Keys(s.Models.Value)) {
		m.UnknownMembers(core.UnknownUsage, s.Models.Value[model].Value.Tokens.Value.Others)
	}
}
