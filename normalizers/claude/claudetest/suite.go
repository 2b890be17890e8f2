// Package claudetest reads and generates logs of Claude Code for the tests.
//
// [Suite] is what the tests of all vendors use. The reader is interpret (truth.go), the counts of tokens are
// in ledger.go, the generator is in generate.go, cases of tools are in toolcase.go.
//
// The invariant: the reader, the ledger and the generator share no code and no table with the
// normalizer, so that a mistake in one of them shows as a difference.
package claudetest

import (
	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Claude Code to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"type":"of-tomorrow","x":1}`,
		`{"type":"of-tomorrow","message":"x","uuid":null,"subtype":"init","operation":"popAll","delta":{}}`,
		`{"type":"of-tomorrow","sessionId":"$SESSION","timestamp":"$TIME","isSidechain":true,"content":"x","event":{"type":"message_stop"}}`,
		`{"type":"of-tomorrow","session_id":"$SESSION","timestamp":"$TIME","parent_tool_use_id":"toolu_task_1","usage":{"input_tokens":5,"output_tokens":7}}`,
		`42`,
		`{"type":"system","subtype":"of_tomorrow"}`,
	},
	Source:    envelopes.ClaudeCode,
	Room:      "claude",
	Folders:   []string{"claude_code", "claude_sdk"},
	Lines:     lines,
	Read:      normalizerstest.ReadLines,
	Bad:       normalizerstest.Malformed,
	Ledger:    func() normalizerstest.Ledger { return ledger{} },
	Interpret: interpret,
	Facts:     facts,
	FactNames: factNames,
	VCS:       normalizerstest.LastVCS(vcs),
}
