package opencode

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// database is what is read of opencode.db. The tables account, credential, control_account and session_share have
// secrets, and event repeats the rows.
var database = core.Database{
	Env: "OPENCODE_DB", About: "database of OpenCode", Folders: []string{".local/share/opencode"}, Names: []string{".db"},
	Tables: []core.Table{{
		Name: "session", Key: "id", Version: "time_updated", Order: "time_created", JSON: []string{"revert"},
		Columns: []string{"parent_id", "directory", "title", "version", "revert", "time_created"},
	}, {
		Name: "message", Key: "id", Version: "time_updated", Order: "time_created", JSON: []string{"data"},
		Columns: []string{"session_id", "time_created", "data"}, Parent: "session_id", Of: "session",
	}, {
		Name: "part", Key: "id", Version: "time_updated", JSON: []string{"data"},
		Columns: []string{"message_id", "session_id", "time_created", "data"}, Parent: "message_id", Of: "message",
	}},
}

// row has the columns of a row of any table.
type row struct {
	ID          lenient.Text   `json:"id"`
	SessionID   lenient.Text   `json:"session_id"`
	MessageID   lenient.Text   `json:"message_id"`
	ParentID    lenient.Text   `json:"parent_id"`
	Directory   lenient.Text   `json:"directory"`
	Title       lenient.Text   `json:"title"`
	Version     lenient.Text   `json:"version"`
	Revert      jsontext.Value `json:"revert"`
	TimeCreated lenient.Number `json:"time_created"`
	Data        jsontext.Value `json:"data"`
}

// IsRow recognizes a row of the database.
func IsRow(s *core.Shape) bool {
	if s.Kind("row") != '{' {
		return false
	}
	switch s.Text("table") {
	case "session":
		return s.Kind("row", "directory") == '"' && s.Kind("row", "time_created") == '0'
	case "message", "part":
		return s.Text("row", "session_id") != "" && s.Kind("row", "data") == '{' && s.Kind("row", "time_created") == '0'
	default:
		return false
	}
}

// emitRow maps a row of the database: a session, a message without its parts, or a part.
func emitRow(c *mapper) {
	var in row
	lenient.ReadObject(c.Row, &in)
	if ts, ok := core.TimeOfMillis(in.TimeCreated); ok {
		c.TS = ts
	}
	isImported := c.dialect.IsImported != nil && c.dialect.IsImported(string(in.ID))
	if isImported {
		c.skip = core.SkipMirror
	}
	switch {
	case c.Table == "session":
		s := session{ID: in.ID, ParentID: in.ParentID, Directory: in.Directory, Title: in.Title, Version: in.Version, Revert: in.Revert}
		s.Time.Value.Created = in.TimeCreated
		if isImported {
			learnSession(c, &s) // it may continue here
			return
		}
		emitSession(c, &s)
	case isImported: // the log that it repeats has more
	case c.Table == "message":
		var m info
		lenient.ReadObject(in.Data, &m)
		m.ID, m.SessionID = in.ID, in.SessionID
		noteMessage(c, &m)
	case c.Table == "part":
		var p part
		lenient.ReadObject(in.Data, &p)
		p.ID, p.MessageID, p.SessionID = in.ID, in.MessageID, in.SessionID
		emitPartRow(c, &p)
	default:
		c.Unknown(core.UnknownRecord, c.Table)
		c.put("", core.UnknownDraft())
	}
}

// emitPartRow maps a part in its present form. A text is written whole, so none is pending.
func emitPartRow(c *mapper, p *part) {
	m := messageOf(c, p)
	c.TS = cmp.Or(m.Created, c.TS)
	switch p.Type {
	case "step-start":
		c.skip = core.SkipMirror // the message states what it does
	case "step-finish":
		stepRow(c, m, p, vendorID(p.ID))
	default:
		emitPart(c, m, p, vendorID(p.ID))
	}
}
