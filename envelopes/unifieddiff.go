package envelopes

import (
	"fmt"
	"strings"
)

// replacement is an edit with known texts at an unknown place.
type replacement struct{ before, after string }

// diffOf returns a unified diff of replacements in the file at path. Every hunk is at line 1
// and has no context, because the vendor does not state the place of the texts.
func diffOf(path string, edits ...replacement) string {
	hunks := make([]string, len(edits))
	for i, e := range edits {
		hunks[i] = hunkOf(diffLines(e.before), diffLines(e.after))
	}
	return joinDiff(path, path, hunks)
}

// noFile is the path of a file that does not exist on one side of a diff.
const noFile = "/dev/null"

// joinDiff returns hunks below the header of a file with its paths before and after; empty
// without hunks.
func joinDiff(before, after string, hunks []string) string {
	if len(hunks) == 0 {
		return ""
	}
	if before != noFile {
		before = "a/" + strings.TrimPrefix(before, "/")
	}
	return "--- " + before + "\n+++ b/" + strings.TrimPrefix(after, "/") + "\n" + strings.Join(hunks, "\n")
}

// diffLines returns the lines of a text; none for the empty text.
func diffLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// hunkOf returns a hunk that replaces the lines before by the lines after.
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

// patchDiff returns the hunks of a unified diff below a header with path. It returns a patch
// without hunks unchanged.
func patchDiff(path, patch string) string {
	var hunks []string
	lines := strings.Split(strings.TrimSuffix(patch, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		switch line := lines[i]; {
		case strings.HasPrefix(line, "--- ") && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "+++ "):
			i++ // the header to replace
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

// patchEnvelopeChanges returns the changes of an apply_patch envelope ("*** Begin Patch"), one
// for each of its files; nil for a text without an envelope. show converts a path to the form
// of an entry.
func patchEnvelopeChanges(text string, show func(string) string) []EntryChange {
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
	p.endFile() // a truncated patch
	return p.changes
}

// patchReader collects the changes of an apply_patch envelope.
type patchReader struct {
	changes []EntryChange

	open          bool // the following fields describe the current file
	change        ChangeType
	before, after string
	hunks         []string
	lines         []string // of the current hunk
}

// begin ends the current file and begins another.
func (p *patchReader) begin(change ChangeType, before, after string) {
	p.endFile()
	p.open, p.change, p.before, p.after = true, change, before, after
}

// line consumes a line that is not the header of a file.
func (p *patchReader) line(line string) {
	switch {
	case !p.open || p.change == ChangeDelete:
	case strings.HasPrefix(line, "@@"):
		p.endHunk()
	case line == "":
		if len(p.lines) > 0 { // an empty line of context without its leading space
			p.lines = append(p.lines, " ")
		}
	case strings.ContainsRune("+- ", rune(line[0])):
		p.lines = append(p.lines, line)
	}
}

// endHunk adds the current hunk, with counted lines: the envelope has no line numbers.
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
	// A side without lines, of a new file, is at line 0.
	header := fmt.Sprintf("@@ -%d,%d +%d,%d @@\n", min(1, before), before, min(1, after), after)
	p.hunks = append(p.hunks, header+strings.Join(p.lines, "\n"))
	p.lines = nil
}

// endFile adds the change of the current file.
func (p *patchReader) endFile() {
	p.endHunk()
	if p.open {
		p.changes = append(p.changes, EntryChange{Type: p.change, UnifiedDiff: joinDiff(p.before, p.after, p.hunks)})
	}
	p.open, p.hunks = false, nil
}
