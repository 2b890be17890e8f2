package normalizerstest

import (
	"bytes"
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"tributary/normalizers"
)

// CheckRapid is [CheckLaws] for generated files: it prints the file that breaks a law.
func CheckRapid(t *rapid.T, s Suite, records []normalizers.Framed, whole bool) {
	if broken := violations(s, records, whole); len(broken) > 0 {
		var file strings.Builder
		for _, r := range records {
			fmt.Fprintf(&file, "%s: %s\n", r.Record.Session, Clip(string(r.Record.Data)))
		}
		t.Fatalf("%v\nof the file\n%s", broken[0], Clip(file.String()))
	}
}

// Generated returns the records of up to three concurrent sessions: in one file, or each in its own file if the
// vendor writes one file per session.
func Generated(t *rapid.T, s Suite) []normalizers.Framed {
	if !s.Apart {
		data := bytes.Join(Interleaved(t, s), []byte("\n"))
		return Frame(FileNamed(s.Source, "generated.jsonl"), data)
	}
	var sessions [][]normalizers.Framed
	for i := range rapid.IntRange(1, 3).Draw(t, "sessions") {
		name := fmt.Sprintf("s%d", i+1)
		sessions = append(sessions, Frame(FileNamed(s.Source, name+".jsonl"), bytes.Join(s.Lines(t, name), []byte("\n"))))
	}
	return Mixed(t, sessions)
}

// Interleaved generates the lines of a file to which up to three sessions write.
func Interleaved(t *rapid.T, s Suite) [][]byte {
	var sessions [][][]byte
	for i := range rapid.IntRange(1, 3).Draw(t, "sessions") {
		sessions = append(sessions, s.Lines(t, fmt.Sprintf("s%d", i+1)))
	}
	return Mixed(t, sessions)
}

// Mixed merges lists and keeps the order of each.
func Mixed[T any](t *rapid.T, lists [][]T) []T {
	var out []T
	for len(lists) > 0 {
		i := rapid.IntRange(0, len(lists)-1).Draw(t, "next")
		if len(lists[i]) == 0 {
			lists = append(lists[:i:i], lists[i+1:]...)
			continue
		}
		out = append(out, lists[i][0])
		lists[i] = lists[i][1:]
	}
	return out
}

// Damaged breaks some lines of a file: cut, flipped, doubled, swapped, or with garbage in
// front.
func Damaged(t *rapid.T, lines [][]byte) [][]byte {
	out := append([][]byte(nil), lines...)
	for range rapid.IntRange(1, 6).Draw(t, "damages") {
		if len(out) == 0 {
			return out
		}
		i := rapid.IntRange(0, len(out)-1).Draw(t, "line")
		l := bytes.Clone(out[i])
		switch rapid.IntRange(0, 6).Draw(t, "damage") {
		case 0:
			out[i] = l[:rapid.IntRange(0, len(l)).Draw(t, "cut")]
		case 1:
			if len(l) > 0 {
				l[rapid.IntRange(0, len(l)-1).Draw(t, "at")] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
			}
			out[i] = l
		case 2:
			out = append(out, l)
		case 3:
			j := rapid.IntRange(0, len(out)-1).Draw(t, "with")
			out[i], out[j] = out[j], out[i]
		case 4:
			garbage := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "garbage")
			out = append(out[:i:i], append([][]byte{garbage}, out[i:]...)...)
		case 5:
			if i+1 < len(out) {
				out[i] = append(l, out[i+1]...)
			}
		case 6:
			out[i] = append([]byte("\xef\xbb\xbf \t"), l...)
		}
	}
	return out
}
