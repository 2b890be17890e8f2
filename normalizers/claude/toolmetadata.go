package claude

import (
	"cmp"
	"path"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// isShell reports whether a tool is the one whose result needs the words of its call.
func isShell(tool string) bool { return strings.EqualFold(tool, "bash") }

// openCodeResult is a structured result, as far as it is converted.
type openCodeResult struct {
	// Write and Edit
	FilePath        lenient.Text                       `json:"filePath"`
	Content         lenient.NullText                   `json:"content"`
	OriginalFile    lenient.NullText                   `json:"originalFile"`
	OldString       lenient.Text                       `json:"oldString"`
	NewString       lenient.Text                       `json:"newString"`
	ReplaceAll      lenient.Flag                       `json:"replaceAll"`
	StructuredPatch lenient.List[lenient.Object[hunk]] `json:"structuredPatch"`
	// Read
	Type lenient.Text                     `json:"type"`
	File lenient.Object[openCodeFileRead] `json:"file"`
	// Bash
	Stdout      lenient.Text `json:"stdout"`
	Stderr      lenient.Text `json:"stderr"`
	Interrupted lenient.Flag `json:"interrupted"`
	IsImage     lenient.Flag `json:"isImage"`
	// TodoWrite
	NewTodos jsontext.Value `json:"newTodos"`
}

// hunk is one of the hunks of a structuredPatch; its lines have their prefixes.
type hunk struct {
	OldStart lenient.Number             `json:"oldStart"`
	OldLines lenient.Number             `json:"oldLines"`
	NewStart lenient.Number             `json:"newStart"`
	NewLines lenient.Number             `json:"newLines"`
	Lines    lenient.List[lenient.Text] `json:"lines"`
}

type openCodeFileRead struct {
	FilePath   lenient.NullText `json:"filePath"`
	Content    lenient.NullText `json:"content"`
	NumLines   lenient.Number   `json:"numLines"`
	StartLine  lenient.Number   `json:"startLine"`
	TotalLines lenient.Number   `json:"totalLines"`
}

// toolMetadata converts the structured result of a call that the session remembers. It is
// nil for a tool that has no shape, and for a result that is no object: a text, which is an
// error, or a list, even of one (seed 002, row 17). The result depends on the session's
// source, id and profile and on the arguments alone.
func toolMetadata(s *core.Session, callID string, made core.Call, result jsontext.Value) jsontext.Value {
	if result.Kind() != '{' {
		return nil
	}
	var convert func(core.Profile, *openCodeResult) any
	switch strings.ToLower(made.Tool) {
	case "write":
		convert = writeMetadata
	case "edit":
		convert = editMetadata
	case "read":
		convert = readMetadata
	case "bash":
		convert = func(p core.Profile, r *openCodeResult) any { return bashMetadata(p, r, made) }
	case "todowrite":
		convert = func(p core.Profile, r *openCodeResult) any { return todosMetadata(p, r, s, callID) }
	default:
		return nil
	}
	var r openCodeResult
	lenient.ReadObject(result, &r)
	shape := convert(s.Profile(), &r)
	if shape == nil {
		return nil
	}
	out, err := json.Marshal(shape, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil // never: the shapes are made of strings, integers and flags
	}
	return out
}

// write: nothing without a path, and, where content is told, without content.
func writeMetadata(p core.Profile, r *openCodeResult) any {
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

type openCodeEdit struct {
	Diff        string       `json:"diff"`
	FileDiff    openCodeFile `json:"filediff"`
	Diagnostics *struct{}    `json:"diagnostics,omitzero"`
}

// openCodeFile is a file before and after an edit; empty where unknown.
type openCodeFile struct {
	File      lenient.Text `json:"file"`
	Before    string       `json:"before"`
	After     string       `json:"after"`
	Additions int          `json:"additions"`
	Deletions int          `json:"deletions"`
}

// edit: the difference of the file before and after, where both are known and can be
// compared, else the vendor's own patch. Lines are counted in the patch.
func editMetadata(p core.Profile, r *openCodeResult) any {
	if r.FilePath == "" {
		return nil
	}
	after, known := r.edited()
	e := openCodeEdit{FileDiff: openCodeFile{File: r.FilePath, Before: r.OriginalFile.Value, After: after}}
	name := path.Base(string(r.FilePath))
	if known {
		e.Diff, known = unifiedDiff(name, r.OriginalFile.Value, after)
	}
	if !known {
		e.Diff = r.patch(name)
	}
	for _, h := range r.StructuredPatch {
		for _, l := range h.Value.Lines {
			switch {
			case strings.HasPrefix(string(l), "+"):
				e.FileDiff.Additions++
			case strings.HasPrefix(string(l), "-"):
				e.FileDiff.Deletions++
			}
		}
	}
	if p == core.ProfileCurrent {
		e.Diagnostics = new(struct{}{})
	}
	return e
}

// edited is the file after the edit: oldString replaced once, or everywhere when the
// vendor says so. An empty newString deletes. False when the file is not known, or when
// what came out would be too large to be compared.
func (r *openCodeResult) edited() (string, bool) {
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

// patch is the vendor's own patch as a unified diff; empty where there is none.
func (r *openCodeResult) patch(name string) string {
	if len(r.StructuredPatch) == 0 {
		return ""
	}
	at := func(n lenient.Number, otherwise int64) string {
		if i := n.Integer(); i != nil {
			otherwise = *i
		}
		return strconv.FormatInt(otherwise, 10)
	}
	lines := []string{"--- a/" + name, "+++ b/" + name}
	for _, o := range r.StructuredPatch {
		h := o.Value
		lines = append(lines, "@@ -"+at(h.OldStart, 1)+","+at(h.OldLines, 0)+" +"+at(h.NewStart, 1)+","+at(h.NewLines, 0)+" @@")
		for _, l := range h.Lines {
			lines = append(lines, string(l))
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// previewLines is how many lines of a file the current shape shows.
const previewLines = 20

// read: what is known of the file, null where it is not; nothing without a file. The
// current shape has the first lines of a text, and for any other kind of file none.
func readMetadata(p core.Profile, r *openCodeResult) any {
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
	if r.Type == "text" && !r.File.OK || r.Type == "" {
		return nil
	}
	now := struct {
		Preview   string   `json:"preview"`
		Truncated bool     `json:"truncated"`
		Loaded    []string `json:"loaded"`
	}{}
	if r.Type == "text" {
		now.Preview = firstLines(f.Content.Value, previewLines)
		now.Truncated = f.NumLines.OK && f.TotalLines.OK && f.NumLines.Value < f.TotalLines.Value
	}
	return now
}

// firstLines are up to n lines of a text, without the end of the last one.
func firstLines(s string, n int) string {
	var lines []string
	for len(s) > 0 && len(lines) < n {
		end := lineLen(s)
		lines = append(lines, strings.TrimRight(s[:end], "\r\n\v\f\x1c\x1d\x1e\u0085\u2028\u2029"))
		s = s[end:]
	}
	return strings.Join(lines, "\n")
}

// bash: the exit code is 0, or null when the command was interrupted: the vendor tells of
// a failure by a text in place of the result. An image is no output.
func bashMetadata(p core.Profile, r *openCodeResult, made core.Call) any {
	if r.IsImage {
		r.Stdout = ""
	}
	b := struct {
		Output      string `json:"output"`
		Exit        *int64 `json:"exit"`
		Description string `json:"description"`
	}{Output: string(cmp.Or(r.Stdout, r.Stderr)), Description: made.About}
	if r.Stdout != "" && r.Stderr != "" {
		b.Output = string(r.Stdout) + "\n" + string(r.Stderr)
	}
	if !r.Interrupted {
		b.Exit = new(int64)
	}
	if made.Undescribed && p != core.ProfileCurrent {
		b.Description = ""
	}
	return b
}

// openCodeTodo is an item of a to-do list. The current shape has no id.
type openCodeTodo struct {
	ID       string       `json:"id,omitzero"`
	Content  string       `json:"content"`
	Status   lenient.Text `json:"status"`
	Priority string       `json:"priority"`
}

// maxTodos is the length of a to-do list in an event: no event is larger than its limit
// because of many small items.
const maxTodos = 1000

// todos: the list as it is now. An empty one is told by the current shape only.
func todosMetadata(p core.Profile, r *openCodeResult, s *core.Session, callID string) any {
	var items lenient.List[lenient.Object[struct {
		Content lenient.Text `json:"content"`
		Status  lenient.Text `json:"status"`
	}]]
	if r.NewTodos.Kind() != '[' || json.Unmarshal(r.NewTodos, &items, lenient.Options) != nil {
		return nil
	}
	out := struct {
		Todos []openCodeTodo `json:"todos"`
	}{}
	for i, item := range items {
		if !item.OK || len(out.Todos) == maxTodos {
			continue
		}
		todo := openCodeTodo{
			Content:  string(item.Value.Content),
			Status:   cmp.Or(item.Value.Status, "pending"),
			Priority: priority(string(item.Value.Content), i, len(items)),
		}
		if p != core.ProfileCurrent {
			todo.ID = todoID(s, callID, i)
		}
		out.Todos = append(out.Todos, todo)
	}
	if p != core.ProfileCurrent && len(out.Todos) == 0 {
		return nil
	}
	return out
}

// todoSpace is the namespace of the ids of to-do items.
var todoSpace = uuid.NewSHA1(uuid.NameSpaceDNS, []byte("agtrace.event.v1"))

// todoID is the id of an item of the list that a call wrote: the same whenever and wherever
// the record is normalized, another one for every item.
func todoID(s *core.Session, callID string, index int) string {
	name := strings.Join([]string{string(s.Source()), s.ID(), callID, strconv.Itoa(index)}, "\xff") // never in UTF-8
	return uuid.NewSHA1(todoSpace, []byte(name)).String()
}

// Words that say how urgent an item is; those of high are looked for first.
var (
	highPriority = []string{"critical", "urgent", "asap", "immediately", "important", "soon", "priority"}
	lowPriority  = []string{"later", "eventually", "low priority", "nice to have"}
)

// priority is how urgent an item is by its words, else by its place in the list.
func priority(content string, index, total int) string {
	content = strings.ToLower(content)
	for _, w := range highPriority {
		if strings.Contains(content, w) {
			return "high"
		}
	}
	for _, w := range lowPriority {
		if strings.Contains(content, w) {
			return "low"
		}
	}
	if total <= 1 {
		return "medium"
	}
	switch at := float64(index) / float64(total-1); {
	case at < 0.33:
		return "high"
	case at < 0.67:
		return "medium"
	default:
		return "low"
	}
}
