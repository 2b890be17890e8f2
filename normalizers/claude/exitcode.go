package claude

import (
	"regexp"
	"strconv"
)

// exit is the header that Claude Code puts before the output of a command that
// failed.
var exit = regexp.MustCompile(`^(?:Error: )?Exit code (\d{1,10})(?:\s|$)`)

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
