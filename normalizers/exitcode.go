package normalizers

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"tributary/envelopes"
)

// claudeExit is the header that Claude Code puts before the output of a command that
// failed.
var claudeExit = regexp.MustCompile(`^(?:Error: )?Exit code (\d{1,10})(?:\s|$)`)

// exitCode reads a code from the header of an output, never from its body
// (semantics.md section 7); nil when the header states none.
func exitCode(header *regexp.Regexp, output string) *int64 {
	m := header.FindStringSubmatch(output)
	if m == nil {
		return nil
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

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
	codexExit     = regexp.MustCompile(`^(?:Exit code: |Process exited with code )(-?\d{1,10})\s*$`)
	codexWallTime = regexp.MustCompile(`^Wall time:? (\d+(?:\.\d+)?) ?(?:seconds|s)\b`)
	codexFailure  = regexp.MustCompile(`^(?i:aborted by user|failed in sandbox|execution error|exec_command failed|` +
		`write_stdin failed|apply_patch verification failed|failed to parse function arguments|unsupported call|` +
		`unified exec failed|rejected by user|command timed out|tool call rejected|error: |err: )`)
)

// codexHeader is a line of a header in front of an output.
var codexHeader = regexp.MustCompile(`^(?:Chunk ID: |Wall time:? [\d.]+ ?(?:seconds|s)\b|(?:Exit code:|Process exited with code) -?\d+\s*$|` +
	`Process running with session ID |Original token count: \d|Total output lines: \d|Script (?:completed|failed|running|error)\b)`)

// codexCommand is the command that may stand in front of a header; it may have several
// lines, and may say anything.
var codexCommand = regexp.MustCompile(`(?s)^Command: .*?\n(Chunk ID: [^\n]*\nWall time: )`)

// readHeader reads the header that Codex puts in front of an output: its lines up to
// "Output:", or to the first that is none of a header. Nothing behind is ever looked at.
func (o *output) readHeader(s string) {
	if m := codexCommand.FindStringSubmatchIndex(s); m != nil {
		s = s[m[2]:]
	}
	first, _, _ := strings.Cut(s, "\n")
	if !codexHeader.MatchString(first) {
		o.failed = codexFailure.MatchString(s)
		return
	}
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\r\n")
		if !codexHeader.MatchString(line) {
			break
		}
		if m := codexExit.FindStringSubmatch(line); m != nil && o.exit == nil {
			if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
				o.exit = &n
			}
		}
		if m := codexWallTime.FindStringSubmatch(line); m != nil && o.latency == nil {
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
