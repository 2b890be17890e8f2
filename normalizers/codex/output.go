package codex

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"tributary/envelopes"
)

// output is what a tool of Codex returned, in any of its forms (vendor-formats.md
// section 5.3).
type output struct {
	words   string
	exit    *int64
	latency *int64 // milliseconds
	running bool
	failed  bool
	done    bool // without failure, though nothing else is told
}

var (
	exit     = regexp.MustCompile(`^(?:Exit code: |Process exited with code )(-?\d{1,10})\s*$`)
	wallTime = regexp.MustCompile(`^Wall time:? (\d+(?:\.\d+)?) ?(?:seconds|s)\b`)
	failure  = regexp.MustCompile(`^(?i:aborted by user|failed in sandbox|execution error|exec_command failed|` +
		`write_stdin failed|apply_patch verification failed|failed to parse function arguments|unsupported call|` +
		`unified exec failed|rejected by user|command timed out|tool call rejected|error: |err: )`)
)

// header is a line of a header in front of an output.
var header = regexp.MustCompile(`^(?:Chunk ID: |Wall time:? [\d.]+ ?(?:seconds|s)\b|(?:Exit code:|Process exited with code) -?\d+\s*$|` +
	`Process running with session ID |Original token count: \d|Total output lines: \d|Script (?:completed|failed|running|error)\b)`)

// command is the command that may stand in front of a header; it may have several
// lines, and may say anything.
var command = regexp.MustCompile(`(?s)^Command: .*?\n(Chunk ID: [^\n]*\nWall time: )`)

// readHeader reads the header that Codex puts in front of an output: its lines up to
// "Output:", or to the first that is none of a header. Nothing behind is ever looked at.
func (o *output) readHeader(s string) {
	if m := command.FindStringSubmatchIndex(s); m != nil {
		s = s[m[2]:]
	}
	first, _, _ := strings.Cut(s, "\n")
	if !header.MatchString(first) {
		o.failed = failure.MatchString(s)
		return
	}
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\r\n")
		if !header.MatchString(line) {
			break
		}
		if m := exit.FindStringSubmatch(line); m != nil && o.exit == nil {
			if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
				o.exit = &n
			}
		}
		if m := wallTime.FindStringSubmatch(line); m != nil && o.latency == nil {
			if sec, err := strconv.ParseFloat(m[1], 64); err == nil {
				o.latency = milliseconds(sec)
			}
		}
		switch {
		case strings.HasPrefix(line, "Process running with session ID"), strings.HasPrefix(line, "Script running"):
			o.running = true
		case strings.HasPrefix(line, "Script failed"), strings.HasPrefix(line, "Script error"):
			o.failed = true
		}
	}
}

// milliseconds is a duration that a vendor states in seconds; nil when it is none.
func milliseconds(seconds float64) *int64 {
	if seconds < 0 || seconds >= 1e9 {
		return nil
	}
	return new(int64(math.Round(seconds * 1000)))
}

// status is the outcome that the output states.
func (o *output) status() envelopes.ToolStatus {
	switch {
	case o.failed, o.exit != nil && *o.exit != 0:
		return envelopes.StatusError
	case o.running && o.exit == nil:
		return envelopes.StatusInProgress
	default:
		return envelopes.StatusSuccess
	}
}
