package codextest

import (
	"bytes"
	"slices"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// readLines cuts a log into records. In the output of codex exec --json a line of text is a record, too: any line
// that is not JSON and does not begin like a record. Before the first record it must not end like one, either,
// unless it only closes what lines before it have opened.
func readLines(data []byte) []normalizerstest.Line {
	lines := normalizerstest.ReadLines(data)
	first := slices.IndexFunc(lines, func(l normalizerstest.Line) bool {
		v := normalizerstest.Parse(l.Data)
		kind, _, dotted := strings.Cut(normalizerstest.Member[string](v, "type"), ".")
		return !l.Bad && normalizerstest.Member[any](v, "payload") == nil && (dotted && slices.Contains([]string{"thread", "turn", "item"}, kind) || kind == "error")
	})
	if first < 0 {
		return lines
	}
	for i := range lines {
		l := &lines[i]
		isText := l.Data[0] != '{' && (l.Data[0] != '[' || bytes.IndexByte(l.Data, ']') > 0) && bytes.IndexByte(l.Data, 0) < 0
		if i < first {
			closes := !bytes.ContainsFunc(l.Data, func(r rune) bool { return !strings.ContainsRune(" \t},]", r) })
			isText = isText && (closes || l.Data[len(l.Data)-1] != '}')
		}
		l.Bad = l.Bad && !isText
	}
	return lines
}
