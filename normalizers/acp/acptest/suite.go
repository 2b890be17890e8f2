// Package acptest is what the tests know of agents that speak ACP, independent of the code that they test: an
// own reader of its logs, and a generator of them.
package acptest

import (
	"slices"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes agents that speak ACP to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"type":"of.tomorrow","x":1}`,
		`{"type":"of.tomorrow","session_id":"$SESSION","timestamp":"$TIME"}`,
	},
	Source:    envelopes.ACP,
	Room:      "acp",
	Folders:   []string{"acp"},
	Lines:     lines,
	Apart:     true,
	Modelled:  true,
	Tokenless: true,
	OneThread: true,
	Read:      readFile,
	Bad:       append(slices.Clone(normalizerstest.Malformed), invalid...),
	Ledger:    func() normalizerstest.Ledger { return ledger{} },
	Interpret: interpret,
}
