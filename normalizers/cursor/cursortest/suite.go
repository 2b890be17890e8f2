// Package cursortest reads and generates logs of Cursor for the tests.
//
// [Suite] is what the tests of all vendors use. The reader and the counts of tokens are in truth.go and, for rows of the
// database, rows.go; the generator is in generate.go.
//
// The invariant: the reader, the ledger and the generator share no code and no table with the
// normalizer, so that a mistake in one of them shows as a difference.
package cursortest

import (
	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Cursor to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"type":"of_tomorrow","x":1}`,
		`{"type":"of_tomorrow","subtype":"completed","session_id":"$SESSION","timestamp_ms":"$MILLIS","text":"x"}`,
		`{"type":"of_tomorrow","session_id":"$SESSION","timestamp":"$TIME","call_id":"c1"}`,
		`{"table":"cursorDiskKV","row":{"key":"bubbleId:$SESSION:b1","value":{"type":9,"text":"x","createdAt":"$TIME"}}}`,
		`{"table":"of_tomorrow","row":{"key":"composerData:$SESSION","value":{"name":"x"}}}`,
		`42`,
	},
	Source:    envelopes.Cursor,
	Room:      "cursor",
	Folders:   []string{"cursor"},
	Lines:     lines,
	Read:      read,
	Bad:       normalizerstest.TooDeep, // a line that is not JSON is a record
	Ledger:    newLedger,
	Interpret: interpret,
	VCS:       vcs,
}

// Subagents is Suite for a file in a folder of the transcripts of subagents.
var Subagents = func() normalizerstest.Suite {
	s := Suite
	s.Interpret = func(name string, lines []normalizerstest.Line) normalizerstest.Account {
		return interpretIn(true, name, lines)
	}
	return s
}()
