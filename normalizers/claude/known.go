package claude

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Known types without a function of their own. A type that neither has a function nor is listed here is counted as
// unknown (normalizers/README.md, Drift).
var (
	// knownRecords are the types of the records that conversation maps.
	knownRecords = map[lenient.Text]bool{
		"assistant": true, "user": true, "started": true, "result": true,
		"atis-latch": true, "frame-link": true, "relocated": true,
	}
	// knownAttachments are the types of attachments that are injected content.
	knownAttachments = map[lenient.Text]bool{
		"agent_listing_delta": true, "auto_mode": true, "batching_reminder_sent": true, "budget_usd": true,
		"command_permissions": true, "compact_file_reference": true, "companion_intro": true, "date_change": true,
		"deferred_tools_delta": true, "diagnostics": true, "directory": true, "dynamic_skill": true, "edited_text_file": true,
		"file": true, "goal_status": true, "hook_additional_context": true, "invoked_skills": true,
		"mcp_instructions_delta": true, "mcp_resource": true, "nested_memory": true, "opened_file_in_ide": true,
		"plan_mode": true, "plan_mode_exit": true, "plan_mode_reentry": true, "read_truncation_notice": true,
		"selected_lines_in_ide": true, "silent_turn_reminder": true, "skill_listing": true, "task_reminder": true,
		"task_status": true, "teammate_mailbox": true, "todo_reminder": true, "total_tokens_reminder": true,
		"ultra_effort_enter": true, "ultra_effort_exit": true,
	}
	// knownBlocks are the types of blocks other than tool calls and results; a fallback states that another model
	// answers.
	knownBlocks = map[lenient.Text]bool{
		"text": true, "thinking": true, "redacted_thinking": true, "image": true, "document": true, "fallback": true,
	}
	// knownOutputs are the types of blocks in a result, other than results of server tools.
	knownOutputs = map[lenient.Text]bool{
		"text": true, "image": true, "document": true, "tool_reference": true, "search_result": true,
	}
	// knownExports are the events of telemetry whose content only their raw record has.
	knownExports = map[string]bool{
		"at_mention": true, "auth": true, "compaction": true, "feedback_survey": true, "hook_execution_complete": true,
		"hook_plugin_metrics": true, "hook_registered": true, "managed_settings_resolved": true, "mcp_server_connection": true,
		"permission_mode_changed": true, "plugin_installed": true, "plugin_loaded": true, "retention_sweep": true,
		"safety_event": true, "skill_activated": true, "subagent_completed": true, "system_prompt": true, "tool": true,
	}
	// knownHooks are the events of hooks whose content only their raw record has.
	knownHooks = map[lenient.Text]bool{
		"ConfigChange": true, "CwdChanged": true, "DirectoryAdded": true, "Elicitation": true, "ElicitationResult": true,
		"FileChanged": true, "InstructionsLoaded": true, "MessageDisplay": true, "PostCompact": true, "PostModelSwitch": true,
		"PostToolBatch": true, "PreCompact": true, "PreModelSwitch": true, "PreSkillShellCommand": true, "SessionEnd": true,
		"SessionStart": true, "Setup": true, "SubagentStart": true, "TaskCompleted": true, "TaskCreated": true,
		"TeammateIdle": true, "UserPromptExpansion": true, "WorktreeCreate": true, "WorktreeRemove": true,
	}
	// knownIterations are the types of steps in a usage. The counts of the message have them, except those of an advisor.
	knownIterations = map[lenient.Text]bool{
		"message": true, "advisor_message": true, "fallback_message": true, "iteration": true,
	}
	// knownDeltas are the types of deltas.
	knownDeltas = map[lenient.Text]bool{
		"": true, "text_delta": true, "thinking_delta": true, "input_json_delta": true, "signature_delta": true, "citations_delta": true,
	}
)

// usageBeside has the known members of a usage that are not token counts.
type usageBeside struct {
	ServiceTier  lenient.Present `json:"service_tier"`
	InferenceGeo lenient.Present `json:"inference_geo"`
	Speed        lenient.Present `json:"speed"`

	Others jsontext.Value `json:",embed"`
}

// noteMessage counts unknown types of blocks and unknown token counts in the message.
func noteMessage(c *mapper) {
	blocks := c.Message.Value.Content.blocks
	for i := range blocks {
		if b := &blocks[i]; !knownBlocks[b.Type] && !b.isCall() && !b.isResult() {
			c.Unknown(core.UnknownBlock, b.Type)
		}
	}
	u := &c.Message.Value.Usage.Value
	for i := range u.Iterations {
		if t := u.Iterations[i].Value.Type; !knownIterations[t] {
			c.Unknown(core.UnknownUsage, "iterations", t)
		}
	}
	c.noteUsage(u)
}

// noteUsage counts unknown members of a usage.
func (e *emitter) noteUsage(u *usage) {
	for _, others := range []jsontext.Value{u.Others, u.CacheCreation.Value.Others, u.OutputDetails.Value.Others, u.ServerToolUse.Value.Others} {
		e.UnknownMembers(core.UnknownUsage, others)
	}
}

// noteOutput counts an unknown form of a result, and unknown types of its blocks.
func noteOutput(c *mapper, b *block) {
	blocks := b.Content.blocks
	for i := range blocks {
		if t := blocks[i].Type; !knownOutputs[t] && !strings.HasSuffix(string(t), "_result") && !strings.HasSuffix(string(t), "_error") {
			c.Unknown(core.UnknownOutput, t)
		}
	}
	switch v := c.ToolUseResult; v.Kind() {
	case '0', 't', 'f':
		c.Unknown(core.UnknownOutput, "toolUseResult", core.OutputForm(v))
	default: // an object, a text, a list of blocks, or nothing
	}
}
