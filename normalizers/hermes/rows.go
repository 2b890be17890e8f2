package hermes

import (
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// database is what is read of state.db. Other columns have ids of people and chats, addresses and copies of requests.
var database = core.Database{
	Env: "HERMES_HOME", Below: "state.db", Folders: []string{".hermes", "AppData/Local/hermes"}, Names: []string{"state.db"},
	Tables: []core.Table{{
		Name: "sessions", Key: "id", Order: "started_at", Columns: []string{"source", "started_at"},
		JSON: []string{"model_config"}, Members: []string{"cwd", "_branched_from", "_delegate_from", "_reset_from"},
		Optional: []string{
			"model", "model_config", "parent_session_id", "title", "cwd", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
			"reasoning_tokens", "actual_cost_usd", "estimated_cost_usd", "cost_status",
		},
	}, {
		Name: "messages", Key: "id", JSON: []string{"tool_calls", "reasoning_details"},
		Columns:  []string{"session_id", "role", "content", "timestamp", "finish_reason"},
		Optional: []string{"tool_call_id", "tool_calls", "tool_name", "reasoning", "reasoning_content", "reasoning_details", "active", "compacted", "_compressed_summary", "display_kind"},
		Parent:   "session_id", Of: "sessions",
	}},
}

// isRow recognizes a row of a table of the database.
func isRow(s *core.Shape, table string) bool {
	if s.Text("table") != table || s.Kind("row") != '{' {
		return false
	}
	if table == "sessions" {
		return s.Kind("row", "started_at") == '0' && s.Text("row", "source") != ""
	}
	return s.Kind("row", "finish_reason") != 0 && s.Kind("row", "timestamp") == '0'
}

// row has the columns of both tables.
type row struct {
	message `json:",embed"`

	SessionID lenient.Text   `json:"session_id"` // of a message
	Active    lenient.Number `json:"active"`
	Compacted lenient.Number `json:"compacted"`

	// Of a session.
	ID        lenient.Text               `json:"id"`
	Source    lenient.Text               `json:"source"`
	Started   lenient.Number             `json:"started_at"`
	Config    lenient.Object[rowsConfig] `json:"model_config"`
	Parent    lenient.Text               `json:"parent_session_id"`
	Title     lenient.Text               `json:"title"`
	Cwd       lenient.Text               `json:"cwd"`
	Input     lenient.Number             `json:"input_tokens"`
	Output    lenient.Number             `json:"output_tokens"`
	Read      lenient.Number             `json:"cache_read_tokens"`
	Write     lenient.Number             `json:"cache_write_tokens"`
	Reasoning lenient.Number             `json:"reasoning_tokens"`
	Cost      lenient.Number             `json:"actual_cost_usd"`
	Estimate  lenient.Number             `json:"estimated_cost_usd"`
	Status    lenient.Text               `json:"cost_status"`
}

type rowsConfig struct {
	Cwd      lenient.Text   `json:"cwd"`
	Delegate jsontext.Value `json:"_delegate_from"`
}

// form is where the messages of a session come from. A session may have both forms: the first one counts.
const (
	formLog  = "log"
	formRows = "rows"
)

// isOf reports whether the session is read from records of this form; if not, the record repeats what others state.
func isOf(w *chat.Writer, form string) bool {
	if w.Remembered("form") == "" {
		w.Remember("form", form)
	}
	if w.Remembered("form") != form {
		w.Skip = core.SkipMirror
		return false
	}
	return true
}

// readRow writes what a row states.
func readRow(w *chat.Writer, table lenient.Text, r *row) {
	switch {
	case table == "sessions" && r.Source != "":
		if isOf(w, formRows) {
			readSession(w, r)
		}
	case table == "messages" && roles[r.Role]:
		if isOf(w, formRows) {
			readMessageRow(w, r)
		}
	default:
		w.UnknownRecord(table, r.Role)
	}
}

// readSession notes what is stated about a session, and writes its title and what it has used so far.
func readSession(w *chat.Writer, r *row) {
	s := w.Session
	if s.TS == "" { // the tokens belong to the messages before them
		w.At(core.TimeOfMillis(r.Started.Times(1000)))
	}
	s.SetResumeID(string(r.ID))
	s.SetModel(string(r.Model))
	s.SetRoot(string(cmp.Or(r.Cwd, r.Config.Value.Cwd)))
	s.SetTextExtension("platform", r.Source)
	if r.Parent != "" {
		s.SetTextExtension("parentSessionId", r.Parent)
		w.Remember("started", strconv.FormatFloat(r.Started.Value, 'f', -1, 64))
	}
	if r.Source == "subagent" || lenient.IsValue(r.Config.Value.Delegate) {
		w.Remember("child", "yes")
	}
	setAgent(w)
	w.ID = "session"
	if r.Title != "" {
		w.ID = "session#title"
		w.Say(core.SpeechSummary, r.Title)
	} else if !s.HasEvent("session") {
		w.Meta()
	}
	cost := r.Cost
	if !cost.OK {
		cost = r.Estimate
	}
	if r.Status == "included" { // in a subscription
		cost = lenient.Number{}
	}
	w.Use("session", chat.Tokens{
		Input: r.Input, Output: r.Output, CacheRead: r.Read, CacheWrite: r.Write, Reasoning: r.Reasoning, Cost: cost,
		ReasoningInOutput: true, Several: true,
	})
}

// setAgent marks the record of a session that is that of a subagent.
func setAgent(w *chat.Writer) {
	if w.Remembered("child") != "" {
		w.Agent = lenient.Text(w.Session.ID())
	}
}

// readMessageRow writes a message. Its id is made of its content: a compaction and a repetition write the same messages
// again in new rows. One that was taken back is not active; of a compaction the earlier messages are not either.
func readMessageRow(w *chat.Writer, r *row) {
	if r.Active.OK && r.Active.Value == 0 && r.Compacted.Count() == 0 {
		w.Skip = core.SkipMirror
		return
	}
	setAgent(w)
	started, err := strconv.ParseFloat(w.Remembered("started"), 64)
	at := lenient.NumberOf(r.Timestamp)
	w.Copied = err == nil && at.OK && at.Value < started
	w.SetID(lenient.Text("message-" + core.FingerprintOf(string(r.Role), string(r.Content), string(r.Timestamp), string(r.CallID), string(r.Calls), string(r.ToolName)).String()))
	readMessage(w, &r.message)
}
