package opencode

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// knownEvents are the server events that become one meta event. An event that neither is listed here nor has a
// function (events.go, message.go) is counted as unknown (normalizers/README.md, Drift).
var knownEvents = map[lenient.Text]bool{
	"permission.asked": true, "permission.replied": true, "permission.updated": true, "question.asked": true,
	"question.rejected": true, "question.replied": true, "session.compacted": true, "session.deleted": true,
	"command.executed": true, "file.watcher.updated": true,
}

// noteTokens counts unknown members in the token counts of a message.
func (e *emitter) noteTokens(t *tokens) {
	for _, others := range []jsontext.Value{t.Others, t.Cache.Value.Others} {
		e.UnknownMembers(core.UnknownUsage, others)
	}
}

// noteState counts what is unknown in the state of a tool: its status, and the form of its output.
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

// output is the output of a tool: a text.
type output struct {
	lenient.NullText

	form lenient.Text // of a value that is neither text nor null; otherwise empty
}

// ReadJSON implements [lenient.reader].
func (o *output) ReadJSON(c *jsonscan.Scanner) {
	*o = output{}
	if k := c.Kind(); k != '"' && k != 'n' {
		o.form = core.FormOf(k)
	}
	o.NullText.ReadJSON(c)
}
