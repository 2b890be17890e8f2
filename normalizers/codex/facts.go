package codex

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Facts that records state go into the metadata of their events. The types here follow the schema of the event.

// turnFact is the duration of a turn.
type turnFact struct {
	DurationMS         *int64 `json:"durationMs,omitzero"`
	TimeToFirstTokenMS *int64 `json:"timeToFirstTokenMs,omitzero"`
}

// snapshotFact is a commit that saves the state of the working tree.
type snapshotFact struct {
	Commit *string `json:"commit,omitzero"`
	Parent *string `json:"parent,omitzero"`
}

// ghostSnapshot emits a snapshot of the working tree.
func ghostSnapshot(m *mapper) {
	m.st.releaseTexts(&m.emitter)
	var commit struct {
		ID     lenient.Text `json:"id"`
		Parent lenient.Text `json:"parent"`
	}
	lenient.ReadObject(m.GhostCommit, &commit)
	m.putFact("ghostSnapshot", snapshotFact{core.NameOf(commit.ID), core.NameOf(commit.Parent)})
}

// settingsFact are settings of the thread.
type settingsFact struct {
	Model          *string `json:"model,omitzero"`
	Effort         *string `json:"effort,omitzero"`
	ApprovalPolicy *string `json:"approvalPolicy,omitzero"`
	Permissions    *string `json:"permissions,omitzero"`
}

// threadSettings emits settings that apply from now on.
func threadSettings(m *mapper) {
	s := &m.ThreadSettings.Value
	permissions := s.Active.Value.ID
	if permissions == "" {
		permissions = s.Profile.Value.Type
	}
	m.putFact("threadSettings", settingsFact{core.NameOf(s.Model), core.NameOf(s.Effort), core.NameOf(s.ApprovalPolicy), core.NameOf(permissions)})
}

// subagentFact is the activity of a subagent.
type subagentFact struct {
	ThreadID *string `json:"threadId,omitzero"`
	Path     *string `json:"path,omitzero"`
	Activity *string `json:"activity,omitzero"`
}

// subagentActivity emits the activity of a subagent, in the rollout of the agent that started it.
func subagentActivity(m *mapper) {
	m.putFact("subagent", subagentFact{core.NameOf(m.AgentThreadID), core.NameOf(m.AgentPath), core.NameOf(m.ActivityKind)})
}

// maxFindings is the maximum number of review findings in an event.
const maxFindings = 64

// reviewFact is the outcome of a review.
type reviewFact struct {
	Correctness *string       `json:"correctness,omitzero"`
	Explanation *string       `json:"explanation,omitzero"`
	Confidence  *float64      `json:"confidence,omitzero"`
	Findings    []findingFact `json:"findings"`
}

// findingFact is a finding of a review, without its text.
type findingFact struct {
	Title      *string  `json:"title,omitzero"`
	Priority   *int64   `json:"priority,omitzero"`
	Confidence *float64 `json:"confidence,omitzero"`
	Path       *string  `json:"path,omitzero"`
	StartLine  *int64   `json:"startLine,omitzero"`
	EndLine    *int64   `json:"endLine,omitzero"`
}

// reviewOutput is the outcome of a review in Codex's form.
type reviewOutput struct {
	Findings    lenient.List[finding] `json:"findings"`
	Correctness lenient.Text          `json:"overall_correctness"`
	Explanation lenient.Text          `json:"overall_explanation"`
	Confidence  lenient.Number        `json:"overall_confidence_score"`
}

type finding struct {
	Title      lenient.Text   `json:"title"`
	Priority   lenient.Number `json:"priority"`
	Confidence lenient.Number `json:"confidence_score"`
	Location   struct {
		Path  lenient.Text `json:"absolute_file_path"`
		Lines struct {
			Start lenient.Number `json:"start"`
			End   lenient.Number `json:"end"`
		} `json:"line_range"`
	} `json:"code_location"`
}

// readReview reads the outcome of a review.
func readReview(v jsontext.Value) reviewFact {
	var r reviewOutput
	lenient.ReadObject(v, &r)
	fact := reviewFact{
		Correctness: core.NameOf(r.Correctness),
		Explanation: lenient.Text(core.Cut(string(r.Explanation), core.MaxFieldText)).Ptr(),
		Confidence:  numberOf(r.Confidence),
		Findings:    make([]findingFact, 0, min(len(r.Findings), maxFindings)),
	}
	for i := range r.Findings[:min(len(r.Findings), maxFindings)] {
		f := &r.Findings[i]
		at := &f.Location
		fact.Findings = append(fact.Findings, findingFact{
			Title:      core.NameOf(f.Title),
			Priority:   f.Priority.Integer(),
			Confidence: numberOf(f.Confidence),
			Path:       lenient.Text(core.Cut(string(at.Path), core.MaxPath)).Ptr(),
			StartLine:  core.CountOf(at.Lines.Start),
			EndLine:    core.CountOf(at.Lines.End),
		})
	}
	return fact
}

// numberOf returns a number; nil if there is none.
func numberOf(n lenient.Number) *float64 {
	if !n.OK {
		return nil
	}
	return &n.Value
}
