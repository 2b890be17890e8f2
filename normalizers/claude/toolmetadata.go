package claude

import (
	"path"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// toolMetadata returns the structured result of a call in the shape that OpenCode gives
// the result of the same tool, in the profile of the session (README.md, Tool metadata). It
// is nil for a tool without a shape, and where a result lacks what its shape needs. It
// depends on the arguments and on source, id and profile of the session alone.
func toolMetadata(s *core.Session, callID string, call core.Call, r *structuredResult) jsontext.Value {
	var shape any
	switch strings.ToLower(call.Tool) {
	case "write":
		shape = writeMetadata(s.Profile(), r)
	case "edit":
		shape = editMetadata(s.Profile(), r)
	case "read":
		shape = readMetadata(s.Profile(), r)
	case "bash":
		shape = bashMetadata(s.Profile(), r, call)
	case "todowrite":
		shape = todosMetadata(s, r, callID)
	}
	if shape == nil {
		return nil
	}
	out, err := json.Marshal(shape, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil // never: the shapes are made of strings, integers and flags
	}
	return out
}

// writeMetadata returns the shape of Write: nil without a path, and, in the profile that
// repeats the content, without a content.
func writeMetadata(p core.Profile, r *structuredResult) any {
	switch {
	case r.FilePath == "":
		return nil
	case p == core.ProfileCurrent:
		return struct {
			FilePath    lenient.Text `json:"filepath"`
			Exists      bool         `json:"exists"`
			Diagnostics struct{}     `json:"diagnostics"`
		}{FilePath: r.FilePath, Exists: true}
	case !r.Content.OK:
		return nil
	}
	return struct {
		FilePath lenient.Text `json:"filePath"`
		Content  string       `json:"content"`
	}{r.FilePath, r.Content.Value}
}

// editShape is the shape of Edit.
type editShape struct {
	Diff        string    `json:"diff"`
	FileDiff    fileDiff  `json:"filediff"`
	Diagnostics *struct{} `json:"diagnostics,omitzero"`
}

// fileDiff is a file before and after an edit; empty where unknown.
type fileDiff struct {
	File      lenient.Text `json:"file"`
	Before    string       `json:"before"`
	After     string       `json:"after"`
	Additions int          `json:"additions"`
	Deletions int          `json:"deletions"`
}

// editMetadata returns the shape of Edit; nil without a path. The diff compares the file
// before and after; where these are not known, or too large, it is the vendor's own patch.
// Additions and deletions are always counted in the vendor's patch.
func editMetadata(p core.Profile, r *structuredResult) any {
	if r.FilePath == "" {
		return nil
	}
	after, known := r.edited()
	e := editShape{FileDiff: fileDiff{File: r.FilePath, Before: r.OriginalFile.Value, After: after}}
	e.FileDiff.Additions, e.FileDiff.Deletions = r.patchCounts()
	name := path.Base(string(r.FilePath))
	if known {
		e.Diff, known = unifiedDiff(name, r.OriginalFile.Value, after)
	}
	if !known {
		e.Diff = r.patch(name)
	}
	if p == core.ProfileCurrent {
		e.Diagnostics = new(struct{}{})
	}
	return e
}

// edited returns the file after an edit: oldString replaced once, or everywhere where
// replaceAll is set. It returns false where the file is not known, or where the result is
// too large to be compared.
func (r *structuredResult) edited() (string, bool) {
	file, before, after := r.OriginalFile.Value, string(r.OldString), string(r.NewString)
	if !r.OriginalFile.OK || before == "" {
		return file, r.OriginalFile.OK
	}
	n := 1
	if r.ReplaceAll {
		n = strings.Count(file, before)
	}
	if len(file)+n*(len(after)-len(before)) > maxDiffBytes {
		return "", false
	}
	return strings.Replace(file, before, after, n), true
}

// patchCounts returns the number of lines that the vendor's patch adds and deletes.
func (r *structuredResult) patchCounts() (additions, deletions int) {
	for _, h := range r.StructuredPatch {
		for _, line := range h.Value.Lines {
			switch {
			case strings.HasPrefix(string(line), "+"):
				additions++
			case strings.HasPrefix(string(line), "-"):
				deletions++
			}
		}
	}
	return additions, deletions
}

// patch returns the vendor's patch as a unified diff; empty where there is none.
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
			lines = append(lines, string(line))
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// previewLines is the number of lines of a file in the current shape of Read.
const previewLines = 20

// readMetadata returns the shape of Read: what the result states about the file, null for
// the rest; nil without a file. The current shape has the first lines of a text, and no
// preview of any other kind of file.
func readMetadata(p core.Profile, r *structuredResult) any {
	f := r.File.Value
	if p != core.ProfileCurrent {
		if !r.File.OK {
			return nil
		}
		return struct {
			FilePath   *string `json:"filePath"`
			Content    *string `json:"content"`
			NumLines   *int64  `json:"numLines"`
			StartLine  *int64  `json:"startLine"`
			TotalLines *int64  `json:"totalLines"`
		}{f.FilePath.Ptr(), f.Content.Ptr(), f.NumLines.Integer(), f.StartLine.Integer(), f.TotalLines.Integer()}
	}
	if r.Type == "" || r.Type == "text" && !r.File.OK {
		return nil
	}
	current := struct {
		Preview   string   `json:"preview"`
		Truncated bool     `json:"truncated"`
		Loaded    []string `json:"loaded"`
	}{}
	if r.Type == "text" {
		current.Preview = firstLines(f.Content.Value, previewLines)
		current.Truncated = f.NumLines.OK && f.TotalLines.OK && f.NumLines.Value < f.TotalLines.Value
	}
	return current
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

// bashMetadata returns the shape of Bash. The exit code is 0, or null where the command was
// interrupted: a command that failed has a text as its result, not an object.
func bashMetadata(p core.Profile, r *structuredResult, call core.Call) any {
	b := struct {
		Output      lenient.Text `json:"output"`
		Exit        *int64       `json:"exit"`
		Description string       `json:"description"`
	}{Output: joinLines(r.Stdout, r.Stderr), Description: call.About}
	if !r.Interrupted {
		b.Exit = new(int64)
	}
	if call.Undescribed && p != core.ProfileCurrent {
		b.Description = ""
	}
	return b
}
