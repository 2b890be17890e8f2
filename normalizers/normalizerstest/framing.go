package normalizerstest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"tributary/normalizers"
)

// CheckEventPositions checks that each record begins at its position and on its line, and ends between its last byte
// and the next record.
func CheckEventPositions(t *testing.T, data []byte, records []normalizers.Framed) {
	t.Helper()
	last := int64(0)
	lines := lineCounter(data)
	for i, r := range records {
		if r.Record.Origin.End {
			continue
		}
		at := r.Record.Origin.Position
		first, _, _ := bytes.Cut(r.Record.Data, []byte("\n"))
		if at < last || !bytes.HasPrefix(data[at:], first) {
			t.Fatalf("record %d is not at byte %d: %q", i+1, at, first)
		}
		if want := lines(at); r.Line != want {
			t.Errorf("record %d: line %d, want %d", i+1, r.Line, want)
		}
		if last = r.End; last < at+int64(len(r.Record.Data)) || last > int64(len(data)) {
			t.Errorf("record %d at %d of %d bytes ends at %d", i+1, at, len(r.Record.Data), last)
		}
	}
}

// lineCounter returns a function that returns the line of a position; positions ascend.
func lineCounter(data []byte) func(position int64) int {
	line, from := 1, int64(0)
	return func(position int64) int {
		line += bytes.Count(data[from:position], []byte("\n"))
		from = position
		return line
	}
}

// FramedOtherwise returns the first difference between the records of a file that was written at once and of the same
// file written in several parts.
func FramedOtherwise(whole, split []normalizers.Framed) error {
	for i := range max(len(whole), len(split)) {
		if i < len(whole) && i < len(split) && reflect.DeepEqual(whole[i], split[i]) {
			continue // the same without their texts
		}
		var a, b string
		if i < len(whole) {
			a = describe(whole[i])
		}
		if i < len(split) {
			b = describe(split[i])
		}
		if a != b {
			return fmt.Errorf("record %d of %d in parts:\n%s\nas a whole, of %d:\n%s", i+1, len(split), Clip(b), len(whole), Clip(a))
		}
	}
	return nil
}

// describe prints everything that a framer states about a record.
func describe(r normalizers.Framed) string {
	return fmt.Sprintf("line %d, %s of %q, sequence %d, %+v, up to %d, error %v: %q", r.Line, r.Record.Source, r.Record.Session,
		r.Record.Sequence, r.Record.Origin, r.End, r.Err, r.Record.Data)
}

// Summary describes a framed record in short, for tables.
func Summary(r normalizers.Framed) string {
	if r.Record.Origin.End {
		return r.Record.Session + " end"
	}
	if r.Err != nil {
		return fmt.Sprintf("%d error", r.Line)
	}
	return fmt.Sprintf("%d %s %s", r.Line, r.Record.Session, r.Record.Data)
}

// FrameSplit frames a file that is written in several parts, and takes the records after each part.
func FrameSplit(file normalizers.File, data []byte, splits uint64) []normalizers.Framed {
	random := rand.New(rand.NewPCG(splits, 1))
	f := normalizers.NewFramer(file)
	var out []normalizers.Framed
	for len(data) > 0 {
		n := 1 + random.IntN(1+random.IntN(len(data)))
		part := bytes.Clone(data[:n])
		_, _ = f.Write(part) // never fails by contract
		clear(part)          // the framer must not keep its input
		data = data[n:]
		out = append(out, Drain(f)...)
	}
	f.Close()
	return append(out, Drain(f)...)
}

// CheckCover checks that each byte of a file is in exactly one record or between two.
func CheckCover(t *testing.T, data []byte, records []normalizers.Framed) {
	t.Helper()
	if len(records) > 0 {
		before := data[:records[0].Record.Origin.Position]
		if bytes.HasPrefix(bytes.TrimPrefix(before[bytes.LastIndexByte(before, '\n')+1:], []byte("\xef\xbb\xbf")), []byte("data:")) {
			CheckEventPositions(t, data, records) // of server-sent events only the data is in records
			return
		}
	}
	at := int64(0)
	lines := lineCounter(data)
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
			if want := lines(at); r.Line != want {
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

// CheckChain checks that every record has what a producer must state about it.
func CheckChain(t *testing.T, records []normalizers.Framed) {
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
			continue // unknown vendor: the caller reports it
		}
		if r.Record.Session == "" || o.File == "" || o.Time.IsZero() {
			t.Errorf("record %d: session %q, file %q, time %v", i+1, r.Record.Session, o.File, o.Time)
		}
		// The previous record of the session, or an earlier one if that cannot be read.
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
