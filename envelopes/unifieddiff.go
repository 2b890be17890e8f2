package envelopes

import (
	"fmt"
	"strings"
)

// replacement is one edit of which only the texts are known, not their place.
type replacement struct{ before, after string }

// diffOf is a unified diff of replacements in the file at path. Every hunk is at line 1
// and has no context: the vendor does not tell where the texts stand (seed
// standardized-metadata).
func diffOf(path string, edits ...replacement) string {
	hunks := make([]string, len(edits))
	for i, e := range edits {
		hunks[i] = hunkOf(diffLines(e.before), diffLines(e.after))
	}
	return joinDiff(path, path, hunks)
}

// noFile is the side of a diff on which there is no file.
const noFile = "/dev/null"

// joinDiff puts the header of a file, by its path before and after, in front of hunks;
// empty when there are none.
func joinDiff(before, after string, hunks []string) string {
	if len(hunks) == 0 {
		return ""
	}
	if before != noFile {
		before = "a/" + strings.TrimPrefix(before, "/")
	}
	return "--- " + before + "\n+++ b/" + strings.TrimPrefix(after, "/") + "\n" + strings.Join(hunks, "\n")
}

// diffLines are the lines of a text; the empty text has none.
func diffLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// hunkOf is a hunk that replaces lines by others.
func hunkOf(before, after []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "@@ -1,%d +1,%d @@", len(before), len(after))
	for _, line := range before {
		b.WriteString("\n-" + line)
	}
	for _, line := range after {
		b.WriteString("\n+" + line)
	}
	return b.String()
}

// patchDiff is a unified diff of the file at path from a patch that has one already: its
// hunks, under a header with our path. A patch without hunks is returned as it is.
func patchDiff(path, patch string) string {
	var hunks []string
	lines := strings.Split(strings.TrimSuffix(patch, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		switch line := lines[i]; {
		case strings.HasPrefix(line, "--- ") && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "+++ "):
			i++ // the header that ours takes the place of
		case strings.HasPrefix(line, "@@"):
			hunks = append(hunks, line)
		case len(hunks) > 0:
			hunks[len(hunks)-1] += "\n" + line
		}
	}
	if len(hunks) == 0 {
		return patch
	}
	return joinDiff(path, path, hunks)
}

// envelopeChanges are the changes of an apply_patch envelope, one for each of its files;
// nil when there is none in text. show turns a path into the one that is shown.
func envelopeChanges(text string, show func(string) string) []EntryChange {
	_, body, ok := strings.Cut(text, "*** Begin Patch")
	if !ok {
		return nil
	}
	var p patchReader
	for line := range strings.SplitSeq(body, "\n") {
		line = strings.TrimSuffix(line, "\r")
		name, path, _ := strings.Cut(line, ": ")
		path = show(strings.TrimSpace(path))
		switch name {
		case "*** Add File":
			p.begin(ChangeEdit, noFile, path)
		case "*** Update File":
			p.begin(ChangeEdit, path, path)
		case "*** Delete File":
			p.begin(ChangeDelete, "", "")
		case "*** Move to":
			p.after = path
		case "*** End Patch":
			p.endFile()
			return p.changes
		default:
			p.line(line)
		}
	}
	p.endFile() // a patch that was cut
	return p.changes
}

// patchReader collects the hunks of an apply_patch envelope.
type patchReader struct {
	changes []EntryChange

	open          bool // a file is being read
	change        ChangeType
	before, after string
	hunks         []string
	lines         []string // of the hunk that is being read
}

// begin ends the file that is being read and begins another.
func (p *patchReader) begin(change ChangeType, before, after string) {
	p.endFile()
	p.open, p.change, p.before, p.after = true, change, before, after
}

// line takes a line that is no header of a file.
func (p *patchReader) line(line string) {
	switch {
	case !p.open || p.change == ChangeDelete:
	case strings.HasPrefix(line, "@@"):
		p.endHunk()
	case line == "":
		if len(p.lines) > 0 { // an empty line of context that has lost its space
			p.lines = append(p.lines, " ")
		}
	case strings.ContainsRune("+- ", rune(line[0])):
		p.lines = append(p.lines, line)
	}
}

// endHunk counts the lines of a hunk: the envelope has no line numbers.
func (p *patchReader) endHunk() {
	if len(p.lines) == 0 {
		return
	}
	before, after := 0, 0
	for _, line := range p.lines {
		if line[0] != '+' {
			before++
		}
		if line[0] != '-' {
			after++
		}
	}
	// A side without lines, of a file that is new, is at line 0.
	header := fmt.Sprintf("@@ -%d,%d +%d,%d @@\n", min(1, before), before, min(1, after), after)
	p.hunks = append(p.hunks, header+strings.Join(p.lines, "\n"))
	p.lines = nil
}

// endFile makes a change of what was read of a file.
func (p *patchReader) endFile() {
	p.endHunk()
	if p.open {
		p.changes = append(p.changes, EntryChange{Type: p.change, UnifiedDiff: joinDiff(p.before, p.after, p.hunks)})
	}
	p.open, p.hunks = false, nil
}
