package core

import "tributary/normalizers/lenient"

// maxDelta is how many bytes of a text that is being joined a session keeps. A longer text continues in another
// event.
const maxDelta = 48 << 10

// FitsDelta reports whether a session may keep a text that is being joined.
func FitsDelta(s string) bool { return FitsJSON(s, maxDelta) }

// FitsJSON reports whether a text takes at most limit bytes in JSON, without its quotes. A byte takes at most six, so
// most texts need not be encoded to be measured.
func FitsJSON(s string, limit int) bool {
	return 6*len(s) <= limit || len(s) <= limit && lenient.QuotedLen(s) <= limit
}
