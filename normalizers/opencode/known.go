package opencode

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// knownEvents are the events of the server that are one meta event. What has neither a place
// here nor a function (events.go, message.go) is counted as unknown (normalizers/README.md,
// Drift).
var knownEvents = map[lenient.Text]bool{
	"permission.asked": true, "permission.replied": true, "permission.updated": true, "question.asked": true,
	"question.rejected": true, "question.replied": true, "session.compacted": true, "session.deleted": true,
	"command.executed": true, "file.watcher.updated": true,
}

// noteTokens notes the members of the figures of a message that are not known.
func (e *emitter) noteTokens(t *tokens) {
	for _, others := range []jsontext.Value{t.Others, t.Cache.Value.Others} {
		e.UnknownMembers(core.UnknownUsage, others)
	}
}

// noteState notes the state of a tool that is not known: its status, and the form of its output.
func noteState(c *mapper, s *toolState) {
	switch s.Status {
	case "pending", "running", "completed", "error":
	default:
		c.Unknown(core.UnknownOutput, "status", s.Status)
	}
	if s.Output.form != "" {
		c.Unknown(core.UnknownOutput, s.Output.form)
	}
}

// output is what a tool returned: a text.
type output struct {
	lenient.NullText

	form lenient.Text // of a value that is no text and not null; else empty
}

// ReadJSON implements [lenient.reader].
func (o *output) ReadJSON(c *jsonscan.Scanner) {
	*o = output{}
	if k := c.Kind(); k != '"' && k != 'n' {
		o.form = core.FormOf(k)
	}
	o.NullText.ReadJSON(c)
}
