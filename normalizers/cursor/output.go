package cursor

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// input returns the arguments of the tool for a tool_result; nil for none. Only a result whose call has no event
// needs them.
func (t *tool) input() jsontext.Value {
	if !lenient.IsValue(t.args) {
		return nil
	}
	return core.EventRaw(t.args)
}

// output returns the two streams of a command if stderr is not empty (otherwise the text is stdout), and the diff of
// an edit; nil for neither.
func (r *result) output(op envelopes.FileOp) *envelopes.ToolOutput {
	var out envelopes.ToolOutput
	if r.outcome.Stderr != "" {
		out.Stdout, out.Stderr = new(string(r.outcome.Stdout)), new(string(r.outcome.Stderr))
	}
	if r.name == "success" && op == envelopes.OpModify {
		out.Diff = r.outcome.DiffString.Ptr()
	}
	if out == (envelopes.ToolOutput{}) {
		return nil
	}
	return &out
}
