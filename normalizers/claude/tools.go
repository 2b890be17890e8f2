package claude

import (
	"cmp"
	"math"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What Claude Code writes about its tools: the calls, the results in a message, and the
// structured results beside them (vendor-formats.md section 3.4).

// call emits the call of a tool.
func (c *mapper) call(b *block) {
	t := core.ToolOf(string(b.Name))
	d := core.Draft{OnChannel: t.Channel}
	d.EventType = envelopes.ToolCall
	d.ToolName, d.ToolCallID = b.Name.Ptr(), b.ID.Ptr()
	d.ToolStatus = new(envelopes.StatusInProgress)
	d.Model = c.Message.Value.Model.Ptr()
	var input core.FileInput
	if lenient.IsValue(b.Input) {
		d.Text = new(lenient.CompactText(b.Input))
		lenient.ReadObject(b.Input, &input)
	}
	file := input.File()
	d.Touch(file, t.Op)
	if c.put(b.ID, d) && b.ID != "" {
		made := core.Call{Tool: string(b.Name), Channel: t.Channel, Op: t.Op, Path: file}
		if isShell(made.Tool) {
			made.About = string(cmp.Or(lenient.Text(input.Description.Value), input.Command))
			made.Undescribed = input.Description.OK && input.Description.Value == ""
		}
		c.Session.RememberCall(string(b.ID), made)
	}
}

// result is the structured result of a tool, as far as all tools share it.
type result struct {
	ToolUseID        lenient.Text         `json:"tool_use_id"`
	Status           lenient.Text         `json:"status"`
	Success          jsontext.Value       `json:"success"`
	Interrupted      lenient.Flag         `json:"interrupted"`
	IsAsync          lenient.Flag         `json:"isAsync"`
	BackgroundTaskID lenient.Text         `json:"backgroundTaskId"`
	ExitCode         lenient.Number       `json:"exitCode"`
	DurationMS       lenient.Number       `json:"durationMs"`
	TotalDurationMS  lenient.Number       `json:"totalDurationMs"`
	DurationSeconds  lenient.Number       `json:"durationSeconds"`
	Stdout           lenient.Text         `json:"stdout"`
	Stderr           lenient.Text         `json:"stderr"`
	IsImage          lenient.Flag         `json:"isImage"` // then stdout is one, and no text
	Output           lenient.Text         `json:"output"`
	FilePath         lenient.Text         `json:"filePath"`
	NotebookPath     lenient.Text         `json:"notebook_path"`
	File             lenient.Object[file] `json:"file"`
	Task             lenient.Object[task] `json:"task"`
}

type file struct {
	FilePath lenient.Text `json:"filePath"`
}

// task is a background task, told apart from an item of a to-do list by its type.
type task struct {
	Type     lenient.Text   `json:"task_type"`
	Status   lenient.Text   `json:"status"`
	ExitCode lenient.Number `json:"exitCode"`
}

// result emits the result of a tool; b is empty where the record has a structured result
// only.
func (c *mapper) result(b *block) {
	var res result
	var alone string // a structured result that is only a text
	if c.results() <= 1 {
		lenient.ReadObject(c.ToolUseResult, &res)
		if c.ToolUseResult.Kind() == '"' {
			alone = lenient.Unquote(c.ToolUseResult)
		}
	}
	if res.Task.Value.Type != "" {
		res.Status, res.ExitCode = res.Task.Value.Status, res.Task.Value.ExitCode
	}
	id := b.ToolUseID
	for _, other := range []lenient.Text{res.ToolUseID, c.SourceToolUseID} {
		if id == "" {
			id = other
		}
	}
	words, ok := b.Content.text()
	if res.IsImage {
		ok = ok && words != string(res.Stdout)
		res.Stdout = ""
	}
	if !ok {
		words, ok = res.text(alone)
	}
	problem := ""
	for i := range b.Content.blocks {
		problem = cmp.Or(problem, string(b.Content.blocks[i].ErrorCode))
	}
	if !ok && problem != "" {
		words, ok = problem, true
	}
	// A result that is only a text is a failure, unless the vendor denies it.
	failed := b.IsError == 't' || problem != "" || bool(res.Interrupted) || alone != "" && b.IsError != 'f' || string(res.Success) == "false" ||
		b.IsError != 'f' && c.isStream() && failedText(words)

	d := core.Draft{OnChannel: envelopes.ChannelOther}
	d.EventType = envelopes.ToolResult
	d.ToolCallID = id.Ptr()
	if ok {
		d.Text = &words
	}
	if d.ToolExitCode = res.ExitCode.Integer(); d.ToolExitCode == nil && failed {
		if d.ToolExitCode = exitCode(exit, words); d.ToolExitCode == nil {
			d.ToolExitCode = exitCode(exit, alone)
		}
	}
	d.ToolLatencyMS = res.latency()
	d.ToolStatus = new(res.status(failed, d.ToolExitCode, b.Content.present || lenient.IsValue(c.ToolUseResult)))
	made, _ := c.Session.RecallCall(string(id))
	if made.Channel != "" {
		d.OnChannel = made.Channel
	}
	d.ToolName = lenient.Text(made.Tool).Ptr()
	d.Touch(res.file(made.Path), made.Op)
	if c.results() <= 1 {
		d.ToolMetadata = toolMetadata(c.Session, string(id), made, c.ToolUseResult)
	}

	event := c.UUID
	if id != "" {
		event = id + "#result"
	}
	if c.put(event, d) {
		c.Session.ReleaseCall(string(id))
	}
}

// results is the number of tool results in the message.
func (c *mapper) results() int {
	n := 0
	for i := range c.Message.Value.Content.blocks {
		if c.Message.Value.Content.blocks[i].isResult() {
			n++
		}
	}
	return n
}

// text is the text of a structured result; false when it has none.
func (r *result) text(alone string) (string, bool) {
	var parts []string
	for _, t := range []lenient.Text{r.Stdout, r.Stderr, r.Output, lenient.Text(alone)} {
		if t != "" {
			parts = append(parts, string(t))
		}
	}
	return strings.Join(parts, "\n"), len(parts) > 0
}

// status is the outcome by semantics.md section 7.
func (r *result) status(failed bool, exit *int64, data bool) envelopes.ToolStatus {
	switch {
	case failed, exit != nil && *exit != 0:
		return envelopes.StatusError
	case r.BackgroundTaskID != "", bool(r.IsAsync):
		return envelopes.StatusInProgress
	}
	switch r.Status {
	case "async_launched", "remote_launched", "running", "in_progress", "pending":
		return envelopes.StatusInProgress
	case "failed", "error", "killed", "cancelled", "rejected", "interrupted":
		return envelopes.StatusError
	case "completed", "success":
		return envelopes.StatusSuccess
	}
	if data {
		return envelopes.StatusSuccess
	}
	return envelopes.StatusUnknown
}

// latency is how long the tool took where the vendor says so.
func (r *result) latency() *int64 {
	for _, n := range []lenient.Number{r.DurationMS, r.TotalDurationMS, {Value: r.DurationSeconds.Value * 1000, OK: r.DurationSeconds.OK}} {
		if n.OK && n.Value >= 0 && n.Value < lenient.MaxExact {
			return new(int64(math.Round(n.Value)))
		}
	}
	return nil
}

// file is the file that the tool worked on: as the result says, else as the call did.
func (r *result) file(called string) string {
	for _, p := range []lenient.Text{r.FilePath, r.File.Value.FilePath, r.NotebookPath} {
		if p != "" {
			return string(p)
		}
	}
	return called
}
