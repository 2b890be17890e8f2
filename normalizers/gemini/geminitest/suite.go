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
	},
	Source:    envelopes.Gemini,
	Room:      "gemini",
	Folders:   []string{"gemini"},
	Lines:     Lines,
	Read:      Read,
	Bad:       normalizerstest.Malformed,
	Ledger:    func() normalizerstest.Ledger { return Ledger{} },
	Interpret: Interpret,
	Raw:       rawOfDocument,
}
