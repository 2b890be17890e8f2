package gemini

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// wireStream has the members of Gemini CLI's standard output when a program runs it: lines (--output-format
// stream-json), or one document (--output-format json).
type wireStream struct {
	Delta      lenient.Flag              `json:"delta"`
	ToolName   lenient.Text              `json:"tool_name"`
	ToolID     lenient.Text              `json:"tool_id"`
	Parameters jsontext.Value            `json:"parameters"`
	Status     lenient.Text              `json:"status"`
	Output     jsontext.Value            `json:"output"`
	Error      jsontext.Value            `json:"error"`
	Severity   lenient.Text              `json:"severity"`
	Stats      lenient.Object[wireStats] `json:"stats"`
	Response   lenient.Text              `json:"response"`
}

// isStream reports whether the record belongs to one of the two outputs.
func (r *wireRecord) isStream() bool {
	switch r.Type {
	case "init":
		return true
	case "message":
		return r.ID == "" && r.Role != ""
	case "tool_use", "tool_result":
		return r.ToolID != ""
	case "error":
		return r.ID == "" && (r.Severity != "" || !r.Content.present)
	case "result":
		return r.ID == ""
	case "":
		return r.ID == "" && r.Role == "" && (r.Stats.OK || r.Response != "")
	default:
		return false
	}
}

// emitStream emits a line of the stream, or the document. Every line except an answer of the model ends the deltas
// before it.
func emitStream(m *mapper) {
	noteParts(m.Builder, core.UnknownBlock, &m.Content)
	if m.Type == "message" && m.Role != "user" {
		emitAnswer(m)
		return
	}
	m.st.Deltas.flush(&m.emitter)
	switch m.Type {
	case "init":
		m.Session.SetModel(string(m.Model))
		beginRunUsage(m)
		m.putSystem("", envelopes.Meta, "")
	case "message":
		emitStreamPrompt(m)
	case "tool_use":
		m.emitCall(m.ToolID, m.ToolName, m.Parameters, "", lenient.Text(m.Session.Model))
	case "tool_result":
		emitStreamResult(m)
	case "error":
		emitStreamError(m)
	case "result":
		m.putSystem("", envelopes.SessionSummary, "")
		emitRunEnd(m)
	default:
		emitResponseDocument(m)
	}
}

// emitAnswer emits a whole answer of the model, or adds a delta of it.
func emitAnswer(m *mapper) {
	text := m.Content.text()
	pending := &m.st.Deltas
	if m.Delta {
		pending.join(&m.emitter, text)
		return
	}
	if pending.Text == text {
		*pending = deltas{} // the answer repeats all deltas
	}
	pending.flush(&m.emitter)
	if strings.TrimSpace(text) == "" {
		m.skip = core.SkipEmpty
		return
	}
	m.emitStreamText(text, nil)
}

// emitStreamText emits an answer of the model; from is its record, nil for the current one.
func (e *emitter) emitStreamText(text string, from *core.Pending) {
	d := core.ChatDraft(envelopes.AssistantMessage, &text, lenient.Text(e.Session.Model).Ptr())
	d.From = from
	e.put("", d)
}

// emitStreamPrompt emits the prompt of a run.
func emitStreamPrompt(m *mapper) {
	kind, text := speechOf(m.Content.prompt())
	if strings.TrimSpace(text) == "" {
		m.skip = core.SkipEmpty
		return
	}
	m.put("", core.DraftOf(kind, text))
}

// emitStreamResult emits the result of a tool.
func emitStreamResult(m *mapper) {
	if m.Status != "" && statusOf(m.Status) == "" {
		m.Unknown(core.UnknownOutput, "status", m.Status)
	}
	code, message := core.VendorError(m.Error)
	output := cmp.Or(lenient.TextOrJSON(m.Output), message, code)
	m.emitResult(resultID(m.ToolID), m.ToolID, result{
		status:  m.Status,
		output:  output,
		display: output,
		failed:  lenient.IsValue(m.Error),
		present: lenient.IsValue(m.Output) || lenient.IsValue(m.Error),
	})
}

// emitStreamError emits a warning or an error.
func emitStreamError(m *mapper) {
	if m.Severity == "warning" {
		m.putSystem("", envelopes.SystemMessage, m.Message)
		return
	}
	code, _ := core.VendorError(m.Error)
	m.put("", m.Session.ErrorDraft(code, string(m.Message)))
}

// emitResponseDocument emits the one document of a run.
func emitResponseDocument(m *mapper) {
	beginRunUsage(m)
	if strings.TrimSpace(string(m.Response)) != "" {
		m.emitStreamText(string(m.Response), nil)
	} else {
		m.putSystem("", envelopes.Meta, "")
	}
	emitRunEnd(m)
}

// emitRunEnd emits what a run has used, and its failure.
func emitRunEnd(m *mapper) {
	noteStats(m, &m.Stats.Value)
	emitRunUsage(m)
	if !lenient.IsValue(m.Error) {
		return
	}
	code, message := core.VendorError(m.Error)
	if message == "" {
		code, message = "", code
	}
	m.put("", m.Session.ErrorDraft(code, message))
}
