package cursor

import (
	"strings"
	"time"

	"tributary/normalizers/core"
)

// emitPrompt emits the text of a user's message. It ignores white space.
func emitPrompt(m *mapper, text string) {
	kind, text := speechOf(text)
	if kind == core.SpeechHuman {
		kind = m.st.prompt()
	}
	if strings.TrimSpace(text) != "" {
		m.Emit(core.DraftOf(kind, text))
	}
}

// prompt returns whose a prompt is: in the session of a subagent, its parent's.
func (s *state) prompt() core.Speech {
	if s.IsChild {
		return core.SpeechTask
	}
	return core.SpeechHuman
}

// elements are the elements that Cursor puts around and beside a prompt.
var elements = []string{
	"timestamp", "user_info", "git_status", "project_layout", "rules", "user_rules", "always_applied_workspace_rules",
	"agent_requestable_workspace_rules", "cursor_rules_context", "agent_skills", "available_skills", "manually_attached_skills",
	"cursor_commands", "attached_files", "image_files", "code_selection", "open_and_recently_viewed_files", "recently_viewed_files",
	"additional_data", "external_links", "mcp_file_system", "mcp_instructions", "agent_transcripts", "system_reminder", "system-reminder",
	"system_notification", "task_notification", "plan_mode", "ask_mode", "debug_mode", "linter_errors", "edit_history", "terminal_files_information",
	"uploaded_documents", "conversation_summary",
}

// notification is the element that begins what Cursor writes by itself, such as that a task has ended.
const notification = "system_notification"

// speechOf separates what a human typed from what Cursor wrote around it. In a text with <user_query> elements, that
// is their content; in any other, the rest after cutting Cursor's elements from its beginning and end. A text without
// a rest is injected, and so are a notification with the request behind it, and that request alone.
func speechOf(s string) (kind core.Speech, text string) {
	if isNotification(s) {
		return core.SpeechInjected, s
	}
	switch queries := userQueries(s); {
	case len(queries) == 1 && isFollowUp(queries[0]):
		return core.SpeechInjected, s
	case len(queries) > 0:
		return core.SpeechHuman, strings.Join(queries, "\n")
	}
	text, wasCut := cutElements(s)
	if wasCut && text == "" {
		return core.SpeechInjected, s
	}
	return core.SpeechHuman, text
}

// followUp is the request that Cursor writes when a task in the background has ended, also without a notification, and
// followUpQuietly what it may add.
const (
	followUp        = "Briefly inform the user about the task result and perform any follow-up actions (if needed)."
	followUpQuietly = " If there's no follow-ups needed, don't explicitly say that."
)

// isFollowUp reports whether a request is exactly that of Cursor. A longer one is a human's.
func isFollowUp(query string) bool { return query == followUp || query == followUp+followUpQuietly }

// isNotification reports whether Cursor's elements in front of a text have a notification among them.
func isNotification(s string) bool {
	for again := true; again; {
		again = false
		for _, name := range elements {
			if rest, ok := cutFirst(s, name); ok {
				if name == notification {
					return true
				}
				s, again = rest, true
			}
		}
	}
	return false
}

// userQueries returns the contents of the <user_query> elements of a text. The last one may lack its end.
func userQueries(s string) []string {
	var queries []string
	for {
		_, after, ok := strings.Cut(s, "<user_query>")
		if !ok {
			return queries
		}
		query, rest, _ := strings.Cut(after, "</user_query>")
		queries = append(queries, strings.TrimSpace(query))
		s = rest
	}
}

// cutElements cuts Cursor's elements from the beginning and end of a text, and reports whether there were any.
func cutElements(s string) (text string, wasCut bool) {
	text = s
	for again := true; again; {
		again = false
		for _, name := range elements {
			if rest, ok := cutElement(text, name); ok {
				text, wasCut, again = rest, true, true
			}
		}
	}
	return text, wasCut
}

// cutElement cuts an element from the beginning or end of a text.
func cutElement(s, name string) (string, bool) {
	if rest, ok := cutFirst(s, name); ok {
		return rest, true
	}
	trimmed := strings.TrimSpace(s)
	if strings.HasSuffix(trimmed, "</"+name+">") {
		at := max(strings.LastIndex(trimmed, "<"+name+">"), strings.LastIndex(trimmed, "<"+name+" "))
		if at >= 0 {
			return strings.TrimSpace(trimmed[:at]), true
		}
	}
	return s, false
}

// cutFirst cuts an element, which may have attributes, from the beginning of a text.
func cutFirst(s, name string) (string, bool) {
	after, ok := strings.CutPrefix(strings.TrimSpace(s), "<"+name)
	if !ok || after == "" || after[0] != '>' && after[0] != ' ' {
		return s, false
	}
	if _, rest, ok := strings.Cut(after, "</"+name+">"); ok {
		return strings.TrimSpace(rest), true
	}
	return s, false
}

// parsePromptTime converts the time in a prompt of a transcript to the form of an event: "Thursday, Mar 5, 2026,
// 10:15 AM (UTC-8)", or RFC 3339.
func parsePromptTime(s string) (string, bool) {
	s = strings.TrimSpace(s)
	if ts, ok := core.ParseTime(s); ok {
		return ts, true
	}
	clock, zone, ok := strings.Cut(strings.TrimSuffix(s, ")"), " (UTC")
	if !ok || len(s) > 64 {
		return "", false
	}
	hours, minutes, _ := strings.Cut(zone, ":")
	switch {
	case hours == "":
		hours = "+00"
	case len(hours) == 2:
		hours = hours[:1] + "0" + hours[1:]
	}
	if minutes == "" {
		minutes = "00"
	}
	t, err := time.Parse("Monday, Jan 2, 2006, 3:04 PM -07:00", clock+" "+hours+":"+minutes)
	if err != nil || t.UTC().Year() < 0 || t.UTC().Year() > 9999 {
		return "", false
	}
	return t.UTC().Format("2006-01-02T15:04:05Z"), true
}
