package opencode

import (
	"cmp"
	"embed"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

//go:embed all:samples ignored.txt
var embedded embed.FS

// Vendor is OpenCode's row of the table of vendors.
var Vendor = core.Vendor{
	Source: envelopes.OpenCode,
	Name:   "OpenCode",
	Reads:  "`opencode export`, `opencode run --format json`, messages and events of `opencode serve`",

	Recognize: marker,
	Session:   sessionOf,
	Time:      timeOf,

	Framing: core.Framing{
		IsDocument:   isDocument,
		IsList:       isList,
		IsWhole:      isWhole,
		ServerEvents: true,
	},

	Normalize: Normalizer(&Dialect{}),
	NewState:  func() core.State { return &State{} },

	Checked: "1.18.21",
	Evidence: core.Evidence{
		Versions: "0.14.6 to 1.18.21",
		Read:     []core.Basis{core.RealLogs, core.Fixtures, core.Code},
		Limits:   "tables of versions 2, the tree `storage/` of versions before 1.2",
	},
	Version: func(s *core.Session) string { return s.TextExtension("version") },

	Database: &database,
	Files:    embedded,
}

// State is what a session of OpenCode remembers beyond what all vendors do.
type State struct {
	Child    bool              `json:"child,omitzero"`   // the session is that of a subagent
	Created  int64             `json:"created,omitzero"` // when the session began, in milliseconds since 1970
	Version  string            `json:"version,omitzero"` // of OpenCode
	Revert   core.Fingerprint  `json:"revert,omitzero"`  // what the session is taken back to
	Document core.DocumentHead `json:"doc,omitzero"`
	Steps    steps             `json:"steps,omitzero"`
	messages
	pendingParts
	statedErrors
}

// stateOf returns what the session remembers of OpenCode.
func stateOf(s *core.Session) *State { return s.State.(*State) }

// Clone implements [core.State].
func (s *State) Clone() core.State { c := *s; return &c }

// Size implements [core.State].
func (s *State) Size() int {
	n := len(s.Version) + 64*len(s.Errors)
	for i := range s.Messages {
		n += 64 + len(s.Messages[i].Model)
	}
	for i := range s.Pending {
		p := &s.Pending[i]
		n += 256 + len(p.ID) + len(p.Text) + len(p.Message.Model) + p.From.Size()
	}
	return n
}

// Shrink implements [core.State]: the oldest of the pending parts goes, then all messages
// and errors at once.
func (s *State) Shrink() bool {
	switch {
	case len(s.Pending) > 1:
		s.Pending = s.Pending[1:]
	case len(s.Pending) == 1:
		s.Pending = nil
	case len(s.Messages) > 0 || len(s.Errors) > 0:
		s.Messages, s.Errors = nil, nil
	default:
		return false
	}
	return true
}

// marker recognizes an export, a message with its parts, an event of the server, a line of a
// run, and an array of any of the last three.
func marker(s *core.Shape) string {
	switch {
	case s.First != nil && !isExport(s.First):
		return marker(s.First)
	case isExport(s):
		return "info, messages"
	case isMessage(s):
		return "info, parts"
	case isEvent(s):
		return "type with a dot, properties"
	case isRunLine(s):
		return "type, sessionID, timestamp in milliseconds"
	case IsRow(s):
		return "table, row"
	default:
		return ""
	}
}

// isExport recognizes the document of `opencode export`.
func isExport(s *core.Shape) bool { return s.Kind("info") == '{' && s.Kind("messages") == '[' }

// isMessage recognizes a message with its parts.
func isMessage(s *core.Shape) bool { return s.Kind("info") == '{' && s.Kind("parts") == '[' }

// isEvent recognizes an event of the server, also in the envelope of its global stream. The
// types of events have a dot, which distinguishes them from those of a JSON Schema. An event without
// properties may have an empty list of them.
func isEvent(s *core.Shape) bool {
	kind, properties := s.Text("type"), s.Kind("properties")
	if s.Kind("payload") == '{' {
		kind, properties = s.Text("payload", "type"), s.Kind("payload", "properties")
	}
	return strings.Contains(kind, ".") && (properties == '{' || properties == '[')
}

// isRunLine recognizes a line of `opencode run --format json`.
func isRunLine(s *core.Shape) bool {
	return s.Text("type") != "" && s.Text("sessionID") != "" && s.Number("timestamp").OK && (s.Kind("part") == '{' || s.Text("type") == "error")
}

// isDocument recognizes what is written anew as a whole: an export, the list of messages that
// the server returns, and a recording that was saved as an array.
func isDocument(s *core.Shape) bool { return s.First != nil || isExport(s) }

// isList recognizes a recording that was saved as an array.
func isList(s *core.Shape) bool { return s.First != nil && (isEvent(s.First) || isRunLine(s.First)) }

// isWhole recognizes a line of a recording, which is part of no other record.
func isWhole(s *core.Shape) bool { return isRunLine(s) || isEvent(s) && sessionOf(s) != "" }

// sessionOf returns the session that a record states itself.
func sessionOf(s *core.Shape) string {
	if s.First != nil {
		s = s.First
	}
	switch {
	case IsRow(s) && s.Text("table") == "session":
		return vendorID(s.Text("row", "id"))
	case IsRow(s):
		return vendorID(s.Text("row", "session_id"))
	case isExport(s):
		return vendorID(s.Text("info", "id"))
	case isMessage(s):
		return vendorID(s.Text("info", "sessionID"))
	case isEvent(s):
		var envelope []string
		if s.Kind("payload") == '{' {
			envelope = []string{"payload"}
		}
		text := func(path ...string) string { return vendorID(s.Text(slices.Concat(envelope, path)...)) }
		id := cmp.Or(text("properties", "sessionID"), text("properties", "part", "sessionID"), text("properties", "info", "sessionID"))
		if id == "" && strings.HasPrefix(text("type"), "session.") {
			id = text("properties", "info", "id")
		}
		return id
	default:
		return vendorID(s.Text("sessionID"))
	}
}

// timeOf returns the time that a record states itself.
func timeOf(s *core.Shape) time.Time {
	if s.First != nil {
		s = s.First
	}
	for _, path := range [][]string{
		{"timestamp"},
		{"info", "time", "created"},
		{"properties", "part", "time", "start"},
		{"properties", "part", "state", "time", "start"},
		{"properties", "info", "time", "updated"},
		{"properties", "info", "time", "created"},
		{"row", "time_created"},
	} {
		for _, path := range [][]string{path, slices.Concat([]string{"payload"}, path)} {
			if t, ok := timeOfMillis(s.Value(path...)); ok {
				return t
			}
		}
	}
	return time.Time{}
}

// timeOfMillis returns the time of a number of milliseconds since 1970.
func timeOfMillis(v jsontext.Value) (time.Time, bool) {
	if v == nil {
		return time.Time{}, false
	}
	return core.MomentOfMillis(lenient.NumberOf(v))
}
