package copilot

import "regexp"

// sessionLog matches the name of a session's log: `copilot -p` does not print its session, but names a log after it
// in the folder of its option --log-dir.
var sessionLog = regexp.MustCompile(`^(?:session-)?([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})\.log$`)

// sessionOfLog returns the session after which a log is named, in the spelling of the name; empty for other files.
func sessionOfLog(name string) string {
	if m := sessionLog.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}

// lineOfSession returns the line that states the session of the plain text around it, for [sessionOfLine].
func lineOfSession(session string) string { return "[copilot-session] " + session + "\n" }
