package filters

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestEscapesAreSeen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.SampledFrom([]byte(`\\\uu00a`)), 0, 60).Draw(t, "data")
		if has, want := HasASCIIEscape(data), bytes.Contains(data, asciiEscape); has != want {
			t.Fatalf("%q: %v", data, has)
		}
	})
}
