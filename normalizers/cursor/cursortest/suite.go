// Package cursortest is what the tests know of Cursor, independent of the code that they test: an
// own reader of its logs, and a generator of them.
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
		`42`,
	},
	Source:    envelopes.Cursor,
	Room:      "cursor",
	Folders:   []string{"cursor"},
	Lines:     lines,
	Read:      read,
	Bad:       normalizerstest.TooDeep, // a line that is no JSON is a record
	Ledger:    func() normalizerstest.Ledger { return ledger{} },
	Interpret: interpret,
}
