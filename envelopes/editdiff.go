package envelopes

import (
	"fmt"
	"path"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// cursorEdit is what stands under editToolCall in a record of Cursor: the arguments in
// one of three forms, and of a completed call its result.
type cursorEdit struct {
	Args struct {
		Path       string `json:"path"`
		ApplyPatch struct {
			PatchContent string `json:"patchContent"`
		} `json:"applyPatch"`
		StrReplace      *cursorReplacement `json:"strReplace"`
		MultiStrReplace struct {
			Edits []cursorReplacement `json:"edits"`
		} `json:"multiStrReplace"`
	} `json:"args"`
	Result struct {
		Success struct {
			Path       string `json:"path"`
			DiffString string `json:"diffString"`
		} `json:"success"`
	} `json:"result"`
}

type cursorReplacement struct {
	OldText string `json:"oldText"`
	NewText string `json:"newText"`
}

// cursorEditDiff is the unified diff of an edit, made of what stands under editToolCall in
// the raw record of its call or of its result (seed-features.md 2.4): of the patch or the
// replaced texts in its arguments, else of the diff in its result. Its file headers are
// made anew, with the path below root. Replaced texts have no place in the file: their
// hunks begin at line 1 and have no context. Empty where the record tells no change, or is
// of another shape.
func cursorEditDiff(body jsontext.Value, root string) string {
	var edit cursorEdit
	if json.Unmarshal(body, &edit, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)) != nil {
		return ""
	}
	var hunks []string
	replacements := edit.Args.MultiStrReplace.Edits
	if edit.Args.StrReplace != nil {
		replacements = []cursorReplacement{*edit.Args.StrReplace}
	}
	switch {
	case edit.Args.ApplyPatch.PatchContent != "":
		hunks = hunksOf(edit.Args.ApplyPatch.PatchContent)
	case len(replacements) > 0:
		for _, r := range replacements {
			hunks = append(hunks, r.hunk())
		}
	default:
		hunks = hunksOf(edit.Result.Success.DiffString)
	}
	if len(hunks) == 0 {
		return ""
	}
	file := edit.Args.Path
	if file == "" {
		file = edit.Result.Success.Path
	}
	file = pathBelow(file, root)
	return "--- a/" + file + "\n+++ b/" + file + "\n" + strings.Join(hunks, "\n")
}

// hunk is the replacement as a hunk without context.
func (r cursorReplacement) hunk() string {
	before, after := textLines(r.OldText), textLines(r.NewText)
	lines := []string{fmt.Sprintf("@@ -1,%d +1,%d @@", len(before), len(after))}
	for _, l := range before {
		lines = append(lines, "-"+l)
	}
	for _, l := range after {
		lines = append(lines, "+"+l)
	}
	return strings.Join(lines, "\n")
}

// textLines cuts a text into lines; a line end at its end begins no other line.
func textLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

// hunksOf cuts a diff into its hunks, each from its `@@` to the next one. What stands
// before the first is dropped: the headers of the file.
func hunksOf(diff string) []string {
	var hunks []string
	for _, l := range textLines(diff) {
		switch {
		case strings.HasPrefix(l, "@@"):
			hunks = append(hunks, l)
		case len(hunks) > 0:
			hunks[len(hunks)-1] += "\n" + l
		}
	}
	return hunks
}

// pathBelow is an absolute path as seen from root, where that is shorter and no more than
// one folder up (seed-features.md 2.3); else the path as it is.
func pathBelow(file, root string) string {
	if !path.IsAbs(file) || !path.IsAbs(root) {
		return file
	}
	from, to := strings.Split(path.Clean(root), "/"), strings.Split(path.Clean(file), "/")
	for len(from) > 0 && len(to) > 0 && from[0] == to[0] {
		from, to = from[1:], to[1:]
	}
	below := strings.Repeat("../", len(from)) + strings.Join(to, "/")
	if root == "/" {
		below = strings.TrimPrefix(path.Clean(file), "/")
	}
	if len(from) > 1 || below == "" || len(below) >= len(file) {
		return file
	}
	return below
}
