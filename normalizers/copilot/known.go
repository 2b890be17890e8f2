package copilot

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Known types without a function of their own (handlers.go, document.go). A type that neither has a function nor is
// listed here is counted as unknown (normalizers/README.md, Drift).
var (
	// knownEntries are the types of document entries that are one meta event.
	knownEntries = names(`user copilot assistant info`)
	// knownAttachments are the types of attachments of a prompt.
	knownAttachments = names(`blob directory extension_context file github_actions_job github_commit github_file github_file_diff
		github_reference github_release github_repository github_snippet github_tree_comparison github_url selection`)
	// knownOutputs are the types of the blocks of a result.
	knownOutputs = names(`audio image resource resource_link shell_exit terminal text`)
	// knownCall are the members of an assistant.usage other than token counts.
	knownCall = names(`acceptedPredictionTokens apiEndpoint availableToolCount cacheDetailsReported cacheExpiresAt cacheTtlSeconds
		contentFilterTriggered cost duration finishReason frontierSource fusion initiator interactionType
		interTokenLatencyMs isAuto isByok maxOutputTokens maxPromptTokens numToolCalls outputTtftMs parentToolCallId
		providerCallId quotaSnapshots reasoningEffort reasoningSummary rejectedPredictionTokens rte serviceRequestId
		timeToFirstTokenMs toolCounts toolTokenCount transport ttftMs`)
)

// names returns the set of the names in a text.
func names(list string) map[lenient.Text]bool {
	set := make(map[lenient.Text]bool)
	for name := range strings.FieldsSeq(list) {
		set[lenient.Text(name)] = true
	}
	return set
}

// noteVersion sets the version of Copilot CLI stated at the start of the session.
func noteVersion(m *mapper) {
	if v := string(m.data.Version); core.IsVersion(v) {
		m.st.Version = v
	}
}

// noteEntry counts the type of a document entry that no function maps.
func noteEntry(m *mapper, e *entry) {
	if !knownEntries[e.Type] {
		m.Unknown(core.UnknownRecord, "timeline", e.Type)
	}
}

// attachment is an attachment of a prompt.
type attachment struct {
	Type lenient.Text `json:"type"`
}

// noteAttachments counts unknown types of attachments.
func noteAttachments(m *mapper) {
	for _, a := range m.data.Attachments {
		if t := a.Value.Type; !knownAttachments[t] {
			m.Unknown(core.UnknownBlock, t)
		}
	}
}

// noteOutput counts an unknown form of a result, or unknown types of its blocks.
func noteOutput(m *mapper, r *toolResult) {
	switch v := m.data.Result; v.Kind() {
	case '[', '0', 't', 'f':
		m.Unknown(core.UnknownOutput, core.OutputForm(v))
	default: // an object, a text, or nothing
	}
	for _, b := range r.Blocks {
		if !knownOutputs[b.Type] {
			m.Unknown(core.UnknownOutput, b.Type)
		}
	}
}

// noteUsage counts unknown members in the token counts of an API call. Those of an assistant.usage are among other
// members of the record.
func noteUsage(m *mapper, f *figures) {
	for _, o := range lenient.ObjectMembers(f.Others) {
		if name := lenient.Text(o.Name); !knownCall[name] {
			m.Unknown(core.UnknownUsage, name)
		}
	}
}

// noteModels counts unknown members in the token counts of the models.
func noteModels(m *mapper, used map[string]lenient.Object[metrics]) {
	for _, model := range slices.Sorted(maps.Keys(used)) {
		u := used[model].Value
		noteUsage(m, &u.Usage.Value)
		m.UnknownMembers(core.UnknownUsage, u.Others)
	}
}

// metricsBeside has the members of a model's metrics that are not read.
type metricsBeside struct {
	Requests lenient.Present `json:"requests"`
	Nano     lenient.Present `json:"totalNanoAiu"`
	Details  lenient.Present `json:"tokenDetails"`
	Others   jsontext.Value  `json:",embed"`
}
