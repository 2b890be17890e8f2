// Package codextest is what the tests know of Codex, independent of the code that they test: an
// own reader of its logs, and a generator of them.
package codextest

import (
	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Codex to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"type":"of_tomorrow","payload":{"x":1}}`,
		`{"type":"event_msg","payload":{"type":"of_tomorrow"}}`,
		`{"type":"response_item","payload":{"type":"of_tomorrow"}}`,
		`{"type":"of_tomorrow","timestamp":"$TIME","payload":{"x":1}}`,
		`{"type":"event_msg","timestamp":"$TIME","payload":{"type":"of_tomorrow"}}`,
		`{"type":"response_item","timestamp":"$TIME","payload":{"type":"of_tomorrow"}}`,
		`{"type":"event_msg","timestamp":"$TIME","payload":{"type":"item_completed","item":{"type":"OfTomorrow","id":"x"}}}`,
		`42`,
	},
	Source:    envelopes.Codex,
	Room:      "codex",
	Folders:   []string{"codex"},
	Lines:     lines,
	Apart:     true,
	Read:      normalizerstest.ReadLines,
	Bad:       normalizerstest.Torn,
	Ledger:    func() normalizerstest.Ledger { return ledger{} },
	Interpret: Interpret,
}
