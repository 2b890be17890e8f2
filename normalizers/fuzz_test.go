package normalizers_test

import (
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// fuzzed is the longest input that is fuzzed: longer ones find nothing that these do not.
const fuzzed = 64 << 10

// seed adds the golden files of every source, each after the byte that chooses it.
func seed(f *testing.F, add func(data []byte)) {
	f.Helper()
	for i, s := range suites {
		for _, g := range normalizerstest.Goldens(f, s) {
			add(append([]byte{byte(i)}, g.Raw...))
		}
		for _, b := range s.Bad {
			if len(b) < fuzzed {
				add(append([]byte{byte(i)}, b...))
			}
		}
	}
}

// fuzzSuite is the suite that the first byte of an input chooses.
func fuzzSuite(t *testing.T, data []byte) (normalizerstest.Suite, []byte) {
	t.Helper()
	if len(data) == 0 || len(data) > fuzzed {
		t.Skip("nothing to fuzz")
	}
	return suites[int(data[0])%len(suites)], data[1:]
}

// FuzzNormalize: any bytes, framed and normalized, keep the laws that apply to damaged files,
// and yield no more events than bytes.
//
//	go test ./normalizers -run '^$' -fuzz FuzzNormalize -fuzztime 60s
func FuzzNormalize(f *testing.F) {
	seed(f, func(data []byte) { f.Add(data) })
	f.Fuzz(func(t *testing.T, data []byte) {
		s, data := fuzzSuite(t, data)
		records := normalizerstest.Frame(normalizerstest.FileNamed(s.Source, "fuzzed.jsonl"), data)
		normalizerstest.CheckLaws(t, s, records, false)
		if n := len(normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, records))); n > len(data) {
			t.Errorf("%d events from %d bytes", n, len(data))
		}
	})
}

// FuzzFramer: the records do not depend on how the bytes of a file are split into writes, and
// no byte is lost: each is in a record, or is white space between two records, or is no data
// in a stream of server-sent events.
//
//	go test ./normalizers -run '^$' -fuzz FuzzFramer -fuzztime 60s
func FuzzFramer(f *testing.F) {
	seed(f, func(data []byte) { f.Add(data, uint64(len(data))) })
	f.Fuzz(func(t *testing.T, data []byte, splits uint64) {
		s, data := fuzzSuite(t, data)
		for _, source := range []envelopes.Source{s.Source, ""} {
			file := normalizerstest.FileNamed(source, "fuzzed.jsonl")
			whole := normalizerstest.Frame(file, data)
			normalizerstest.CheckCover(t, data, whole)
			normalizerstest.CheckChain(t, whole)
			if err := normalizerstest.FramedOtherwise(whole, normalizerstest.FrameSplit(file, data, splits)); err != nil {
				t.Errorf("split with %d: %v", splits, err)
			}
		}
	})
}
