package core

import (
	"io/fs"
	"slices"
	"strings"
	"time"

	"tributary/envelopes"
)

// Vendor is a row of the table of vendors in package normalizers: all that the rest of the program knows about the
// maker of an agent.
type Vendor struct {
	Source envelopes.Source
	Name   string // of the agent, as its users write it
	Reads  string // in Markdown: what can be read from a file or a pipe besides Logs; may be empty

	// Recognize returns what identifies a record of this shape as one of the vendor: names of members, and values
	// defined by the vendor, but no content. It returns an empty string if the record may be someone else's. Rows are
	// asked in table order, and the first that recognizes a record of a file decides for the whole file.
	Recognize func(*Shape) string
	// Session returns the session stated in a record of the vendor; empty for none.
	Session func(*Shape) string
	// Time returns the time stated in a record of the vendor; zero for none.
	Time func(*Shape) time.Time

	Framing Framing
	// LogOf are the agents whose logs this one writes, so that a record may look like one of theirs. In a folder of this
	// agent such a file is this agent's.
	LogOf []envelopes.Source

	Normalize Normalizer
	// NewState returns the empty [State] of a session; NewState is nil if the vendor needs none.
	NewState func() State

	// Checked is the newest version of the agent whose logs or source were compared with this normalizer, as on the
	// vendor's page. [Vendor.IsNewer] compares versions with it.
	Checked string
	// Version returns the version of the agent that the session stated last, as in the log; empty if unknown. Version
	// is nil if no log of the vendor states one.
	Version func(*Session) string

	Evidence Evidence

	Logs      Logs
	Database  *Database  // nil if the agent has none
	Telemetry *Telemetry // nil if what the agent exports is not read
	// Files are those of the vendor's folder that the program has: samples, and ignored.txt.
	Files fs.FS
}

// Samples returns logs for trying the program, laid out like the folder that Logs.Env names.
func (v *Vendor) Samples() fs.FS {
	samples, err := fs.Sub(v.Files, "samples")
	if err != nil {
		panic(err) // samples is a valid name
	}
	return samples
}

// Ignored returns the paths of members that are known and not read, one a line, in order. They are in the file
// ignored.txt, which TestIgnored writes.
func (v *Vendor) Ignored() string {
	paths, err := fs.ReadFile(v.Files, "ignored.txt")
	if err != nil {
		panic(err) // it is embedded in the program
	}
	return string(paths)
}

// Framing is how files of a vendor are cut into records and sessions if they are not lines of JSON that each state
// their session. The zero value is for such lines.
type Framing struct {
	// IsDocument reports whether the record is a whole file that the vendor rewrites in place.
	IsDocument func(*Shape) bool
	// IsList reports whether the elements of an array are separate records.
	IsList func(*Shape) bool
	// IsShared reports whether an agent whose LogOf has this one may have written a record in the same way. Until the
	// first record of a file that is not shared, a record that shows such an agent decides for the whole file.
	IsShared func(*Shape) bool
	// IsWhole reports whether a record may be one of the vendor, and cannot be a part of another record: the framer
	// then looks for it behind a torn line.
	IsWhole func(*Shape) bool
	// IsReadable reports whether a record that is JSON belongs to the vendor's protocol.
	IsReadable func(data []byte) bool

	OneSession   bool // a file has one session: the first that it states
	ServerEvents bool // a file may be a stream of server-sent events
	PlainLines   bool // a line that is not JSON is a record of its session, too
	// IsPrinted reports whether a record shows that its file was printed by a run. Lines of text in the file are then
	// records of the session, even, by [IsFrontText], those before that record.
	IsPrinted func(*Shape) bool
	// PrintedText is set if a file may be plain text in which each line is a record.
	PrintedText *PrintedText
	// FolderNamed are the names, without extension, of files that every session has in a folder of its own: the folder
	// of such a file is named after the session.
	FolderNamed []string
	// SessionOfPath returns the session of a file by its path with '/', if the records state none; empty for a path
	// that does not show it. Nil if no path does.
	SessionOfPath func(path string) string
	// ParentOfPath returns the session that started that of a file as a subagent, by the path of the file with '/', if
	// no record states it; empty for none. Nil if no path shows it.
	ParentOfPath func(path string) string
}

// PrintedText is how the session of plain text is recognized. The text does not state it, so a line that does is
// added once the session is found.
type PrintedText struct {
	// Session returns the session stated in a line; empty for none.
	Session func(line []byte) string
	// Line returns the line that states a session, including its line end.
	Line func(session string) string
	// SessionOfLog returns the session after which a log of this name is named; empty for any other file. The agent
	// creates such a log while it prints.
	SessionOfLog func(name string) string
	Flag         string // of tributary ship, naming the folder of such logs
}

// Logs are the folders with an agent's logs on its user's machine. The zero value is for an agent that keeps none.
type Logs struct {
	Env     string // variable with comma-separated folders that replace Home
	Home    string // folder of the agent below the user's home, with '/'; empty for the home itself
	About   string // description of Env for the table of settings
	Folders []LogFolder
}

// Telemetry is how records that an agent exports by OpenTelemetry are recognized: by the service or by the scope.
type Telemetry struct {
	Services []string // values of service.name, which users may change
	Scopes   []string // beginnings of the names of instrumentation scopes
	// Conventions is set for whoever no other row matches and uses attributes of the conventions for generative AI.
	Conventions bool
	Sessions    []string // attributes with the session: the first that a record, its scope or its resource has
	// SessionOf returns the session of a record whose attributes state another one; nil if they never do.
	SessionOf func(stated string, attribute func(name string) string) string
	// Sequence is the attribute that numbers the records of a process in their session; empty if no attribute does.
	Sequence string
	// Hooks is the last part of the path to which the agent posts its hooks, which state a session_id; empty if it
	// posts none.
	Hooks string
}

// Matches reports whether the agent exports under the names of a service and a scope.
func (t *Telemetry) Matches(service, scope string) bool {
	return slices.Contains(t.Services, service) ||
		slices.ContainsFunc(t.Scopes, func(prefix string) bool { return strings.HasPrefix(scope, prefix) })
}

// LogFolder is one of the folders in Logs.
type LogFolder struct {
	Dir      string   // below the agent's folder, with '/'
	Prefix   string   // of log names; empty for any
	Suffixes []string // suffixes of log names, without that of packing; other files are no logs
	Within   string   // folder that logs lie in, at any depth below Dir; empty if all folders do
	// Archived is what the agent adds to the name of a log that it archives, up to a time, such as ".reset.": the name
	// before it is the identity of the log.
	Archived []string
	Beside   []string // suffixes of files beside logs that end like logs and repeat what these have
	// Full is the name of the log that has all of every other log in its folder: those are not read where it is.
	Full string
	// Editor is set if Dir is below the user data of VS Code, and of each editor built on it.
	Editor bool
	// Moved is set if the agent moves a log to another folder under the same unique name: the name alone is then the
	// identity of the log.
	Moved bool
}

// editorData are the folders with the user data of VS Code and of editors built on it, below the user's home: on
// Linux, macOS and Windows, and on a server to which the editor connects.
var editorData = func() []string {
	var out []string
	for _, settings := range []string{".config", "Library/Application Support", "AppData/Roaming"} {
		for _, editor := range []string{"Code", "Code - Insiders", "Cursor", "Windsurf", "VSCodium"} {
			out = append(out, settings+"/"+editor+"/User")
		}
	}
	return append(out, ".vscode-server/data/User")
}()

// Dirs returns the folders below the agent's folder, with '/'.
func (f LogFolder) Dirs() []string {
	if !f.Editor {
		return []string{f.Dir}
	}
	out := make([]string, 0, len(editorData))
	for _, data := range editorData {
		out = append(out, data+"/"+f.Dir)
	}
	return out
}
