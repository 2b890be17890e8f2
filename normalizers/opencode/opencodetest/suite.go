// Package opencodetest reads and generates logs of OpenCode for the tests.
//
// [Suite] is what the tests of all vendors use. The reader and the counts of tokens are in truth.go, the
// generator is in generate.go.
//
// The invariant: the reader, the ledger and the generator share no code and no table with the
// normalizer, so that a mistake in one of them shows as a difference.
package opencodetest

import (
	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite holds OpenCode to the laws of all vendors. From the corpus it reads the folders that contain only exports,
// runs, messages and recordings, not a database or the files of its parts.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"type":"of.tomorrow","properties":{"x":1}}`,
		`{"type":"of.tomorrow","sessionID":"$SESSION","timestamp":"$MILLIS","properties":{"sessionID":"$SESSION","delta":"x"}}`,
		`{"type":"of_tomorrow","sessionID":"$SESSION","timestamp":"$MILLIS","part":{"type":"of-tomorrow","sessionID":"$SESSION","messageID":"m"}}`,
		`42`,
	},
	Source: envelopes.OpenCode,
	Room:   "opencode",
	Folders: []string{
		"opencode/The-Best-Codes__bestcodes.dev", "opencode/andrei-shtanakov__maestro", "opencode/eitatech__gatomia-vscode",
		"opencode/nivalis-studio__biome-config", "opencode/rizias__delegator", "opencode/savekirk__session-bridge",
		"opencode/snf__takopi-opencode", "opencode/sudo-tee__opencode.nvim",
	},
	Lines:     lines,
	Read:      read,
	Bad:       normalizerstest.Malformed,
	Ledger:    func() normalizerstest.Ledger { return ledger{} },
	Interpret: interpret,
	ResumeID:  resumeID,
	VCS:       normalizerstest.LastVCS(vcs),
	Raw:       rawOfDocument,
}
