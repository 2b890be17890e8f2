package codex

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/envelopes/jsonscan"
	"tributary/normalizers/lenient"
)

// result is what is known about how a call ended.
type result struct {
	text      string
	cut       bool // the text may lack a part
	stated    bool // the log has a text, maybe an empty one
	exit      *int64
	latency   *int64 // milliseconds
	running   bool   // the command is still running
	failed    bool
	completed bool // the vendor states success, maybe without a text
	files     []envelopes.File
}

// status returns the status of the event.
func (r *result) status() envelopes.ToolStatus {
	switch {
	case r.failed, r.exit != nil && *r.exit != 0:
		return envelopes.StatusError
	case r.running && r.exit == nil:
		return envelopes.StatusInProgress
	case !r.stated && r.exit == nil && !r.completed:
		return envelopes.StatusUnknown
	default:
		return envelopes.StatusSuccess
	}
}

// readOutput reads the output in the record, in any form. Plain text states neither exit code nor time.
func readOutput(m *mapper) result {
	var r result
	switch m.Output.Kind() {
	case '"':
		r.readText(lenient.Unquote(m.Output))
	case '[', '{':
		noteOutput(m, r.readContent(m.Output))
	default: // no output
		noteOutput(m, nil)
	}
	r.stated = lenient.IsValue(m.Output)
	if m.Type == "tool_search_output" {
		r.text = ""
		if lenient.IsValue(m.Tools) {
			r.text = lenient.CompactText(m.Tools)
		}
		r.stated = r.stated || r.text != ""
	}
	return r
}

// readText reads an output that is a string: text after a header, or JSON.
func (r *result) readText(s string) {
	if strings.HasPrefix(s, "{") && r.readJSON(s) {
		return
	}
	r.text = s
	r.readHeader(s)
}

// readJSON reads the form {"output": ..., "metadata": {"exit_code", "duration_seconds"}}. It returns false, and
// changes nothing, if s has another form.
func (r *result) readJSON(s string) bool {
	v := jsontext.Value(s)
	if !v.IsValid(lenient.Options) {
		return false
	}
	var form struct {
		Output   jsontext.Value `json:"output"`
		Metadata lenient.Object[struct {
			ExitCode lenient.Number `json:"exit_code"`
			Duration lenient.Number `json:"duration_seconds"`
		}] `json:"metadata"`
	}
	lenient.ReadObject(v, &form)
	if form.Output.Kind() != '"' || !form.Metadata.OK {
		return false
	}
	r.text = lenient.Unquote(form.Output)
	r.exit = form.Metadata.Value.ExitCode.Integer()
	if d := form.Metadata.Value.Duration; d.OK {
		r.latency = milliseconds(d.Value)
	}
	return true
}

// readContent reads an output that is a list of parts, or {"content": parts, "success": bool}, with the header in the
// first part. It returns the parts.
func (r *result) readContent(v jsontext.Value) *content {
	var wrapped struct {
		Content content        `json:"content"`
		Success jsontext.Value `json:"success"`
	}
	lenient.ReadObject(v, &wrapped)
	parts := wrapped.Content
	if !parts.present {
		c := jsonscan.NewScanner(v)
		parts.ReadJSON(&c)
		wrapped.Success = nil
	}
	texts := parts.texts()
	if len(texts) > 0 {
		r.readHeader(texts[0])
	}
	r.failed = r.failed || string(wrapped.Success) == "false"
	r.text = strings.Join(texts, "\n")
	return &parts
}

// Codex puts a header in front of an output. Its lines come in any selection:
//
//	Command: <command, of one or more lines>
//	Chunk ID: <id>
//	Wall time: <seconds> seconds
//	Process exited with code <code> | Process running with session ID <id> | Exit code: <code>
//	Original token count: <n>
//	Total output lines: <n>
//	Output:
//
// The header ends at the first other line. What follows is never read, because a command may print such lines, too.
var (
	headerLine = regexp.MustCompile(`^(?:Chunk ID: |Wall time:? [\d.]+ ?(?:seconds|s)\b|(?:Exit code:|Process exited with code) -?\d+\s*$|` +
		`Process running with session ID |Original token count: \d|Total output lines: \d|Script (?:completed|failed|running|error)\b)`)
	commandLines = regexp.MustCompile(`(?s)^Command: .*?\n(Chunk ID: [^\n]*\nWall time: )`)
	exitLine     = regexp.MustCompile(`^(?:Exit code: |Process exited with code )(-?\d{1,10})\s*$`)
	wallTimeLine = regexp.MustCompile(`^Wall time:? (\d+(?:\.\d+)?) ?(?:seconds|s)\b`)
)

// failure matches the beginning of an output without a header that is an error of Codex itself.
var failure = regexp.MustCompile(`^(?i:aborted by user|failed in sandbox|execution error|exec_command failed|` +
	`write_stdin failed|apply_patch verification failed|failed to parse function arguments|unsupported call|` +
	`unified exec failed|rejected by user|command timed out|tool call rejected|error: |err: )`)

// readHeader reads the header in front of an output.
func (r *result) readHeader(output string) {
	header := headerOf(output)
	for line := range strings.Lines(header) {
		r.readHeaderLine(strings.TrimRight(line, "\r\n"))
	}
	if header == "" {
		r.failed = failure.MatchString(output)
	}
}

// headerOf returns the header of an output, without the line of its command.
func headerOf(output string) string {
	if m := commandLines.FindStringSubmatchIndex(output); m != nil {
		output = output[m[2]:]
	}
	size := 0
	for line := range strings.Lines(output) {
		if !headerLine.MatchString(strings.TrimRight(line, "\r\n")) {
			break
		}
		size += len(line)
	}
	return output[:size]
}

// bodyOf returns an output without its header.
func bodyOf(output string) string {
	header := headerOf(output)
	if header == "" {
		return output
	}
	_, body, _ := strings.Cut(output, header)
	return strings.TrimPrefix(body, "Output:")
}

// readHeaderLine reads a line of a header. The first exit code and the first time count.
func (r *result) readHeaderLine(line string) {
	if m := exitLine.FindStringSubmatch(line); m != nil && r.exit == nil {
		if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
			r.exit = &n
		}
	}
	if m := wallTimeLine.FindStringSubmatch(line); m != nil && r.latency == nil {
		if s, err := strconv.ParseFloat(m[1], 64); err == nil {
			r.latency = milliseconds(s)
		}
	}
	switch {
	case strings.HasPrefix(line, "Process running with session ID"), strings.HasPrefix(line, "Script running"):
		r.running = true
	case strings.HasPrefix(line, "Script failed"), strings.HasPrefix(line, "Script error"):
		r.failed = true
	}
}

// milliseconds converts a duration that a vendor states in seconds; nil for an invalid one.
func milliseconds(seconds float64) *int64 {
	if seconds < 0 || seconds >= 1e9 {
		return nil
	}
	return new(int64(math.Round(seconds * 1000)))
}
