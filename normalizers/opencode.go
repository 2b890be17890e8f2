package normalizers

import (
	"cmp"
	"path"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// The structured results of tools of Claude Code as OpenCode shows them: the tool_metadata
// of an event (seed claude-sdk-messages, seed-features.md section 3).

// Profile names the shapes of tool_metadata. The zero value is [ProfileOpenCode].
type Profile string

// The profiles.
const (
	ProfileOpenCode Profile = "opencode" // as the seed documents them
	ProfileCurrent  Profile = "current"  // as OpenCode has them today
)

// isShell reports whether a tool is the one whose result needs the words of its call.
func isShell(tool string) bool { return strings.EqualFold(tool, "bash") }

// openCodeResult is a structured result, as far as it is converted.
type openCodeResult struct {
	// Write and Edit
	FilePath        text               `json:"filePath"`
	Content         nullText           `json:"content"`
	OriginalFile    nullText           `json:"originalFile"`
	OldString       text               `json:"oldString"`
	NewString       text               `json:"newString"`
	ReplaceAll      flag               `json:"replaceAll"`
	StructuredPatch list[object[hunk]] `json:"structuredPatch"`
	// Read
	Type text                     `json:"type"`
	File object[openCodeFileRead] `json:"file"`
	// Bash
	Stdout      text `json:"stdout"`
	Stderr      text `json:"stderr"`
	Interrupted flag `json:"interrupted"`
	IsImage     flag `json:"isImage"`
	// TodoWrite
	NewTodos jsontext.Value `json:"newTodos"`
}

// hunk is one of the hunks of a structuredPatch; its lines have their prefixes.
type hunk struct {
	OldStart number     `json:"oldStart"`
	OldLines number     `json:"oldLines"`
	NewStart number     `json:"newStart"`
	NewLines number     `json:"newLines"`
	Lines    list[text] `json:"lines"`
}

type openCodeFileRead struct {
	FilePath   nullText `json:"filePath"`
	Content    nullText `json:"content"`
	NumLines   number   `json:"numLines"`
	StartLine  number   `json:"startLine"`
	TotalLines number   `json:"totalLines"`
}

// toolMetadata converts the structured result of a call that the session remembers. It is
// nil for a tool that has no shape, and for a result that is no object: a text, which is an
// error, or a list, even of one (seed 002, row 17). The result depends on the session's
// source, id and profile and on the arguments alone.
func toolMetadata(s *Session, callID string, made call, result jsontext.Value) jsontext.Value {
	if result.Kind() != '{' {
		return nil
	}
	var convert func(*openCodeResult) any
	switch strings.ToLower(made.Tool) {
	case "write":
		convert = s.profile.write
	case "edit":
		convert = s.profile.edit
	case "read":
		convert = s.profile.read
	case "bash":
		convert = func(r *openCodeResult) any { return s.profile.bash(r, made) }
	case "todowrite":
		convert = func(r *openCodeResult) any { return s.profile.todos(r, s, callID) }
	default:
		return nil
	}
	var r openCodeResult
	readObject(result, &r)
	shape := convert(&r)
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
func (p Profile) write(r *openCodeResult) any {
	switch {
	case r.FilePath == "":
		return nil
	case p == ProfileCurrent:
		return struct {
			FilePath    text     `json:"filepath"`
			Exists      bool     `json:"exists"`
			Diagnostics struct{} `json:"diagnostics"`
		}{FilePath: r.FilePath, Exists: true}
	case !r.Content.ok:
		return nil
	}
	return struct {
		FilePath text   `json:"filePath"`
		Content  string `json:"content"`
	}{r.FilePath, r.Content.value}
}

type openCodeEdit struct {
	Diff        string       `json:"diff"`
	FileDiff    openCodeFile `json:"filediff"`
	Diagnostics *struct{}    `json:"diagnostics,omitzero"`
}

// openCodeFile is a file before and after an edit; empty where unknown.
type openCodeFile struct {
	File      text   `json:"file"`
	Before    string `json:"before"`
	After     string `json:"after"`
	Additions int    `json:"additions"`
	Deletions int    `json:"deletions"`
}

// edit: the difference of the file before and after, where both are known and can be
// compared, else the vendor's own patch. Lines are counted in the patch.
func (p Profile) edit(r *openCodeResult) any {
	if r.FilePath == "" {
		return nil
	}
	after, known := r.edited()
	e := openCodeEdit{FileDiff: openCodeFile{File: r.FilePath, Before: r.OriginalFile.value, After: after}}
	name := path.Base(string(r.FilePath))
	if known {
		e.Diff, known = unifiedDiff(name, r.OriginalFile.value, after)
	}
	if !known {
		e.Diff = r.patch(name)
	}
	for _, h := range r.StructuredPatch {
		for _, l := range h.value.Lines {
			switch {
			case strings.HasPrefix(string(l), "+"):
				e.FileDiff.Additions++
			case strings.HasPrefix(string(l), "-"):
				e.FileDiff.Deletions++
			}
		}
	}
	if p == ProfileCurrent {
		e.Diagnostics = new(struct{}{})
	}
	return e
}

// edited is the file after the edit: oldString replaced once, or everywhere when the
// vendor says so. An empty newString deletes. False when the file is not known, or when
// what came out would be too large to be compared.
func (r *openCodeResult) edited() (string, bool) {
	file, before, after := r.OriginalFile.value, string(r.OldString), string(r.NewString)
	if !r.OriginalFile.ok || before == "" {
		return file, r.OriginalFile.ok
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
	at := func(n number, otherwise int64) string {
		if i := n.integer(); i != nil {
			otherwise = *i
		}
		return strconv.FormatInt(otherwise, 10)
	}
	lines := []string{"--- a/" + name, "+++ b/" + name}
	for _, o := range r.StructuredPatch {
		h := o.value
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
func (p Profile) read(r *openCodeResult) any {
	f := r.File.value
	if p != ProfileCurrent {
		if !r.File.ok {
			return nil
		}
		return struct {
			FilePath   *string `json:"filePath"`
			Content    *string `json:"content"`
			NumLines   *int64  `json:"numLines"`
			StartLine  *int64  `json:"startLine"`
			TotalLines *int64  `json:"totalLines"`
		}{f.FilePath.ptr(), f.Content.ptr(), f.NumLines.integer(), f.StartLine.integer(), f.TotalLines.integer()}
	}
	if r.Type == "text" && !r.File.ok || r.Type == "" {
		return nil
	}
	now := struct {
		Preview   string   `json:"preview"`
		Truncated bool     `json:"truncated"`
		Loaded    []string `json:"loaded"`
	}{}
	if r.Type == "text" {
		now.Preview = firstLines(f.Content.value, previewLines)
		now.Truncated = f.NumLines.ok && f.TotalLines.ok && f.NumLines.value < f.TotalLines.value
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
func (p Profile) bash(r *openCodeResult, made call) any {
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
	if made.Undescribed && p != ProfileCurrent {
		b.Description = ""
	}
	return b
}

// openCodeTodo is an item of a to-do list. The current shape has no id.
type openCodeTodo struct {
	ID       string `json:"id,omitzero"`
	Content  string `json:"content"`
	Status   text   `json:"status"`
	Priority string `json:"priority"`
}

// maxTodos is the length of a to-do list in an event: no event is larger than its limit
// because of many small items.
const maxTodos = 1000

// todos: the list as it is now. An empty one is told by the current shape only.
func (p Profile) todos(r *openCodeResult, s *Session, callID string) any {
	var items list[object[struct {
		Content text `json:"content"`
		Status  text `json:"status"`
	}]]
	if r.NewTodos.Kind() != '[' || json.Unmarshal(r.NewTodos, &items, vendorJSON) != nil {
		return nil
	}
	out := struct {
		Todos []openCodeTodo `json:"todos"`
	}{}
	for i, item := range items {
		if !item.ok || len(out.Todos) == maxTodos {
			continue
		}
		todo := openCodeTodo{
			Content:  string(item.value.Content),
			Status:   cmp.Or(item.value.Status, "pending"),
			Priority: priority(string(item.value.Content), i, len(items)),
		}
		if p != ProfileCurrent {
			todo.ID = todoID(s, callID, i)
		}
		out.Todos = append(out.Todos, todo)
	}
	if p != ProfileCurrent && len(out.Todos) == 0 {
		return nil
	}
	return out
}

// todoSpace is the namespace of the ids of to-do items.
var todoSpace = uuid.NewSHA1(uuid.NameSpaceDNS, []byte("agtrace.event.v1"))

// todoID is the id of an item of the list that a call wrote: the same whenever and wherever
// the record is normalized, another one for every item.
func todoID(s *Session, callID string, index int) string {
	name := strings.Join([]string{string(s.source), s.id, callID, strconv.Itoa(index)}, "\xff") // never in UTF-8
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
