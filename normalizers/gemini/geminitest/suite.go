// Package geminitest is what the tests know of Gemini CLI, independent of the code that they test: an
// own reader of its logs, and a generator of them.
package geminitest

import (
	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Gemini CLI to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"type":"of_tomorrow","id":"of-tomorrow"}`,
		`{"type":"of_tomorrow","session_id":"$SESSION","timestamp":"$TIME","x":1}`,
		`{"type":"of_tomorrow","sessionId":"$SESSION","timestamp":"$TIME","content":"x","tokens":{"input":5,"output":7,"total":12}}`,
		`42`,
	},
	Source:    envelopes.Gemini,
	Room:      "gemini",
	Folders:   []string{"gemini"},
	Lines:     lines,
	Read:      Read,
	Bad:       normalizerstest.Malformed,
	Ledger:    func() normalizerstest.Ledger { return ledger{} },
	Interpret: interpret,
	Raw:       rawOfDocument,
}
