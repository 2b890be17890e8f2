package opencodetest

import "strings"

// resumeID follows which id resumes a session: that of the session itself, else the first that one of its records states.
func resumeID() func(session string, record any) string {
	known := make(map[string]string)
	return func(session string, v any) string {
		if id := sessionOf(v); known[session] == "" || id != "" && statesSession(v) {
			known[session] = id
		}
		return known[session]
	}
}

// statesSession reports whether a record is of the session itself: an export, or an event of it.
func statesSession(v any) bool {
	if p := object(v, "payload"); p != nil {
		v = p
	}
	return list(v, "messages") != nil || strings.HasPrefix(str(v, "type"), "session.") && object(v, "properties", "info") != nil
}
