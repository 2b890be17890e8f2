package cursor

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Unknown parts of a result are counted (normalizers/README.md, Drift). Unknown records and blocks are those for
// which dispatch and emitMessage have no case.

// noteOutput counts an unknown form of a result: an object without a key for an outcome, or a number.
func noteOutput(m *mapper, r *result) {
	switch v := r.value; {
	case r.name != "", !lenient.IsValue(v), v.Kind() == '"':
	case v.Kind() == '{' && (len(lenient.Members(v)) == 0 || r.isKnownOutcome()):
	default:
		m.Unknown(core.UnknownOutput, core.OutputForm(v))
	}
}

// isKnownOutcome reports whether a result without a named outcome has the members of one.
func (r *result) isKnownOutcome() bool {
	o := &r.outcome
	return o.Stdout+o.Stderr+o.Output+o.Interleaved+o.DiffString+o.Diff+o.Message+o.ErrorMessage+o.Reason != "" ||
		lenient.IsValue(o.Content) || lenient.IsValue(o.Error) || o.ExitCode.OK || o.ExitCodeSnake.OK ||
		hasMember(r.value, "stdout") || hasMember(r.value, "stderr") || hasMember(r.value, "success")
}

// noteBlocks counts unknown blocks of a result in a transcript.
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
