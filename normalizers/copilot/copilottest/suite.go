// Package copilottest is what the tests know of Copilot CLI, independent of the code that they test: an
// own reader of its logs, and a generator of them.
package copilottest

import (
	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Copilot CLI to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Source:    envelopes.Copilot,
	Room:      "copilot",
	Folders:   []string{"copilot"},
	Lines:     Lines,
	Read:      Read,
	Bad:       normalizerstest.TooDeep, // a line that is no JSON is a line of plain text
	Ledger:    func() normalizerstest.Ledger { return Ledger{} },
	Interpret: Interpret,
	Raw: func(record, raw []byte) (ok, known bool) {
		known = raw != nil && isRaw(record, raw)
		return known, known
	},
}
