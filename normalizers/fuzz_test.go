package normalizers_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
)

// fuzzed is the longest input that is fuzzed: longer ones find nothing that these do not.
const fuzzed = 64 << 10

// seed adds the golden files of every source, each after the byte that chooses it.
func seed(f *testing.F, add func(data []byte)) {
	f.Helper()
	for i, s := range suites {
		for _, g := range goldens(f, s.source) {
			add(append([]byte{byte(i)}, g.raw...))
		}
		for _, b := range s.bad {
			if len(b) < fuzzed {
				add(append([]byte{byte(i)}, b...))
			}
		}
	}
}

// fuzzSuite is the suite that the first byte of an input chooses.
func fuzzSuite(t *testing.T, data []byte) (suite, []byte) {
	t.Helper()
	if len(data) == 0 || len(data) > fuzzed {
		t.Skip("nothing to fuzz")
	}
	return suites[int(data[0])%len(suites)], data[1:]
}

// FuzzNormalize: any bytes, framed and normalized, keep the laws that hold whatever
// comes, and yield no more than they are.
//
//	go test ./normalizers -run '^$' -fuzz FuzzNormalize -fuzztime 60s
func FuzzNormalize(f *testing.F) {
	seed(f, func(data []byte) { f.Add(data) })
	f.Fuzz(func(t *testing.T, data []byte) {
		s, data := fuzzSuite(t, data)
		records := frame(fileNamed(s.source, "fuzzed.jsonl"), data)
		checkLaws(t, s, records, false)
		if n := len(events(fold(normalizers.Normalize, records))); n > len(data) {
			t.Errorf("%d events from %d bytes", n, len(data))
		}
	})
}

// FuzzFramer: however the bytes of a file are split into writes, the records are the
// same; and no byte is lost: each is in a record, or is white space between two records,
// or of a stream of server-sent events no data.
//
//	go test ./normalizers -run '^$' -fuzz FuzzFramer -fuzztime 60s
func FuzzFramer(f *testing.F) {
	seed(f, func(data []byte) { f.Add(data, uint64(len(data))) })
	f.Fuzz(func(t *testing.T, data []byte, splits uint64) {
		s, data := fuzzSuite(t, data)
		for _, source := range []envelopes.Source{s.source, ""} {
			file := fileNamed(source, "fuzzed.jsonl")
			whole := frame(file, data)
			checkCover(t, data, whole)
			checkChain(t, whole)
			if err := framedOtherwise(whole, frameSplit(file, data, splits)); err != nil {
				t.Errorf("split with %d: %v", splits, err)
			}
		}
	})
}

// frameSplit frames a file that comes in pieces, taking what is ready after each.
func frameSplit(file normalizers.File, data []byte, splits uint64) []normalizers.Framed {
	random := rand.New(rand.NewPCG(splits, 1))
	f := normalizers.NewFramer(file)
	var out []normalizers.Framed
	for len(data) > 0 {
		n := 1 + random.IntN(1+random.IntN(len(data)))
		piece := bytes.Clone(data[:n])
		_, _ = f.Write(piece) // never fails by contract
		clear(piece)          // nor is what it was given retained
		data = data[n:]
		out = append(out, drain(f)...)
	}
	f.Close()
	return append(out, drain(f)...)
}

// checkCover: each byte of a file is in exactly one record, or between two.
func checkCover(t *testing.T, data []byte, records []normalizers.Framed) {
	t.Helper()
	if len(records) > 0 {
		before := data[:records[0].Record.Origin.Position]
		if bytes.HasPrefix(bytes.TrimPrefix(before[bytes.LastIndexByte(before, '\n')+1:], []byte("\xef\xbb\xbf")), []byte("data:")) {
			checkEventPositions(t, data, records) // of server-sent events only the data is in records
			return
		}
	}
	at := int64(0)
	separators := " \t\r\n"
	for _, r := range records {
		if r.Record.Origin.Digest != "" {
			separators = " \t\r\n[,]" // the elements of a list may be records
		}
	}
	between := func(to int64) {
		if to < at || to > int64(len(data)) {
			t.Fatalf("a record from byte %d to %d, after one up to %d of %d", at, to, at, len(data))
		}
		gap := data[at:to]
		if at == 0 {
			gap = bytes.TrimPrefix(gap, []byte("\xef\xbb\xbf"))
		}
		if len(bytes.Trim(gap, separators)) > 0 {
			t.Fatalf("bytes %d to %d are in no record: %q", at, to, gap)
		}
		at = to
	}
	for i, r := range records {
		if r.Record.Origin.End {
			continue
		}
		between(r.Record.Origin.Position)
		if r.Err == nil {
			end := at + int64(len(r.Record.Data))
			if end > int64(len(data)) || !bytes.Equal(data[at:end], r.Record.Data) {
				t.Fatalf("record %d is not what stands at byte %d: %q", i+1, at, r.Record.Data)
			}
			if want := 1 + bytes.Count(data[:at], []byte("\n")); r.Line != want {
				t.Fatalf("record %d: line %d, want %d", i+1, r.Line, want)
			}
			if len(r.Record.Data) == 0 {
				t.Fatalf("record %d is empty", i+1)
			}
			at = end
		}
		if r.End < at {
			t.Fatalf("record %d ends at %d, its data at %d", i+1, r.End, at)
		}
		between(r.End)
	}
	between(int64(len(data)))
}

// checkChain: every record has what a producer must state of it.
func checkChain(t *testing.T, records []normalizers.Framed) {
	t.Helper()
	last := make(map[string]int64)
	ended := make(map[string]bool)
	for i, r := range records {
		o := r.Record.Origin
		if o.End {
			if ended[r.Record.Session] {
				t.Errorf("session %q ends twice", r.Record.Session)
			}
			ended[r.Record.Session] = true
			continue
		}
		if len(ended) > 0 {
			t.Errorf("record %d comes after the end", i+1)
		}
		if r.Record.Source == "" {
			continue // nobody could tell: the caller says so
		}
		if r.Record.Session == "" || o.File == "" || o.Time.IsZero() {
			t.Errorf("record %d: session %q, file %q, time %v", i+1, r.Record.Session, o.File, o.Time)
		}
		// The previous record of the session, or an earlier one where that cannot be read.
		before, ok := last[r.Record.Session]
		if !ok {
			before = -1
		}
		if o.Previous > before || o.Previous >= o.Position {
			t.Errorf("record %d at %d: previous %d, want at most %d", i+1, o.Position, o.Previous, before)
		}
		last[r.Record.Session] = o.Position
	}
	for session := range last {
		if !ended[session] {
			t.Errorf("session %q has no end", session)
		}
	}
}
