package otlp

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/lenient"
)

// Agents that descend from one program export log records with the same names and attributes, each under a prefix of
// its own.

// Counts are the tokens of an API call, also for a wire struct. The input includes the cache.
type Counts struct {
	Input    lenient.Number `json:"input_token_count"`
	Output   lenient.Number `json:"output_token_count"`
	Cached   lenient.Number `json:"cached_content_token_count"`
	Thoughts lenient.Number `json:"thoughts_token_count"`
	Tool     lenient.Number `json:"tool_token_count"`
	Total    lenient.Number `json:"total_token_count"`
}

// Counts returns the tokens that an api_response states.
func (a Attributes) Counts() Counts {
	return Counts{
		Input: a.Number("input_token_count"), Output: a.Number("output_token_count"), Cached: a.Number("cached_content_token_count"),
		Thoughts: a.Number("thoughts_token_count"), Tool: a.Number("tool_token_count"), Total: a.Number("total_token_count"),
	}
}

// APIError returns what an api_error states.
func (a Attributes) APIError() (code, message string) {
	return cmp.Or(a.Text("error.type"), a.Text("status_code")), a.Text("error.message")
}

// End is the end of a call of a tool.
type End struct {
	Name      lenient.Text
	Arguments jsontext.Value // nil for none that are JSON
	Succeeded bool
	Decision  lenient.Text // about its permission; empty for none
	Latency   lenient.Number
	Message   string // of the error
}

// End returns what a tool_call states.
func (a Attributes) End() End {
	e := End{
		Name: lenient.Text(a.Text("function_name")), Arguments: jsontext.Value(a.Text("function_args")),
		Succeeded: a.Text("success") == "true", Decision: lenient.Text(a.Text("decision")), Message: a.Text("error.message"),
	}
	if lenient.ReadValue(e.Arguments) != nil {
		e.Arguments = nil
	}
	if n := a.Number("duration_ms"); n.OK && n.Value >= 0 {
		e.Latency = n
	}
	return e
}

// IsNotice reports whether an event of this name, without the prefix, states nothing of the conversation in any of
// these agents.
func IsNotice(name string) bool { return notices[name] }

var notices = map[string]bool{
	"config": true, "ripgrep_fallback": true, "flash_fallback": true, "next_speaker_check": true, "slash_command": true,
	"slash_command.model": true, "chat_compression": true, "ide_connection": true, "conversation_finished": true,
	"file_operation": true, "chat.content_retry": true, "chat.content_retry_failure": true, "extension_install": true,
	"extension_uninstall": true, "extension_update": true, "extension_enable": true, "extension_disable": true,
	"tool_output_truncated": true, "loop_detected": true, "loop_detection_disabled": true, "hook_call": true,
	"end_session": true,
}
