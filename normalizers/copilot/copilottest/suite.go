// Package copilottest reads and generates logs of Copilot CLI for the tests.
//
// [Suite] is what the tests of all vendors use. The reader is interpret (truth.go), the counts of tokens are
// in ledger.go, the generator is in generate.go.
//
// The invariant: the reader, the ledger and the generator share no code and no table with the
// normalizer, so that a mistake in one of them shows as a difference.
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
		`{"resourceSpans":[{"scopeSpans":[{"scope":{"name":"github.copilot"},"spans":[{"name":"x","attributes":[{"key":"gen_ai.operation.name","value":{"stringValue":"of_tomorrow"}},{"key":"gen_ai.conversation.id","value":{"stringValue":"$SESSION"}}]}]}]}]}`,
		`42`,
	},
	Source:    envelopes.Copilot,
	Room:      "copilot",
	Folders:   []string{"copilot"},
	Lines:     lines,
	Read:      read,
	Bad:       normalizerstest.TooDeep, // a line that is not JSON is plain text
	Ledger:    func() normalizerstest.Ledger { return ledger{} },
	Interpret: interpret,
	VCS:       vcs,
	Raw:       rawOf,
}
