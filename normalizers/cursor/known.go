package cursor

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What is not known of a result is counted (normalizers/README.md, Drift). Of records and blocks
// it is what dispatch and emitMessage have no case for.

// noteOutput notes the form of a result that is not known: an object without a key that names
// an outcome, or a number.
func noteOutput(m *mapper, r *result) {
	switch v := r.value; {
	case r.name != "", !lenient.IsValue(v), v.Kind() == '"':
	case v.Kind() == '{' && (len(lenient.Members(v)) == 0 || r.isKnownOutcome()):
	default:
		m.Unknown(core.UnknownOutput, core.OutputForm(v))
	}
}

// isKnownOutcome reports whether a result that names no outcome has its members itself.
func (r *result) isKnownOutcome() bool {
	o := &r.outcome
	return o.Stdout+o.Stderr+o.Output+o.Interleaved+o.DiffString+o.Diff+o.Message+o.ErrorMessage+o.Reason != "" ||
		lenient.IsValue(o.Content) || lenient.IsValue(o.Error) || o.ExitCode.OK || o.ExitCodeSnake.OK ||
		hasMember(r.value, "stdout") || hasMember(r.value, "stderr") || hasMember(r.value, "success")
}

// noteBlocks notes the blocks of a result in a transcript that are not known.
func noteBlocks(m *mapper, content jsontext.Value) {
	for _, b := range readBlocks(content) {
		if b.Type != "text" && b.Type != "image" {
			m.Unknown(core.UnknownOutput, b.Type)
		}
	}
	if k := content.Kind(); k == '0' || k == 't' || k == 'f' {
		m.Unknown(core.UnknownOutput, core.OutputForm(content))
	}
}
