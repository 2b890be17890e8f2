package claude

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Facts that records state go into the metadata of their events. The types here follow the schema of the event.

// maxListed is the maximum number of entries in a list of a fact.
const maxListed = 64

// factsOf returns the metadata of an event with a fact.
func (e *emitter) factsOf(name string, fact any) *envelopes.Metadata {
	facts := map[string]any{name: fact}
	if e.parentToolUseID != "" {
		facts["parentToolUseId"] = e.parentToolUseID
	}
	return e.Session.MetadataWithFacts(facts)
}

// textOf returns a text of at most most bytes; nil for an empty one.
func textOf(t lenient.Text, most int) *string { return lenient.Text(core.Cut(string(t), most)).Ptr() }

// boolOf returns a boolean; nil for anything else.
func boolOf(v jsontext.Value) *bool {
	if k := v.Kind(); k != 't' && k != 'f' {
		return nil
	}
	return new(v.Kind() == 't')
}

// listed returns the first entries of a list, converted by to.
func listed[T, F any](list []T, to func(*T) F) []F {
	out := make([]F, min(len(list), maxListed))
	for i := range out {
		out[i] = to(&list[i])
	}
	return out
}

// systemFacts has the members of a record of type system that are facts.
type systemFacts struct {
	DurationMS            lenient.Number `json:"durationMs"`
	MessageCount          lenient.Number `json:"messageCount"`
	HookErrors            jsontext.Value `json:"hookErrors"`
	PreventedContinuation jsontext.Value `json:"preventedContinuation"`
	StopReason            lenient.Text   `json:"stopReason"`

	// Of the SDK.
	ToolUseID      lenient.Text              `json:"tool_use_id"`
	ToolName       lenient.Text              `json:"tool_name"`
	Message        lenient.Text              `json:"message"`
	DecisionReason lenient.Text              `json:"decision_reason"`
	Patch          lenient.Object[taskPatch] `json:"patch"`
}

// taskPatch is what has changed of a background task.
type taskPatch struct {
	Status lenient.Text `json:"status"`
	Error  lenient.Text `json:"error"`
}

// readSystemFacts reads the facts of the record.
func readSystemFacts(c *mapper) (f systemFacts) {
	lenient.ReadObject(c.Record.Data, &f)
	return f
}

// turnFact is the duration of a turn.
type turnFact struct {
	DurationMS   *int64 `json:"durationMs,omitzero"`
	MessageCount *int64 `json:"messageCount,omitzero"`
}

// turnDuration emits the end of a turn.
func turnDuration(c *mapper) {
	in := readSystemFacts(c)
	d := core.SystemDraft(envelopes.Meta, c.text())
	d.Metadata = c.factsOf("turn", turnFact{core.CountOf(in.DurationMS), core.CountOf(in.MessageCount)})
	c.put(c.UUID, d)
}

// hookFact lists the hooks that ran at the end of a turn.
type hookFact struct {
	Success               *bool   `json:"success,omitzero"`
	Error                 *string `json:"error,omitzero"`
	PreventedContinuation *bool   `json:"preventedContinuation,omitzero"`
	StopReason            *string `json:"stopReason,omitzero"`
}

// stopHookSummary emits what the hooks did at the end of a turn. Their errors are not metadata.error, because the
// turn has not failed.
func stopHookSummary(c *mapper) {
	in := readSystemFacts(c)
	fact := hookFact{PreventedContinuation: boolOf(in.PreventedContinuation), StopReason: textOf(in.StopReason, core.MaxFieldText)}
	if in.HookErrors.Kind() == '[' {
		var failures []string
		for _, e := range lenient.Elements(in.HookErrors) {
			failures = append(failures, string(lenient.Scalar(e)))
		}
		fact.Success = new(len(failures) == 0)
		fact.Error = textOf(lenient.Text(strings.Join(failures, "\n")), core.MaxFieldText)
	}
	d := core.SystemDraft(envelopes.Log, c.text())
	d.Metadata = c.factsOf("hook", fact)
	c.put(c.UUID, d)
}

// permissionFact is a call that is not allowed.
type permissionFact struct {
	ToolCallID *string `json:"toolCallId,omitzero"`
	Decision   string  `json:"decision"`
}

// permissionDenied emits that a call was denied without asking, and why. The call has its result.
func permissionDenied(c *mapper) {
	in := readSystemFacts(c)
	d := core.SystemDraft(envelopes.Meta, distinctLines(in.Message, in.DecisionReason))
	d.ToolName, d.ToolCallID = in.ToolName.Ptr(), in.ToolUseID.Ptr()
	d.Metadata = c.factsOf("permission", permissionFact{core.NameOf(in.ToolUseID), "denied"})
	c.put(c.UUID, d)
}

// attachmentFacts has the members of an attachment that are facts.
type attachmentFacts struct {
	Filename     lenient.Text                            `json:"filename"`
	IsNew        jsontext.Value                          `json:"isNew"`
	Files        lenient.List[lenient.Object[diagnosed]] `json:"files"`
	ItemCount    lenient.Number                          `json:"itemCount"`
	Content      lenient.List[lenient.Object[reminder]]  `json:"content"`
	AllowedTools lenient.List[lenient.Text]              `json:"allowedTools"`
}

// editedFileFact is a file known to the agent that someone else changed.
type editedFileFact struct {
	Path *string `json:"path,omitzero"`
}

// diagnosticsFact has the findings of an editor or a compiler in files.
type diagnosticsFact struct {
	IsNew    *bool            `json:"isNew,omitzero"`
	Count    int              `json:"count"`
	Findings []diagnosticFact `json:"findings"`
}

// diagnosticFact is one of these findings.
type diagnosticFact struct {
	Path      *string `json:"path,omitzero"`
	Severity  *string `json:"severity,omitzero"`
	Message   *string `json:"message,omitzero"`
	Source    *string `json:"source,omitzero"`
	Code      *string `json:"code,omitzero"`
	StartLine *int64  `json:"startLine,omitzero"`
	EndLine   *int64  `json:"endLine,omitzero"`
}

// diagnosed is a file with diagnostics in Claude Code's form.
type diagnosed struct {
	URI         lenient.Text                             `json:"uri"`
	Diagnostics lenient.List[lenient.Object[diagnostic]] `json:"diagnostics"`
}

type diagnostic struct {
	Message  lenient.Text   `json:"message"`
	Severity lenient.Text   `json:"severity"`
	Source   lenient.Text   `json:"source"`
	Code     jsontext.Value `json:"code"`
	Range    struct {
		Start position `json:"start"`
		End   position `json:"end"`
	} `json:"range"`
}

// position is a position in a file; its lines count from 0.
type position struct {
	Line lenient.Number `json:"line"`
}

// number returns the line number, from 1; nil if unknown.
func (p position) number() *int64 {
	n := core.CountOf(p.Line)
	if n != nil {
		*n++
	}
	return n
}

// diagnostics returns the diagnostics of all files.
func (a *attachmentFacts) diagnostics() diagnosticsFact {
	fact := diagnosticsFact{IsNew: boolOf(a.IsNew), Findings: []diagnosticFact{}}
	for i := range a.Files {
		f := &a.Files[i].Value
		fact.Count += len(f.Diagnostics)
		for _, d := range f.Diagnostics[:min(len(f.Diagnostics), maxListed-len(fact.Findings))] {
			fact.Findings = append(fact.Findings, diagnosticFact{
				Path:      textOf(f.URI, core.MaxPath),
				Severity:  textOf(d.Value.Severity, core.MaxName),
				Message:   textOf(d.Value.Message, core.MaxName),
				Source:    textOf(d.Value.Source, core.MaxName),
				Code:      textOf(lenient.Scalar(d.Value.Code), core.MaxName),
				StartLine: d.Value.Range.Start.number(),
				EndLine:   d.Value.Range.End.number(),
			})
		}
	}
	return fact
}

// tasksFact is the list of tasks that the agent is reminded of.
type tasksFact struct {
	Count *int64     `json:"count,omitzero"`
	Items []taskFact `json:"items"`
}

// taskFact is a task, without its description.
type taskFact struct {
	ID      *string `json:"id,omitzero"`
	Subject *string `json:"subject,omitzero"`
	Status  *string `json:"status,omitzero"`
}

// reminder is the list of tasks in Claude Code's form.
type reminder struct {
	ID      lenient.Text `json:"id"`
	Subject lenient.Text `json:"subject"`
	Status  lenient.Text `json:"status"`
}

// tasks returns the tasks in the content of a reminder.
func (a *attachmentFacts) tasks() tasksFact {
	return tasksFact{core.CountOf(a.ItemCount), listed(a.Content, func(t *lenient.Object[reminder]) taskFact {
		return taskFact{textOf(t.Value.ID, core.MaxName), textOf(t.Value.Subject, core.MaxName), textOf(t.Value.Status, core.MaxName)}
	})}
}

// commandPermissionsFact is what a command may do without asking.
type commandPermissionsFact struct {
	AllowedTools []string `json:"allowedTools"`
}

// attachmentFact returns the metadata of an attachment that states a fact; nil for any other.
func attachmentFact(c *mapper, t lenient.Text) *envelopes.Metadata {
	var in struct {
		Attachment attachmentFacts `json:"attachment"`
	}
	a := &in.Attachment
	switch t {
	case "edited_text_file", "diagnostics", "task_reminder", "command_permissions":
		lenient.ReadObject(c.Record.Data, &in)
	default:
		return nil
	}
	switch t {
	case "edited_text_file":
		return c.factsOf("editedFile", editedFileFact{textOf(a.Filename, core.MaxPath)})
	case "diagnostics":
		return c.factsOf("diagnostics", a.diagnostics())
	case "task_reminder":
		return c.factsOf("tasks", a.tasks())
	default:
		return c.factsOf("commandPermissions", commandPermissionsFact{listed(a.AllowedTools, func(t *lenient.Text) string {
			return core.Cut(string(*t), core.MaxName)
		})})
	}
}
