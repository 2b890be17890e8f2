package envelopes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of one event.
const (
	// MaxIDBytes bounds session_id, event_id, parent_event_id and supersedes. An id appears
	// several times, percent-encoded, in the headers of a message, which the broker bounds to
	// 64 KiB.
	MaxIDBytes = 1024
	// maxCount bounds every count: the largest integer that all readers of JSON hold exactly.
	// A sum of five counts cannot overflow.
	maxCount = 1<<53 - 1
)

// Validate reports the first rule that e breaks: required fields, enums, the role table,
// parents (a user_message has none), timestamps, bounds of ids and counts, tokens_total as the
// sum of usage, and UTF-8 in every string. The error wraps [ErrInvalidEvent] and names the
// field, never its value.
//
// Validate reads only the first byte of raw, tool_metadata, tool_input, message_metadata and the extensions of
// metadata. [AgentEventV1.AppendJSON] parses them completely anyway, and rejects input that is not strict JSON.
func (e *AgentEventV1) Validate() error {
	return cmp.Or(
		e.validateIdentity(),
		e.validateNature(),
		e.validateTokens(),
		e.validateStrings(),
		e.validateJSON(),
	)
}

// invalid is the error of a field that breaks a rule.
func invalid(field, rule string) error {
	return fmt.Errorf("%w: %s %s", ErrInvalidEvent, field, rule)
}

// validateIdentity checks the ids, the session, the time and the position of e.
func (e *AgentEventV1) validateIdentity() error {
	switch {
	case e.SchemaVersion != SchemaVersion:
		return invalid("schema_version", "is not "+SchemaVersion)
	case !slices.Contains(Sources, e.Source):
		return invalid("source", "is unknown")
	case e.ProjectHash == "":
		return invalid("project_hash", "is empty")
	case e.SessionID == "" || len(e.SessionID) > MaxIDBytes:
		return invalid("session_id", "is empty or too long")
	case e.EventID == "" || len(e.EventID) > MaxIDBytes:
		return invalid("event_id", "is empty or too long")
	case e.ParentEventID != nil && e.EventType == UserMessage:
		return invalid("parent_event_id", "is set on a user_message")
	case e.ParentEventID != nil && (*e.ParentEventID == "" || len(*e.ParentEventID) > MaxIDBytes):
		return invalid("parent_event_id", "is empty or too long")
	case len(e.Supersedes) > MaxIDBytes:
		return invalid("supersedes", "is too long")
	case e.Supersedes == e.EventID:
		return invalid("supersedes", "is the event itself")
	case !validTimestamp(e.TS):
		return invalid("ts", "is not RFC 3339 in UTC with Z")
	case e.Sequence < 1:
		return invalid("sequence", "is below 1")
	}
	return nil
}

// validateNature checks the enums and the combinations that they allow.
func (e *AgentEventV1) validateNature() error {
	allowed := RolesOf(e.EventType)
	switch {
	case allowed == nil:
		return invalid("event_type", "is unknown")
	case e.Role == nil || !slices.Contains(allowed, *e.Role):
		return invalid("role", "is not one that event_type allows")
	case !knownOrNil(channels, e.Channel):
		return invalid("channel", "is unknown")
	case !knownOrNil(toolStatuses, e.ToolStatus):
		return invalid("tool_status", "is unknown")
	case !knownOrNil(fileOps, e.FileOp):
		return invalid("file_op", "is unknown")
	case e.Origin != "" && !slices.Contains(origins, e.Origin):
		return invalid("origin", "is unknown")
	case e.Via != "" && !slices.Contains(vias, e.Via):
		return invalid("via", "is unknown")
	case e.ToolLatencyMS != nil && !validCount(*e.ToolLatencyMS):
		return invalid("tool_latency_ms", "is not a count")
	}
	for i := range e.Files {
		switch f := &e.Files[i]; {
		case f.Path == "" || !utf8.ValidString(f.Path):
			return invalid("files", "has a path that is empty or not UTF-8")
		case !slices.Contains(fileOps, f.Op):
			return invalid("files", "has an unknown op")
		}
	}
	return nil
}

// validateTokens checks every count, and that tokens_total is the sum of usage on every event
// with tokens.
func (e *AgentEventV1) validateTokens() error {
	tokens := false
	for _, f := range [...]struct {
		name  string
		count *int64
	}{
		{"tokens_input", e.TokensInput},
		{"tokens_output", e.TokensOutput},
		{"tokens_total", e.TokensTotal},
		{"tokens_cached", e.TokensCached},
		{"tokens_thinking", e.TokensThinking},
		{"tokens_tool", e.TokensTool},
	} {
		if f.count == nil {
			continue
		}
		if !validCount(*f.count) {
			return invalid(f.name, "is not a count")
		}
		tokens = true
	}
	u := e.Usage
	switch {
	case u == nil && !tokens:
		return nil
	case u == nil:
		return invalid("usage", "is missing on an event that has tokens")
	case !validCount(u.Input), !validCount(u.CacheRead), !validCount(u.CacheWrite),
		!validCount(u.Output), !validCount(u.Reasoning):
		return invalid("usage", "has a part that is not a count")
	case !validCount(u.CacheWrite1h), !validCount(u.WebSearchRequests), !validCount(u.Prompt):
		return invalid("usage", "has a figure that is not a count")
	case u.CacheWrite1h > u.CacheWrite:
		return invalid("usage", "has a cache_write_1h above its cache_write")
	case !(u.CostUSD >= 0 && u.CostUSD <= MaxCostUSD): // and not NaN
		return invalid("usage", "has a cost_usd that is no amount")
	case !utf8.ValidString(u.Key):
		return invalid("usage", "has a key that is not UTF-8")
	case e.TokensTotal == nil || *e.TokensTotal != u.Total():
		return invalid("tokens_total", "is not the sum of usage")
	}
	return nil
}

// validateStrings checks that every free string is UTF-8.
func (e *AgentEventV1) validateStrings() error {
	for _, f := range [...]struct{ name, value string }{
		{"project_hash", e.ProjectHash},
		{"session_id", e.SessionID},
		{"event_id", e.EventID},
		{"supersedes", e.Supersedes},
	} {
		if !utf8.ValidString(f.value) {
			return invalid(f.name, "is not UTF-8")
		}
	}
	for _, f := range [...]struct {
		name  string
		value *string
	}{
		{"project_root", e.ProjectRoot},
		{"parent_event_id", e.ParentEventID},
		{"text", e.Text},
		{"tool_name", e.ToolName},
		{"tool_call_id", e.ToolCallID},
		{"file_path", e.FilePath},
		{"file_language", e.FileLanguage},
		{"model", e.Model},
		{"agent_id", e.AgentID},
	} {
		if f.value != nil && !utf8.ValidString(*f.value) {
			return invalid(f.name, "is not UTF-8")
		}
	}
	if o := e.ToolOutput; o != nil && !(validText(o.Stdout) && validText(o.Stderr) && validText(o.Diff)) {
		return invalid("tool_output", "is not UTF-8")
	}
	if d := e.Edge; d != nil && !(utf8.ValidString(d.Host) && utf8.ValidString(d.User) && validLabels(d.Labels)) {
		return invalid("edge", "is not UTF-8")
	}
	if d := e.Edge; d != nil && d.Verified && d.User == "" {
		return invalid("edge", "has a verified user without a name")
	}
	if v := e.VCS; v != nil && !(utf8.ValidString(v.Repository) && utf8.ValidString(v.Branch) && utf8.ValidString(v.Commit) && utf8.ValidString(v.PullRequest)) {
		return invalid("vcs", "is not UTF-8")
	}
	if c := e.Content; c != nil && !(utf8.ValidString(c.Type) && validText(c.Data) && validText(c.URL)) {
		return invalid("content", "is not UTF-8")
	}
	return nil
}

// validText reports whether a string is nil or UTF-8.
func validText(s *string) bool { return s == nil || utf8.ValidString(*s) }

// validLabels reports whether names and values are UTF-8.
func validLabels(labels map[string]string) bool {
	for name, value := range labels {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return false
		}
	}
	return true
}

// validateJSON checks metadata and the first byte of each field of native JSON.
func (e *AgentEventV1) validateJSON() error {
	switch {
	case e.Raw != nil && e.Raw.Kind() == jsontext.KindInvalid:
		return invalid("raw", "is not JSON")
	case e.ToolMetadata != nil && e.ToolMetadata.Kind() != jsontext.KindBeginObject:
		return invalid("tool_metadata", "is not an object")
	case e.ToolInput != nil && e.ToolInput.Kind() == jsontext.KindInvalid:
		return invalid("tool_input", "is not JSON")
	case e.MessageMetadata != nil && e.MessageMetadata.Kind() != jsontext.KindBeginArray:
		return invalid("message_metadata", "is not an array")
	case e.Metadata == nil:
		return nil
	}
	m := e.Metadata
	if m.SessionID != nil && !utf8.ValidString(*m.SessionID) || m.Model != nil && !utf8.ValidString(*m.Model) {
		return invalid("metadata", "has an id that is not UTF-8")
	}
	for name, value := range m.Extensions {
		switch {
		case name == "sessionId" || name == "model":
			return invalid("metadata", "has an extension with the name of a standard key")
		case !utf8.ValidString(name):
			return invalid("metadata", "has a name that is not UTF-8")
		case value.Kind() == jsontext.KindInvalid:
			return invalid("metadata", "has an extension that is not JSON")
		}
	}
	return nil
}

// knownOrNil reports whether value is null or a value of the enum.
func knownOrNil[T comparable](enum []T, value *T) bool {
	return value == nil || slices.Contains(enum, *value)
}

// validCount reports whether n is within the bounds of a count.
func validCount(n int64) bool { return 0 <= n && n <= maxCount }

// validTimestamp reports whether s is RFC 3339 in UTC with Z. [time.Parse] also reads an
// hour of one digit and a comma before the fraction; this function rejects both.
func validTimestamp(s string) bool {
	_, err := time.Parse(time.RFC3339Nano, s)
	return err == nil && strings.HasSuffix(s, "Z") && s[len("2006-01-02T15")] == ':' && s[len("2006-01-02T15:04:05")] != ','
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
