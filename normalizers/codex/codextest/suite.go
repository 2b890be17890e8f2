// Package codextest reads and generates logs of Codex for the tests.
//
// [Suite] is what the tests of all vendors use. The reader is [Interpret] (truth.go): what a rollout says is in
// sayings.go, its tools are in tools.go, copied history is in copies.go, the counts of tokens are
// in ledger.go. The generator is in generate.go.
//
// The invariant: the reader, the ledger and the generator share no code and no table with the
// normalizer, so that a mistake in one of them shows as a difference.
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
	Read:      readLines,
	Bad:       normalizerstest.Torn,
	Ledger:    func() normalizerstest.Ledger { return ledger{} },
	Interpret: Interpret,
	VCS:       vcs,
}
