package core

import (
	"io/fs"
	"time"

	"tributary/envelopes"
)

// Vendor is a row of the table of vendors: all that the rest of the program knows of the
// maker of an agent. The table is in package normalizers.
type Vendor struct {
	Source envelopes.Source
	Name   string // of the agent, as its users write it
	Reads  string // in Markdown: what is read from a file or a pipe beside the logs of Logs; may be empty

	// Recognize returns by what a record of this shape is known as one of the vendor: names of
	// members, and values that the vendor alone decides about, but no content. It is empty where the
	// record may be of somebody else. The rows are asked in the order of the table, and the first
	// that recognizes a record of a file decides about the whole file.
	Recognize func(*Shape) string
	// Session returns the session that a record of the vendor states itself; empty when it
	// states none.
	Session func(*Shape) string
	// Time returns the time that a record of the vendor states itself; zero when it states
	// none.
	Time func(*Shape) time.Time

	Framing Framing

	Normalize Normalizer
	// NewState makes the empty [State] of a session; nil when the vendor needs none.
	NewState func() State

	// Checked is the newest version of the agent whose logs or source were compared with this
	// normalizer, as the page of the vendor states it. [Vendor.IsNewer] compares it.
	Checked string
	// Version returns the version of the agent that the session has stated last, as the log
	// states it; empty where none is known. Nil where no log of the vendor states one.
	Version func(*Session) string

	Logs Logs
	// Samples are logs to try the program with. They lie in a folder of the name samples, laid
	// out as in the folder that Logs.Env names.
	Samples fs.FS
}

// Framing is how the files of a vendor are cut into records and sessions, where they
// depart from lines of JSON of which each states its session. The zero value departs in
// nothing.
type Framing struct {
	// IsDocument reports whether the record is a whole file, which the vendor rewrites in
	// place.
	IsDocument func(*Shape) bool
	// IsList reports whether the elements of an array are records of their own.
	IsList func(*Shape) bool
	// IsWhole reports whether a record is one of the vendor, if only maybe, and cannot be a part of
	// another record: it is then looked for behind a line that was torn off.
	IsWhole func(*Shape) bool
	// IsReadable reports whether a record that is JSON is one of the vendor's protocol.
	IsReadable func(data []byte) bool

	OneSession   bool // a file is of one session: the first that it states
	ServerEvents bool // a file may be a stream of server-sent events
	PlainLines   bool // a line that is not JSON is a record of its session too
	// IsPrinted reports whether a record shows that its file is what a run has printed: lines of text in it are records of
	// the session too, by [IsFrontText] also those before that record.
	IsPrinted func(*Shape) bool
	// PrintedText is set where a file may be plain text, of which each line is a record.
	PrintedText *PrintedText
	// FolderNamed is the name, without extension, that all files of the vendor share: the
	// folder of such a file is named after the session.
	FolderNamed string
}

// PrintedText is how the session of plain text is known. The text itself does not state it: a
// line is added that does, as soon as the session is found.
type PrintedText struct {
	// Session returns the session that a line states; empty when it states none.
	Session func(line []byte) string
	// Line returns the line that states a session, with its line end.
	Line func(session string) string
	// SessionOfLog returns the session that a log of this name is named after; empty for any
	// other file. The agent makes such a log while it prints its text.
	SessionOfLog func(name string) string
	Flag         string // of tributary ship, which names the folder of such logs
}

// Logs are the folders in which an agent keeps its logs on the machine of its user. The
// zero value is that of an agent that keeps none.
type Logs struct {
	Env     string // variable with folders, separated by commas, that take the place of Home
	Home    string // folder of the agent below the user's home, with '/'; empty for the home itself
	About   string // what Env names, for the table of settings
	Folders []LogFolder
}

// LogFolder is one of the folders of Logs.
type LogFolder struct {
	Dir      string   // below the agent's folder, with '/'
	Suffixes []string // of the names of logs, without that of a packed one; other files are none
	Within   string   // folder that logs lie in, at any depth below Dir; empty where all do
	// Moved is set where the agent moves a log to another folder and keeps its name, which no
	// other log has: then the name alone is the identity of the log.
	Moved bool
}
