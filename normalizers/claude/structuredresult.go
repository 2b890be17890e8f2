package claude

import (
	"cmp"
	"math"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/lenient"
)

// structuredResult is the structured result of a tool, which a record has beside the message (toolUseResult). Each
// tool writes its own members.
type structuredResult struct {
	// Of all tools.
	ToolUseID       lenient.Text   `json:"tool_use_id"`
	Status          lenient.Text   `json:"status"`
	Success         jsontext.Value `json:"success"`
	DurationMS      lenient.Number `json:"durationMs"`
	TotalDurationMS lenient.Number `json:"totalDurationMs"`
	DurationSeconds lenient.Number `json:"durationSeconds"`

	// Of shells and background tasks.
	Stdout           lenient.NullText     `json:"stdout"`
	Stderr           lenient.NullText     `json:"stderr"`
	Output           lenient.Text         `json:"output"`
	IsImage          lenient.Flag         `json:"isImage"` // stdout is an image, not a text
	Interrupted      lenient.Flag         `json:"interrupted"`
	IsAsync          lenient.Flag         `json:"isAsync"`
	BackgroundTaskID lenient.Text         `json:"backgroundTaskId"`
	ExitCode         lenient.Number       `json:"exitCode"`
	Task             lenient.Object[task] `json:"task"`

	// Of tools that read and write files.
	Type            lenient.Text                       `json:"type"`
	FilePath        lenient.Text                       `json:"filePath"`
	NotebookPath    lenient.Text                       `json:"notebook_path"`
	File            lenient.Object[file]               `json:"file"`
	Content         lenient.NullText                   `json:"content"`
	OriginalFile    lenient.NullText                   `json:"originalFile"`
	OldString       lenient.Text                       `json:"oldString"`
	NewString       lenient.Text                       `json:"newString"`
	ReplaceAll      lenient.Flag                       `json:"replaceAll"`
	StructuredPatch lenient.List[lenient.Object[hunk]] `json:"structuredPatch"`

	NewTodos jsontext.Value `json:"newTodos"` // of TodoWrite
}

// task is a background task. An item of a to-do list has no task_type.
type task struct {
	Type     lenient.Text   `json:"task_type"`
	Status   lenient.Text   `json:"status"`
	ExitCode lenient.Number `json:"exitCode"`
}

// file is a file that was read.
type file struct {
	FilePath   lenient.NullText `json:"filePath"`
	Content    lenient.NullText `json:"content"`
	NumLines   lenient.Number   `json:"numLines"`
	StartLine  lenient.Number   `json:"startLine"`
	TotalLines lenient.Number   `json:"totalLines"`
}

// hunk is a hunk of a structuredPatch; its lines have the prefixes of a unified diff. They stay JSON, because most
// are only counted.
type hunk struct {
	OldStart lenient.Number               `json:"oldStart"`
	OldLines lenient.Number               `json:"oldLines"`
	NewStart lenient.Number               `json:"newStart"`
	NewLines lenient.Number               `json:"newLines"`
	Lines    lenient.List[jsontext.Value] `json:"lines"`
}

// path returns the file that the tool worked on; empty for none.
func (r *structuredResult) path() string {
	return string(cmp.Or(r.FilePath, lenient.Text(r.File.Value.FilePath.Value), r.NotebookPath))
}

// streams returns stdout and stderr as one text.
func (r *structuredResult) streams() lenient.Text {
	return joinLines(lenient.Text(r.Stdout.Value), lenient.Text(r.Stderr.Value))
}

// latency returns the duration of the tool in milliseconds; nil if not stated.
func (r *structuredResult) latency() *int64 {
	seconds := lenient.Number{Value: r.DurationSeconds.Value * 1000, OK: r.DurationSeconds.OK}
	for _, n := range []lenient.Number{r.DurationMS, r.TotalDurationMS, seconds} {
		if n.OK && n.Value >= 0 && n.Value < lenient.MaxExact {
			return new(int64(math.Round(n.Value)))
		}
	}
	return nil
}
