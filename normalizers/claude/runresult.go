package claude

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// runResult emits the last record of a run of the SDK: a summary, and an error if the run failed. The event carries
// the tokens that the run used beyond those of its calls, and the numbers of the record in its metadata.
func runResult(c *mapper) {
	c.flushPartials(nil)
	text, failed := c.outcome()
	d := core.SystemDraft(envelopes.SessionSummary, "")
	d.Identity = string(c.Record.Data)
	if !failed {
		d.Text = lenient.Text(text).Ptr()
	}
	d.Metadata = c.Session.MetadataWith(map[string]jsontext.Value{
		"subtype":           quote(c.Subtype),
		"durationMs":        c.DurationMS,
		"durationApiMs":     c.DurationAPIMS,
		"numTurns":          c.NumTurns,
		"totalCostUsd":      c.TotalCostUSD,
		"usage":             c.Usage,
		"modelUsage":        c.ModelUsage,
		"permissionDenials": c.PermissionDenials,
		"stopReason":        c.StopReason,
		"structuredOutput":  c.StructuredOutput,
	})
	if !c.put(c.UUID, d) {
		return
	}
	if c.st.Runs.LastText == core.PromptKey(text) {
		// A record of its own has emitted the text. The text counts for the identity of the event, so it is only
		// removed now.
		c.Events[len(c.Events)-1].Event.Text = nil
	}
	addRunUsage(c)
	c.st.Runs.end()
	if failed {
		code := "TASK_ERROR"
		if c.Subtype != "" && c.Subtype != "success" {
			code = string(c.Subtype)
		}
		c.putError(withSuffix(c.UUID, "#error"), code, text, text)
	}
}

// addRunUsage adds the tokens of the run that no call has stated to the event of its result.
func addRunUsage(c *mapper) {
	var figures usage
	lenient.ReadObject(c.Usage, &figures)
	c.noteUsage(&figures)
	r, models := &c.st.Runs, readModelUsage(lenient.ObjectMembers(c.ModelUsage))
	used := figures.consumption()
	model := r.modelOfResult(used, models)
	increment := r.addResult(used, models)
	if increment == nil {
		return
	}
	set := vendorFigures(increment, figures.OutputDetails.Value.Thinking.OK)
	c.AddUsage(increment, func(e *envelopes.AgentEventV1) {
		set(e)
		e.Model = model.Ptr()
	})
}

// outcome returns the final text of a run, and whether the run failed. The flag decides, because the subtype is
// "success" even if nobody was logged in. A subtype that names an error decides too, because some versions then leave
// the flag false.
func (r *wireRecord) outcome() (text string, failed bool) {
	failed = bool(r.IsErrorSnake) || bool(r.IsErrorCamel) || strings.HasPrefix(string(r.Subtype), "error")
	if text = resultText(r.Result); text == "" {
		text = string(joinLines(r.Errors...))
	}
	return text, failed
}

// resultText returns the text of a result: a string, or an object with an error.
func resultText(v jsontext.Value) string {
	if v.Kind() == '"' {
		return lenient.Unquote(v)
	}
	if _, message := core.VendorError(v); message != "" {
		return message
	}
	var result struct {
		Error lenient.Text `json:"error"`
	}
	lenient.ReadObject(v, &result)
	return string(result.Error)
}
