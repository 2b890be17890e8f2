package opencodetest

import "strings"

// resumeID follows the id that resumes a session: the session's own, else the first that one of its records states.
func resumeID() func(session string, record any) string {
	known := make(map[string]string)
	return func(session string, v any) string {
		if id := sessionOf(v); known[session] == "" || id != "" && statesSession(v) {
			known[session] = id
		}
		return known[session]
	}
}

// statesSession reports whether a record is about the session itself: an export, or an event of it.
func statesSession(v any) bool {
	if p := object(v, "payload"); p != nil {
		v = p
	}
	return list(v, "messages") != nil || object(v, "row") != nil && str(v, "table") == "session" || strings.HasPrefix(str(v, "type"), "session.") && object(v, "properties", "info") != nil
}
