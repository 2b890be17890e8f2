package grok

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// record is a line of a chat history, an update, or the summary of a session.
type record struct {
	Type      lenient.Text            `json:"type"`
	Role      lenient.Text            `json:"role"` // instead of a type, in format version 0
	Content   jsontext.Value          `json:"content"`
	Calls     lenient.List[call]      `json:"tool_calls"`
	ModelID   lenient.Text            `json:"model_id"`
	CallID    lenient.Text            `json:"tool_call_id"`
	Reason    lenient.Text            `json:"synthetic_reason"` // why the agent wrote a message of the user
	Index     jsontext.Value          `json:"prompt_index"`
	Summary   jsontext.Value          `json:"summary"` // of a thought
	Thought   lenient.Object[thought] `json:"reasoning"`
	Reasoning lenient.Text            `json:"reasoning_content"` // in format version 0
	Backend   lenient.Object[backend] `json:"kind"`

	// Of an update. Older lines are the params alone.
	Timestamp lenient.Number         `json:"timestamp"` // seconds
	Params    lenient.Object[params] `json:"params"`
	params    `json:",embed"`

	// Of a summary.
	Info       lenient.Object[info]       `json:"info"`
	Model      lenient.Text               `json:"current_model_id"`
	Title      lenient.Text               `json:"generated_title"`
	OldTitle   lenient.Text               `json:"session_summary"`
	Kind       lenient.Text               `json:"session_kind"`
	ParentID   lenient.Text               `json:"parent_session_id"`
	HeadBranch lenient.Text               `json:"head_branch"`
	HeadCommit lenient.Text               `json:"head_commit"`
	Remotes    lenient.List[lenient.Text] `json:"git_remotes"`
	UpdatedAt  lenient.Text               `json:"updated_at"`
}

type thought struct {
	Text lenient.Text `json:"text"`
}

type info struct {
	ID  lenient.Text `json:"id"`
	Cwd lenient.Text `json:"cwd"`
}

// call is a call of a tool. In format version 0 name and arguments are in the function.
type call struct {
	ID        lenient.Text         `json:"id"`
	Name      lenient.Text         `json:"name"`
	Arguments jsontext.Value       `json:"arguments"`
	Function  lenient.Object[tool] `json:"function"`
}

type tool struct {
	Name      lenient.Text   `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
}

// backend is a call that the API ran, with its result.
type backend struct {
	Tool    lenient.Text   `json:"tool_type"`
	Name    lenient.Text   `json:"name"`
	ID      lenient.Text   `json:"id"`
	Status  lenient.Text   `json:"status"`
	Action  jsontext.Value `json:"action"`
	Input   jsontext.Value `json:"input"`
	Code    jsontext.Value `json:"code"`
	Outputs jsontext.Value `json:"outputs"`
}

type action struct {
	Sources jsontext.Value `json:"sources"`
}

// params are what an update states.
type params struct {
	SessionID lenient.Text           `json:"sessionId"`
	Update    lenient.Object[update] `json:"update"`
	Meta      lenient.Object[meta]   `json:"_meta"`
}

type update struct {
	Kind     lenient.Text          `json:"sessionUpdate"`
	PromptID lenient.Text          `json:"prompt_id"`
	Usage    lenient.Object[usage] `json:"usage"`
	Summary  lenient.Text          `json:"summary"` // of a recap
	Error    lenient.Text          `json:"error"`
}

type meta struct {
	EventID lenient.Text   `json:"eventId"` // the session that wrote the update, and a number
	Millis  lenient.Number `json:"agentTimestampMs"`
}

// usage has the tokens of all API calls of a prompt. The input includes the cache, the output the reasoning.
type usage struct {
	Input     lenient.Number `json:"inputTokens"`
	Cached    lenient.Number `json:"cachedReadTokens"`
	Written   lenient.Number `json:"cacheCreationTokens"`
	Output    lenient.Number `json:"outputTokens"`
	Reasoning lenient.Number `json:"reasoningTokens"`
	Ticks     lenient.Number `json:"costUsdTicks"` // 1e10 are a dollar
}

// part is a part of a content.
type part struct {
	Type lenient.Text `json:"type"`
	Text lenient.Text `json:"text"`
}

// textsOf returns the texts of a content, line by line; ok is false if it has none, and attached is true if it has an
// image.
func textsOf(content jsontext.Value) (text string, ok, attached bool) {
	if content.Kind() == '"' {
		return lenient.Unquote(content), true, false
	}
	var texts []string
	for _, v := range lenient.Elements(content) {
		var p part
		lenient.ReadObject(v, &p)
		if p.Type == "image" {
			attached = true
		} else {
			texts = append(texts, string(p.Text))
		}
	}
	return strings.Join(texts, "\n"), texts != nil, attached
}

// tools are the tools of Grok that other agents lack.
var tools = map[string]core.Tool{
	"hashline_read": core.ToolRead,
	"hashline_edit": core.ToolModify,
	"hashline_grep": core.ToolSearch,
}

// repeated are the updates that repeat the chat history, or are only for the screen.
var repeated = strings.Fields(`user_message_chunk agent_message_chunk agent_thought_chunk tool_call tool_call_update
	plan available_commands_update current_mode_update config_option_update session_info_update usage_update
	diff_review retry_state auto_compact_started auto_compact_completed auto_compact_cancelled auto_continue_completed
	memory_flush_started memory_flush_completed memory_dream_completed memory_session_saved feedback_request
	relay_sync_status auto_recovery_started hook_annotation hook_execution hooks_changed plugins_changed
	plugin_updates_installed session_status session_summary_generated session_recap_unavailable last_turn_summary
	compaction_checkpoint rewind_marker task_completed subagent_spawned subagent_progress subagent_finished
	task_backgrounded scheduled_task_created scheduled_task_fired scheduled_task_deleted monitor_event
	model_auto_switched model_changed tool_call_delta_chunk image_compressed image_dropped memory_files
	workflow_updated goal_updated pending_interaction interaction_resolved turn_completed response_started
	reasoning_completed response_completed`)
