package cursor

import (
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Beside a transcript that came first, the rows of a session add what no transcript states: title, thoughts, tokens and
// results. Messages and calls are those of the transcript. Its calls have no ids, so a result is that of the oldest
// call with its arguments, and none if there is no such call.

// maxOpen is how many calls of a transcript are remembered for their results.
const maxOpen = 256

// openCall is a call of a transcript that has no result.
type openCall struct {
	Key core.Fingerprint `json:"k"`
	ID  string           `json:"i"`
}

// hasTranscript reports whether the messages and calls of the session are those of a transcript.
func (s *state) hasTranscript() bool { return s.Form == formTranscript }

// thinks reports whether the thoughts of the session are those of this form: beside a transcript, of the form that has
// one first.
func (s *state) thinks(f form) bool {
	if !s.hasTranscript() {
		return true
	}
	s.Thoughts = cmp.Or(s.Thoughts, f)
	return s.Thoughts == f
}

// awaitResult remembers a call of a transcript.
func (s *state) awaitResult(id string, t tool) {
	if key, ok := argumentsKey(core.ToolOf(t.name), t.args); ok && s.hasTranscript() && len(id) <= core.MaxIdentity {
		s.Open = s.Open.Push(openCall{key, id}, maxOpen, nil)
	}
}

// callOf returns the call of the transcript whose result a row states, the first time; empty for none.
func (s *state) callOf(w *chat.Writer, id lenient.Text, t *formerTool) lenient.Text {
	ids := &w.Session.IDs
	done := core.FingerprintOf("result of a row", string(id))
	if _, again := ids.Get(done); again {
		w.Duplicate = true
		return ""
	}
	of := ""
	if w.Session.HasEvent(string(id)) {
		of = string(id)
	} else if key, ok := argumentsKey(toolOfRow(t.Name), lenient.AppendQuote(nil, string(t.RawArgs))); ok {
		for _, c := range s.Open {
			if c.Key == key {
				of = c.ID
				break
			}
		}
	}
	if of != "" {
		s.Open = s.Open.Without(func(c openCall) bool { return c.ID == of })
		ids.Put(done, core.Fingerprint{})
	}
	return lenient.Text(of)
}

// toolOfRow returns the tool of a name in the database.
func toolOfRow(name lenient.Text) core.Tool {
	if is, ok := rowTools[string(name)]; ok {
		return is
	}
	return core.ToolOf(string(name))
}

// argumentsKey returns what identifies a call by its arguments; false for none, as calls without any are all equal. To
// read a file and to delete it have the same arguments.
func argumentsKey(is core.Tool, arguments jsontext.Value) (key core.Fingerprint, ok bool) {
	deletes := strconv.FormatBool(is.Op == envelopes.OpDelete)
	switch v := parsed(arguments).Clone(); v.Kind() {
	case '"':
		return core.FingerprintOf("text", deletes, lenient.Unquote(v)), true
	case '{':
		ok = len(lenient.ObjectMembers(v)) > 0 && v.Canonicalize() == nil
		return core.FingerprintOf("arguments", deletes, string(v)), ok
	default:
		return core.Fingerprint{}, false
	}
}
