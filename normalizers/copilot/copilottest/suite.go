// Package copilottest is what the tests know of Copilot CLI, independent of the code that they test: an
// own reader of its logs, and a generator of them.
package copilottest

import (
	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Copilot CLI to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"type":"hologram.of_tomorrow","data":{"x":1}}`,
		`{"type":"session.of_tomorrow","data":{"messageId":"m1","content":"x"},"id":"of-tomorrow","timestamp":"$TIME","parentId":null}`,
		`{"type":"assistant.of_tomorrow","sessionId":"$SESSION","agentId":"c1","data":{"model":"x","usage":{"outputTokens":7}},"timestamp":"$TIME"}`,
		`{"of_tomorrow":1}`,
		`42`,
	},
	Source:    envelopes.Copilot,
	Room:      "copilot",
	Folders:   []string{"copilot"},
	Lines:     lines,
	Read:      read,
	Bad:       normalizerstest.TooDeep, // a line that is no JSON is a line of plain text
	Ledger:    func() normalizerstest.Ledger { return ledger{} },
	Interpret: interpret,
	Raw: func(record, raw []byte) (ok, known bool) {
		known = raw != nil && isRaw(record, raw)
		return known, known
	},
}
