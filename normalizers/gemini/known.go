package gemini

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What is known and not read, and what of a struct is not known: that is counted
// (normalizers/README.md, Drift).

// knownValues are the values of a patch that are one meta event where they are new.
var knownValues = map[string]bool{
	"projectHash": true, "startTime": true, "kind": true, "directories": true, "memoryScratchpad": true,
}

// partBeside are the members of a part that are known, and hold no text: media, code, and what
// goes with a text.
type partBeside struct {
	ThoughtSignature lenient.Present `json:"thoughtSignature"`
	InlineData       lenient.Present `json:"inlineData"`
	FileData         lenient.Present `json:"fileData"`
	VideoMetadata    lenient.Present `json:"videoMetadata"`
	ExecutableCode   lenient.Present `json:"executableCode"`
	CodeResult       lenient.Present `json:"codeExecutionResult"`

	Others jsontext.Value `json:",embed"`
}

// tokensBeside are the members of the figures of a message that are not read.
type tokensBeside struct {
	Total  lenient.Present `json:"total"`
	Others jsontext.Value  `json:",embed"`
}

// statsBeside are the members of the figures of a run that are not read.
type statsBeside struct {
	Duration  lenient.Present `json:"duration_ms"`
	ToolCalls lenient.Present `json:"tool_calls"`
	Uncached  lenient.Present `json:"input"`
	Tools     lenient.Present `json:"tools"`
	Files     lenient.Present `json:"files"`

	Others jsontext.Value `json:",embed"`
}

// modelTokensBeside are the members of the figures of a model that are not read.
type modelTokensBeside struct {
	Input  lenient.Present `json:"input"`
	Total  lenient.Present `json:"total"`
	Others jsontext.Value  `json:",embed"`
}

// displayBeside are the members of what a human sees of a result that are not read: of an edit,
// a subagent, and a search.
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

// noteMessage notes the parts, the figures and the results of a message that are not known.
func noteMessage(m *mapper, w *wireMessage) {
	noteParts(m.Builder, core.UnknownBlock, &w.Content, &w.Parts, &w.DisplayContent)
	m.UnknownMembers(core.UnknownUsage, w.Tokens.Value.Others)
	for i := range w.ToolCalls {
		noteResult(m, &w.ToolCalls[i].Value)
	}
}

// noteParts notes the members of parts that are not known, and the responses of tools among
// them of a form that is not known: as a rule it is an object with an output or an error.
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

// noteResult notes what of the result of a call is not known: its status, its parts, and what a
// human sees of it.
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
	default: // a text, a screen, or none
	}
}

// noteStats notes the members of the figures of a run that are not known.
func noteStats(m *mapper, s *wireStats) {
	m.UnknownMembers(core.UnknownUsage, s.Others)
	for _, model := range slices.Sorted(maps.Keys(s.Models.Value)) {
		m.UnknownMembers(core.UnknownUsage, s.Models.Value[model].Value.Tokens.Value.Others)
	}
}
