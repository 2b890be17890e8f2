package normalizers

import (
	"cmp"
	"math"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// What Claude Code writes about its tools: the calls, the results in a message, and the
// structured results beside them (vendor-formats.md section 3.4).

// call emits the call of a tool.
func (c *claudeFold) call(b *claudeBlock) {
	t := toolOf(string(b.Name))
	d := draft{on: t.channel}
	d.EventType = envelopes.ToolCall
	d.ToolName, d.ToolCallID = b.Name.ptr(), b.ID.ptr()
	d.ToolStatus = new(envelopes.StatusInProgress)
	d.Model = c.Message.value.Model.ptr()
	var input claudeInput
	if isValue(b.Input) {
		d.Text = new(compactText(b.Input))
		readObject(b.Input, &input)
	}
	file := input.file()
	d.touch(file, t.op)
	if c.put(b.ID, d) && b.ID != "" {
		made := call{Tool: string(b.Name), Channel: t.channel, Op: t.op, Path: file}
		if isShell(made.Tool) {
			made.About = string(cmp.Or(text(input.Description.value), input.Command))
			made.Undescribed = input.Description.ok && input.Description.value == ""
		}
		c.s.remember(string(b.ID), made)
	}
}

// claudeInput are the members of a tool's input that name a file, or say what a command
// is for.
type claudeInput struct {
	FilePath     text     `json:"file_path"`
	NotebookPath text     `json:"notebook_path"`
	Path         text     `json:"path"`
	Command      text     `json:"command"`
	Description  nullText `json:"description"`
}

func (i *claudeInput) file() string {
	for _, p := range []text{i.FilePath, i.NotebookPath, i.Path} {
		if p != "" {
			return string(p)
		}
	}
	return ""
}

// claudeResult is the structured result of a tool, as far as all tools share it.
type claudeResult struct {
	ToolUseID        text               `json:"tool_use_id"`
	Status           text               `json:"status"`
	Success          jsontext.Value     `json:"success"`
	Interrupted      flag               `json:"interrupted"`
	IsAsync          flag               `json:"isAsync"`
	BackgroundTaskID text               `json:"backgroundTaskId"`
	ExitCode         number             `json:"exitCode"`
	DurationMS       number             `json:"durationMs"`
	TotalDurationMS  number             `json:"totalDurationMs"`
	DurationSeconds  number             `json:"durationSeconds"`
	Stdout           text               `json:"stdout"`
	Stderr           text               `json:"stderr"`
	IsImage          flag               `json:"isImage"` // then stdout is one, and no text
	Output           text               `json:"output"`
	FilePath         text               `json:"filePath"`
	NotebookPath     text               `json:"notebook_path"`
	File             object[claudeFile] `json:"file"`
	Task             object[claudeTask] `json:"task"`
}

type claudeFile struct {
	FilePath text `json:"filePath"`
}

// claudeTask is a background task, told apart from an item of a to-do list by its type.
type claudeTask struct {
	Type     text   `json:"task_type"`
	Status   text   `json:"status"`
	ExitCode number `json:"exitCode"`
}

// result emits the result of a tool; b is empty where the record has a structured result
// only.
func (c *claudeFold) result(b *claudeBlock) {
	var res claudeResult
	var alone string // a structured result that is only a text
	if c.results() <= 1 {
		readObject(c.ToolUseResult, &res)
		if c.ToolUseResult.Kind() == '"' {
			alone = unquote(c.ToolUseResult)
		}
	}
	if res.Task.value.Type != "" {
		res.Status, res.ExitCode = res.Task.value.Status, res.Task.value.ExitCode
	}
	id := b.ToolUseID
	for _, other := range []text{res.ToolUseID, c.SourceToolUseID} {
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

	d := draft{on: envelopes.ChannelOther}
	d.EventType = envelopes.ToolResult
	d.ToolCallID = id.ptr()
	if ok {
		d.Text = &words
	}
	if d.ToolExitCode = res.ExitCode.integer(); d.ToolExitCode == nil && failed {
		if d.ToolExitCode = exitCode(claudeExit, words); d.ToolExitCode == nil {
			d.ToolExitCode = exitCode(claudeExit, alone)
		}
	}
	d.ToolLatencyMS = res.latency()
	d.ToolStatus = new(res.status(failed, d.ToolExitCode, b.Content.present || isValue(c.ToolUseResult)))
	made, _ := c.s.recall(string(id))
	if made.Channel != "" {
		d.on = made.Channel
	}
	d.ToolName = text(made.Tool).ptr()
	d.touch(res.file(made.Path), made.Op)
	if c.results() <= 1 {
		d.ToolMetadata = toolMetadata(c.s, string(id), made, c.ToolUseResult)
	}

	event := c.UUID
	if id != "" {
		event = id + "#result"
	}
	if c.put(event, d) {
		c.s.release(string(id))
	}
}

// results is the number of tool results in the message.
func (c *claudeFold) results() int {
	n := 0
	for i := range c.Message.value.Content.blocks {
		if c.Message.value.Content.blocks[i].isResult() {
			n++
		}
	}
	return n
}

// text is the text of a structured result; false when it has none.
func (r *claudeResult) text(alone string) (string, bool) {
	var parts []string
	for _, t := range []text{r.Stdout, r.Stderr, r.Output, text(alone)} {
		if t != "" {
			parts = append(parts, string(t))
		}
	}
	return strings.Join(parts, "\n"), len(parts) > 0
}

// status is the outcome by semantics.md section 7.
func (r *claudeResult) status(failed bool, exit *int64, data bool) envelopes.ToolStatus {
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
func (r *claudeResult) latency() *int64 {
	for _, n := range []number{r.DurationMS, r.TotalDurationMS, {r.DurationSeconds.value * 1000, r.DurationSeconds.ok}} {
		if n.ok && n.value >= 0 && n.value < maxExact {
			return new(int64(math.Round(n.value)))
		}
	}
	return nil
}

// file is the file that the tool worked on: as the result says, else as the call did.
func (r *claudeResult) file(called string) string {
	for _, p := range []text{r.FilePath, r.File.value.FilePath, r.NotebookPath} {
		if p != "" {
			return string(p)
		}
	}
	return called
}
