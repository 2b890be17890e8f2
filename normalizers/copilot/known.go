package copilot

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What is known beside the types that a function is for (record.go, document.go): whatever
// stands neither there nor here is counted as unknown (normalizers/README.md, Drift).
var (
	// knownRecords are the types of records that are one meta event.
	knownRecords = names(`assistant.idle assistant.intent assistant.turn_end assistant.turn_start
		auto_mode_switch.completed auto_mode_switch.requested capabilities.changed command.completed command.execute
		command.queued commands.changed elicitation.completed elicitation.requested exit_plan_mode.completed
		exit_plan_mode.requested external_tool.completed external_tool.requested factory.run_settled factory.run_started
		factory.run_updated hook.end hook.start mcp.headers_refresh_completed mcp.headers_refresh_required
		mcp.oauth_completed mcp.oauth_required mcp.prompts.list_changed mcp.resources.list_changed mcp.tools.list_changed
		mcp_app.tool_call_complete pending_messages.modified permission.completed permission.requested sampling.completed
		sampling.requested session.autopilot_objective_changed session.background_tasks_changed session.binary_asset
		session.canvas.closed session.canvas.opened session.canvas.recorded session.canvas.registry_changed
		session.canvas.removed session.canvas.unavailable session.compaction_start session.context_cleared
		session.custom_agents_updated session.custom_notification session.extensions.attachments_pushed
		session.extensions_loaded session.idle session.managed_settings_enforced session.managed_settings_resolved
		session.mcp_server_status_changed session.mcp_servers_loaded session.mode_changed session.permissions_changed
		session.plan_changed session.remote_steerable_changed session.schedule_cancelled session.schedule_created
		session.schedule_rearmed session.session_limits_changed session.skills_loaded session.snapshot_rewind
		session.todos_changed session.truncation session.usage_checkpoint session.usage_info session.workspace_file_changed
		session_limits_exhausted.completed session_limits_exhausted.requested subagent.completed subagent.deselected
		subagent.selected subagent.started tool.user_requested tool_search.activated ui.ephemeral_query
		user_input.completed user_input.requested`)
	// knownEntries are the types of the entries of a document that are one meta event.
	knownEntries = names(`user copilot assistant info`)
	// knownAttachments are the types of what goes with a prompt.
	knownAttachments = names(`blob directory extension_context file github_actions_job github_commit github_file github_file_diff
		github_reference github_release github_repository github_snippet github_tree_comparison github_url selection`)
	// knownOutputs are the types of the blocks of a result.
	knownOutputs = names(`audio image resource resource_link shell_exit terminal text`)
	// knownCall are the members of an assistant.usage beside those of its figures.
	knownCall = names(`acceptedPredictionTokens apiEndpoint availableToolCount cacheDetailsReported cacheExpiresAt cacheTtlSeconds
		contentFilterTriggered copilotUsage cost duration finishReason frontierSource initiator interactionType
		interTokenLatencyMs isAuto isByok maxOutputTokens maxPromptTokens numToolCalls parentToolCallId providerCallId
		quotaSnapshots reasoningEffort reasoningSummary rejectedPredictionTokens rte serviceRequestId timeToFirstTokenMs
		toolCounts toolTokenCount transport ttftMs`)
)

// names returns the set of the names in a text.
func names(list string) map[lenient.Text]bool {
	set := make(map[lenient.Text]bool)
	for name := range strings.FieldsSeq(list) {
		set[lenient.Text(name)] = true
	}
	return set
}

// noteVersion notes the version of Copilot CLI that the session starts with.
func (m *mapper) noteVersion() {
	if v := string(m.data.Version); core.IsVersion(v) {
		m.st.Version = v
	}
}

// noteRecord notes the type of a record that no function maps.
func (m *mapper) noteRecord() {
	if !knownRecords[m.Type] {
		m.Unknown(core.UnknownRecord, m.Type)
	}
}

// noteEntry notes the type of an entry of a document that no function maps.
func (m *mapper) noteEntry(e *entry) {
	if !knownEntries[e.Type] {
		m.Unknown(core.UnknownRecord, "timeline", e.Type)
	}
}

// attachment is what goes with a prompt.
type attachment struct {
	Type lenient.Text `json:"type"`
}

// noteAttachments notes the types of attachments that are not known.
func (m *mapper) noteAttachments() {
	for _, a := range m.data.Attachments {
		if t := a.Value.Type; !knownAttachments[t] {
			m.Unknown(core.UnknownBlock, t)
		}
	}
}

// noteOutput notes the form of a result, or the types of its blocks, that are not known.
func (m *mapper) noteOutput(r *toolResult) {
	switch v := m.data.Result; v.Kind() {
	case '[', '0', 't', 'f':
		m.Unknown(core.UnknownOutput, core.OutputForm(v))
	default: // an object, a text, or none
	}
	for _, b := range r.Blocks {
		if !knownOutputs[b.Type] {
			m.Unknown(core.UnknownOutput, b.Type)
		}
	}
}

// noteUsage notes the members of the figures of an API call that are not known. Those of an
// assistant.usage stand among other members of the record.
func (m *mapper) noteUsage(f *figures) {
	for _, o := range lenient.ObjectMembers(f.Others) {
		if name := lenient.Text(o.Name); !knownCall[name] {
			m.Unknown(core.UnknownUsage, name)
		}
	}
}

// noteModels notes the members of the figures of the models that are not known.
func (m *mapper) noteModels(used map[string]lenient.Object[metrics]) {
	for _, model := range slices.Sorted(maps.Keys(used)) {
		u := used[model].Value
		m.noteUsage(&u.Usage.Value)
		m.UnknownMembers(core.UnknownUsage, u.Others)
	}
}

// metricsBeside are the members of what is used of a model that are not read.
type metricsBeside struct {
	Requests lenient.Present `json:"requests"`
	Nano     lenient.Present `json:"totalNanoAiu"`
	Details  lenient.Present `json:"tokenDetails"`
	Others   jsontext.Value  `json:",embed"`
}
