package goose

import (
	"embed"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is Goose's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.Goose,
	Name:   "Goose",
	Reads:  "logs of versions before 1.10",

	Recognize: marker,
	Session:   sessionOf,
	Time:      timeOf,

	Normalize: chat.Normalizer(nil, read),
	NewState:  chat.NewState,

	Checked: "1.45",
	Evidence: core.Evidence{
		Versions: "1.45",
		Read:     []core.Basis{core.Fixtures, core.Code},
		Limits:   "exports, tokens of compactions that no message states; its session ids are unique on one machine alone",
	},

	Database: &core.Database{
		Env: "GOOSE_PATH_ROOT", Below: "data/sessions/sessions.db", About: "folder of Goose; default the usual ones of the system",
		Folders: []string{".local/share/goose/sessions", "AppData/Roaming/Block/goose/data/sessions"}, Names: []string{"sessions.db"},
		// The other columns have settings of extensions and parameters of recipes, which may be secrets. The table
		// usage_ledger repeats what messages state.
		Tables: []core.Table{{
			Name: "sessions", Key: "id", Version: "updated_at", Order: "created_at", JSON: []string{"model_config_json"},
			Columns:  []string{"name", "session_type", "working_dir", "created_at", "provider_name", "model_config_json"},
			Optional: []string{"parent_session_id", "accumulated_input_tokens", "accumulated_output_tokens", "accumulated_cache_read_tokens"},
		}, {
			Name: "messages", Key: "id", Order: "created_timestamp", JSON: []string{"content_json", "metadata_json"},
			Columns:  []string{"session_id", "role", "content_json", "created_timestamp"},
			Optional: []string{"message_id", "metadata_json"}, Parent: "session_id", Of: "sessions",
		}},
	},
	Files: embedded,
}

// marker recognizes a row of the database, and a line of older versions.
func marker(s *core.Shape) string {
	switch {
	case isRow(s, "sessions") && s.Kind("row", "working_dir") == '"' && s.Kind("row", "session_type") != 0:
		return "table sessions, working_dir, session_type"
	case isRow(s, "messages") && s.Kind("row", "content_json") != 0 && s.Kind("row", "created_timestamp") != 0:
		return "table messages, content_json"
	case isHeader(s):
		return "working_dir, message_count"
	case s.Text("role") != "" && s.Kind("created") == '0' && s.Kind("content") == '[':
		return "role, created, content"
	default:
		return ""
	}
}

func isRow(s *core.Shape, table string) bool { return s.Kind("row") == '{' && s.Text("table") == table }

// isHeader recognizes the first line of a log of older versions.
func isHeader(s *core.Shape) bool {
	return s.Text("working_dir") != "" && (s.Kind("message_count") == '0' || s.Kind("description") == '"')
}

// sessionOf returns the session. A log of older versions is named after it.
func sessionOf(s *core.Shape) string {
	switch {
	case isRow(s, "sessions"):
		return s.Text("row", "id")
	case isRow(s, "messages"):
		return s.Text("row", "session_id")
	default:
		return ""
	}
}

// timeOf returns the time stated in a record.
func timeOf(s *core.Shape) time.Time {
	if t, ok := core.ParseTime(stampOf(s.Text("row", "created_at"))); ok {
		at, _ := time.Parse(time.RFC3339Nano, t)
		return at
	}
	for _, path := range [][]string{{"created"}, {"row", "created_timestamp"}} {
		if v := s.Value(path...); v != nil {
			if at, ok := core.MomentOfMillis(millisOf(lenient.NumberOf(v))); ok {
				return at
			}
		}
	}
	return time.Time{}
}
