package gemini

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// wireStream are the members of what Gemini CLI writes to standard output when a program
// runs it: lines (--output-format stream-json), or one document (--output-format json).
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

// deltas is a text of the stream that is being joined.
type deltas struct {
	From core.Pending `json:"from,omitzero"` // the last delta
	Text string       `json:"w,omitzero"`
}

// isStream reports whether the record is of one of the two outputs.
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

// emitStream emits a line of the stream, or the one document. Any line but an answer of the
// model ends the deltas before it.
func (m *mapper) emitStream() {
	m.noteParts(core.UnknownBlock, &m.Content)
	if m.Type == "message" && m.Role != "user" {
		m.emitAnswer()
		return
	}
	m.flush()
	switch m.Type {
	case "init":
		m.Session.SetModel(string(m.Model))
		m.beginRunUsage()
		m.emitSystem("", envelopes.Meta, "")
	case "message":
		m.emitStreamPrompt()
	case "tool_use":
		m.emitCall(m.ToolID, m.ToolName, m.Parameters, "", lenient.Text(m.Session.Model))
	case "tool_result":
		m.emitStreamResult()
	case "error":
		m.emitStreamError()
	case "result":
		m.emitSystem("", envelopes.SessionSummary, "")
		m.emitRunEnd()
	default:
		m.emitResponseDocument()
	}
}

// emitAnswer emits what the model says as a whole, or joins a delta of it.
func (m *mapper) emitAnswer() {
	text := m.Content.text()
	if m.Delta {
		m.joinDelta(text)
		return
	}
	if m.st.Deltas.Text == text {
		m.st.Deltas = deltas{} // the whole of them
	}
	m.flush()
	if strings.TrimSpace(text) == "" {
		m.skip = core.SkipEmpty
		return
	}
	m.emitStreamText(text, nil)
}

// joinDelta joins a delta to those before it. When they are too long to be remembered, the
// text goes on in another event.
func (m *mapper) joinDelta(text string) {
	joined := m.st.Deltas.Text + text
	if !core.FitsDelta(joined) {
		m.flush()
		joined = text
	}
	if !core.FitsDelta(joined) {
		m.emitStreamText(joined, nil)
		return
	}
	m.st.Deltas = deltas{From: m.PendingRecord(), Text: joined}
	m.skip = core.SkipProgress
}

// flush emits the deltas that are pending, as one event of the last of them.
func (m *mapper) flush() {
	is := m.st.Deltas
	m.st.Deltas = deltas{}
	if strings.TrimSpace(is.Text) != "" {
		m.emitStreamText(is.Text, &is.From)
	}
}

// emitStreamText emits an answer of the model; from is its record, nil for the current one.
func (m *mapper) emitStreamText(text string, from *core.Pending) {
	d := core.Draft{OnChannel: envelopes.ChannelChat, From: from}
	d.EventType, d.Text, d.Model = envelopes.AssistantMessage, &text, lenient.Text(m.Session.Model).Ptr()
	m.emit("", d)
}

// emitStreamPrompt emits the prompt of a run.
func (m *mapper) emitStreamPrompt() {
	kind, text := speechOf(m.Content.prompt())
	if strings.TrimSpace(text) == "" {
		m.skip = core.SkipEmpty
		return
	}
	m.emit("", core.DraftOf(kind, text))
}

// emitStreamResult emits the result of a tool.
func (m *mapper) emitStreamResult() {
	if m.Status != "" && statusOf(m.Status) == "" {
		m.Unknown(core.UnknownOutput, "status", m.Status)
	}
	code, message := core.VendorError(m.Error)
	output := cmp.Or(textOf(m.Output), message, code)
	m.emitResult(resultID(m.ToolID), m.ToolID, result{
		status:  m.Status,
		output:  output,
		display: output,
		failed:  lenient.IsValue(m.Error),
		present: lenient.IsValue(m.Output) || lenient.IsValue(m.Error),
	})
}

// emitStreamError emits a warning or an error.
func (m *mapper) emitStreamError() {
	if m.Severity == "warning" {
		m.emitSystem("", envelopes.SystemMessage, m.Message)
		return
	}
	code, _ := core.VendorError(m.Error)
	m.emit("", m.Session.ErrorDraft(code, string(m.Message)))
}

// emitResponseDocument emits the one document of a run.
func (m *mapper) emitResponseDocument() {
	m.beginRunUsage()
	if strings.TrimSpace(string(m.Response)) != "" {
		m.emitStreamText(string(m.Response), nil)
	} else {
		m.emitSystem("", envelopes.Meta, "")
	}
	m.emitRunEnd()
}

// emitRunEnd emits what a run has used, and its failure.
func (m *mapper) emitRunEnd() {
	m.noteStats(&m.Stats.Value)
	m.emitRunUsage()
	if !lenient.IsValue(m.Error) {
		return
	}
	code, message := core.VendorError(m.Error)
	if message == "" {
		code, message = "", code
	}
	m.emit("", m.Session.ErrorDraft(code, message))
}
