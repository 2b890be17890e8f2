// Package geminitest reads and generates logs of Gemini CLI for the tests.
//
// [Suite] is what the tests of all vendors use. The reader is in truth.go, the counts of tokens are in
// ledger.go, the generator is in generate.go.
//
// The invariant: the reader, the ledger and the generator share no code and no table with the
// normalizer, so that a mistake in one of them shows as a difference.
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
