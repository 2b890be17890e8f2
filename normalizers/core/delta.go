package core

import "tributary/normalizers/lenient"

// MaxDelta is how many bytes of a text that is being joined a session keeps; beyond it
// the text goes on in another event.
const MaxDelta = 48 << 10

// FitsDelta reports whether a session may keep a text that is being joined. In JSON a
// byte takes at most six, so that most texts need not be encoded to be measured.
func FitsDelta(s string) bool {
	return 6*len(s) <= MaxDelta || len(s) <= MaxDelta && len(lenient.AppendQuote(nil, s)) <= MaxDelta
}
