package claude

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// system emits the event of a record of type system by its subtype. An unknown subtype makes it a record of an
// unknown type.
func system(c *mapper) {
	switch c.Subtype {
	case "init":
		sessionInit(c)
	case "status":
		if c.CompactError == "" {
			c.skip = core.SkipProgress
			return
		}
		c.putError(c.UUID, "compact_error", string(c.CompactError), string(c.CompactError))
	case "hook_started", "hook_progress", "task_progress", "thinking_tokens":
		c.skip = core.SkipProgress
	case "hook_response":
		hookResponse(c)
	case "permission_denied":
		permissionDenied(c)
	case "task_updated":
		patch := readSystemFacts(c).Patch.Value
		c.putSystem(c.UUID, envelopes.Meta, joinLines(patch.Status, patch.Error))
	case "notification":
		c.putSystem(c.UUID, envelopes.Meta, c.Text)
	case "task_notification":
		c.speak(c.UUID, injected(cmp.Or(c.Summary, c.text())))
	case "local_command":
		if strings.TrimSpace(string(c.text())) == "" {
			c.putSystem(c.UUID, envelopes.Meta, "")
			return
		}
		userText(c, string(c.text()), c.Origin.Value)
	case "away_summary":
		summary(c, c.text())
	case "mirror_error":
		message := string(lenient.Scalar(c.Error))
		c.putError(c.UUID, "", message, message)
	case "api_error", "api_refusal", "api_retry", "error":
		vendorError(c, string(c.text()))
	case "stop_hook_summary":
		stopHookSummary(c)
	case "turn_duration":
		turnDuration(c)
	case "model_refusal_fallback":
		d := core.SystemDraft(envelopes.Log, c.text())
		d.Supersedes = c.retracted() // unless the new answer has replaced it
		c.put(c.UUID, d)
	case "", "informational", "bridge_status", "model_refusal_no_fallback":
		c.putSystem(c.UUID, envelopes.Log, c.text())
	case "agents_killed", "api_metrics", "compact_boundary", "elicitation_complete", "file_snapshot", "files_persisted",
		"local_command_output", "memory_saved", "microcompact_boundary", "permission_retry", "post_turn_summary",
		"prompt_suggestion", "scheduled_task_fire", "session_start", "session_state_changed", "task_started", "thinking":
		c.putSystem(c.UUID, envelopes.Meta, c.text())
	default:
		c.Unknown(core.UnknownRecord, c.Type, c.Subtype)
		unknown(c)
	}
}

// sessionInit emits the first record of a run of the SDK.
func sessionInit(c *mapper) {
	c.flushPartials(nil)
	c.Session.SetModel(string(c.Model))
	c.Session.SetTextExtension("claudeCodeVersion", c.CodeVersion)
	if c.MCPServers.Kind() == '[' {
		c.Session.SetExtension("mcpServers", mcpServers(c.MCPServers))
	}
	text := "Session: " + cmp.Or(c.session(), "unknown")
	if c.Model != "" {
		text += ", Model: " + string(c.Model)
	}
	if c.put(c.UUID, core.SystemDraft(envelopes.SystemMessage, lenient.Text(text))) {
		c.st.Runs.end() // of a run without a result
	}
}

// mcpServers returns a list of MCP servers as a list of objects, because some versions only write the names.
func mcpServers(list jsontext.Value) jsontext.Value {
	out := jsontext.Value{'['}
	for _, v := range lenient.Elements(list) {
		if v.Kind() == '"' {
			v = append(lenient.AppendQuote([]byte(`{"name":`), lenient.Unquote(v)), '}')
		}
		if v = core.EventRaw(v); v.Kind() != '{' {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}

// hookResponse emits the output of a hook.
func hookResponse(c *mapper) {
	output, _ := c.Output.text()
	c.putSystem(c.UUID, envelopes.Log, distinctLines(lenient.Text(output), c.Stdout, c.Stderr))
}

// rateLimit states the used part of an account's limits.
type rateLimit struct {
	Status lenient.Text `json:"status"`
}

// rateLimitEvent emits a warning about the limits of the account. Every run has a record that only states that the
// request was allowed.
func rateLimitEvent(c *mapper) {
	status := c.RateLimitInfo.Value.Status
	if status == "allowed" {
		c.skip = core.SkipHeartbeat
		return
	}
	c.putSystem(c.UUID, envelopes.Log, status)
}

// authStatus emits the state of a login, or its final error.
func authStatus(c *mapper) {
	text, _ := c.Output.text()
	if message := string(lenient.Scalar(c.Error)); message != "" {
		c.putError(c.UUID, "", message, cmp.Or(text, message))
		return
	}
	c.putSystem(c.UUID, envelopes.Log, lenient.Text(text))
}
