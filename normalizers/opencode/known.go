package opencode

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What is known beside the types that a function is for (events.go, messages.go): whatever
// stands neither there nor here is counted as unknown (normalizers/README.md, Drift).
var (
	// knownEvents are the events of the server that are one meta event.
	knownEvents = map[lenient.Text]bool{
		"permission.asked": true, "permission.replied": true, "permission.updated": true, "question.asked": true,
		"question.rejected": true, "question.replied": true, "session.compacted": true, "session.deleted": true,
		"command.executed": true, "file.watcher.updated": true, "vcs.branch.updated": true,
	}
	// knownParts are the types of parts in which nobody speaks.
	knownParts = map[lenient.Text]bool{"subtask": true, "agent": true, "compaction": true, "snapshot": true}
)

// noteTokens notes the members of the figures of a message that are not known.
func (c *mapper) noteTokens(t *tokens) {
	for _, others := range []jsontext.Value{t.Others, t.Cache.Value.Others} {
		c.UnknownMembers(core.UnknownUsage, others)
	}
}

// noteState notes the state of a tool that is not known: its status, and the form of its output.
func (c *mapper) noteState(s *toolState) {
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

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (o *output) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*o = output{}
	if k := dec.PeekKind(); k != '"' && k != 'n' {
		o.form = core.FormOf(k)
	}
	return o.NullText.UnmarshalJSONFrom(dec)
}
