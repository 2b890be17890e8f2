package claude

import (
	"path"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// toolMetadata returns the structured result of a call in the shape that OpenCode uses for the result of the same
// tool, in the profile of the session. It returns nil for a tool without a shape, and for a result that lacks what
// its shape needs. It depends only on the arguments and on source, id and profile of the session.
func toolMetadata(s *core.Session, callID string, call core.Call, r *structuredResult) jsontext.Value {
	switch strings.ToLower(call.Tool) {
	case "write":
		return writeMetadata(s.Profile(), r)
	case "edit":
		return editMetadata(s.Profile(), r)
	case "read":
		return readMetadata(s.Profile(), r)
	case "bash":
		return bashMetadata(s.Profile(), r, call)
	case "todowrite":
		return todosMetadata(s, r, callID)
	default:
		return nil
	}
}

// writeMetadata returns the shape of Write; nil without a path and, in the profile that repeats the content, without
// content.
func writeMetadata(p core.Profile, r *structuredResult) jsontext.Value {
	w := newObject(len(r.FilePath) + len(r.Content.Value))
	switch {
	case r.FilePath == "":
		return nil
	case p == core.ProfileCurrent:
		w.text("filepath", string(r.FilePath))
		w.literal("exists", "true")
		w.literal("diagnostics", "{}")
		return w.end()
	case !r.Content.OK:
		return nil
	}
	w.text("filePath", string(r.FilePath))
	w.text("content", r.Content.Value)
	return w.end()
}

// editMetadata returns the shape of Edit; nil without a path. The diff compares the file before and after the edit;
// if these are unknown or too large, it is the vendor's own patch. Additions and deletions are always counted in the
// vendor's patch.
func editMetadata(p core.Profile, r *structuredResult) jsontext.Value {
	if r.FilePath == "" {
		return nil
	}
	edit, known := r.edited()
	name, diff := path.Base(string(r.FilePath)), ""
	if known {
		diff, known = unifiedDiff(name, edit)
	}
	if !known {
		diff = r.patch(name)
	}
	additions, deletions := r.patchCounts()
	w := newObject(len(diff) + len(r.FilePath) + len(edit.before) + len(edit.after))
	w.text("diff", diff)
	w.literal("filediff", "{") // the file before and after the edit; empty where unknown
	w.text("file", string(r.FilePath))
	w.edit(edit)
	w.number("additions", additions)
	w.number("deletions", deletions)
	w.b = w.end()
	if p == core.ProfileCurrent {
		w.literal("diagnostics", "{}")
	}
	return w.end()
}

// fileEdit is a file before and after an edit. Their first head bytes are equal, and so are their last tail bytes:
// nearly everything in most edits, compared only once.
type fileEdit struct {
	before, after string
	head, tail    int
}

// edited returns the edit of a file: oldString replaced once, or everywhere if replaceAll is set. It returns false if
// the file is unknown, or the result too large to compare; then there is no text after the edit.
func (r *structuredResult) edited() (fileEdit, bool) {
	file, old, text := r.OriginalFile.Value, string(r.OldString), string(r.NewString)
	same := fileEdit{file, file, len(file), 0}
	if !r.OriginalFile.OK || old == "" {
		return same, r.OriginalFile.OK
	}
	n := 1
	if r.ReplaceAll {
		n = strings.Count(file, old)
	}
	if len(file)+n*(len(text)-len(old)) > maxDiffBytes {
		return fileEdit{before: file}, false
	}
	if n > 1 {
		return fileEdit{file, strings.ReplaceAll(file, old, text), 0, 0}, true
	}
	head := strings.Index(file, old)
	if head < 0 {
		return same, true
	}
	rest := file[head+len(old):]
	return fileEdit{file, file[:head] + text + rest, head, len(rest)}, true
}

// patchCounts returns the number of lines that the vendor's patch adds and deletes.
func (r *structuredResult) patchCounts() (additions, deletions int64) {
	for _, h := range r.StructuredPatch {
		for _, line := range h.Value.Lines {
			switch firstByte(line) {
			case '+':
				additions++
			case '-':
				deletions++
			}
		}
	}
	return additions, deletions
}

// firstByte returns the first byte of a text in JSON; 0 for the empty text and any other value.
func firstByte(v jsontext.Value) byte {
	if len(v) > 1 && v[0] == '"' && v[1] != '\\' && v[1] != '"' {
		return v[1]
	}
	if s := lenient.Unquote(v); s != "" {
		return s[0]
	}
	return 0
}

// patch returns the vendor's patch as a unified diff; empty for none.
func (r *structuredResult) patch(name string) string {
	if len(r.StructuredPatch) == 0 {
		return ""
	}
	or := func(n lenient.Number, missing int64) string {
		if i := n.Integer(); i != nil {
			missing = *i
		}
		return strconv.FormatInt(missing, 10)
	}
	lines := []string{"--- a/" + name, "+++ b/" + name}
	for _, o := range r.StructuredPatch {
		h := o.Value
		lines = append(lines, "@@ -"+or(h.OldStart, 1)+","+or(h.OldLines, 0)+" +"+or(h.NewStart, 1)+","+or(h.NewLines, 0)+" @@")
		for _, line := range h.Lines {
			lines = append(lines, lenient.Unquote(line))
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// previewLines is the number of lines of a file in the current shape of Read.
const previewLines = 20

// readMetadata returns the shape of Read: what the result states about the file, null for the rest; nil without a
// file. The current shape has the first lines of a text, and no preview of other kinds of files.
func readMetadata(p core.Profile, r *structuredResult) jsontext.Value {
	f := &r.File.Value
	w := newObject(len(f.FilePath.Value) + len(f.Content.Value))
	if p != core.ProfileCurrent {
		if !r.File.OK {
			return nil
		}
		w.textOrNull("filePath", f.FilePath.Ptr())
		w.textOrNull("content", f.Content.Ptr())
		w.numberOrNull("numLines", f.NumLines.Integer())
		w.numberOrNull("startLine", f.StartLine.Integer())
		w.numberOrNull("totalLines", f.TotalLines.Integer())
		return w.end()
	}
	preview, truncated := "", "false"
	switch {
	case r.Type == "" || r.Type == "text" && !r.File.OK:
		return nil
	case r.Type != "text":
	default:
		preview = firstLines(f.Content.Value, previewLines)
		if f.NumLines.OK && f.TotalLines.OK && f.NumLines.Value < f.TotalLines.Value {
			truncated = "true"
		}
	}
	w.text("preview", preview)
	w.literal("truncated", truncated)
	w.literal("loaded", "[]")
	return w.end()
}

// firstLines returns up to n lines of a text, without the end of the last one.
func firstLines(s string, n int) string {
	var lines []string
	for len(s) > 0 && len(lines) < n {
		end := lineLen(s)
		lines = append(lines, strings.TrimRight(s[:end], "\r\n\v\f\x1c\x1d\x1e\u0085\u2028\u2029"))
		s = s[end:]
	}
	return strings.Join(lines, "\n")
}

// bashMetadata returns the shape of Bash. The exit code is 0, or null if the command was interrupted, because the
// result of a failed command is a text, not an object.
func bashMetadata(p core.Profile, r *structuredResult, call core.Call) jsontext.Value {
	output := string(r.streams())
	w := newObject(len(output) + len(call.About))
	w.text("output", output)
	if r.Interrupted {
		w.literal("exit", "null")
	} else {
		w.number("exit", 0)
	}
	if call.Undescribed && p != core.ProfileCurrent {
		w.text("description", "")
	} else {
		w.text("description", call.About)
	}
	return w.end()
}
