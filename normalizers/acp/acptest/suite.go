// Package acptest reads and generates logs of agents that speak ACP for the tests.
//
// [Suite] is what the tests of all vendors use. The reader is interpret (truth.go), the rules of valid records
// are in records.go, the generator is in generate.go; ACP states no tokens.
//
// The invariant: the reader, the ledger and the generator share no code and no table with the
// normalizer, so that a mistake in one of them shows as a difference.
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
