package kilo

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/opencode"
)

// dialect is what Kilo Code does in its own way with the tables of OpenCode.
var dialect = opencode.Dialect{
	Tools: map[string]core.Tool{
		"background_process": core.ToolShell, "interactive_terminal": core.ToolShell, "semantic_search": core.ToolSearch,
		"notebook_read": core.ToolRead, "notebook_edit": core.ToolModify,
	},
	IsImported:  isImported,
	CostOfSteps: true,
	ExitCode:    true,
}

// isImported recognizes a row that was made of a task, whose log is read.
func isImported(id string) bool {
	_, name, _ := strings.Cut(id, "_")
	return strings.HasPrefix(name, "migrated_")
}

// What is read of a session depends on what it consists of: rows, or the files of a task.
var (
	rows  = opencode.Normalizer(&dialect)
	tasks = extension.Normalize
)

// state is what a session remembers: as one of rows, or as a task. The other part is empty.
type state struct {
	Tasks chat.State     `json:",embed"`
	Rows  opencode.State `json:",embed"`
}

// Clone implements [core.State].
func (s *state) Clone() core.State { c := *s; return &c }

// Size implements [core.State].
func (s *state) Size() int { return s.Tasks.Size() + s.Rows.Size() }

// Shrink implements [core.State].
func (s *state) Shrink() bool { return s.Tasks.Shrink() || s.Rows.Shrink() }

// normalize maps a row of the database as one of OpenCode, and a file of a task as one of Cline.
func normalize(s *core.Session, r core.Record) (core.Result, error) {
	st := s.State.(*state)
	defer func() { s.State = st }()
	if isRow(r.Data) {
		s.State = &st.Rows
		return rows(s, r)
	}
	s.State = &st.Tasks
	return tasks(s, r)
}

// isRow reports whether a record is a row. The end of a session of rows needs nothing of it: no row is pending.
func isRow(data jsontext.Value) bool {
	var in struct {
		Table lenient.Text   `json:"table"`
		Row   jsontext.Value `json:"row"`
	}
	if data.Kind() == '{' { // the files of a task are arrays, and large
		lenient.ReadObject(data, &in)
	}
	return in.Table != "" && in.Row.Kind() == '{'
}

// sessionOf returns the session that a record states.
func sessionOf(s *core.Shape) string {
	if opencode.IsRow(s) {
		return opencode.Vendor.Session(s)
	}
	return extension.Session(s)
}

// timeOf returns the time that a record states.
func timeOf(s *core.Shape) time.Time {
	if opencode.IsRow(s) {
		return opencode.Vendor.Time(s)
	}
	return extension.Time(s)
}

// database is what is read of kilo.db: the tables of OpenCode, as far as these are read.
var database = core.Database{
	Env: "KILO_DB", About: "database of Kilo Code", Folders: []string{".local/share/kilo"}, Names: []string{"kilo.db"},
	Tables: opencode.Vendor.Database.Tables,
}
