package transcript

import "regexp"

// Folded are lines of which some may be left out.
type Folded struct {
	Before int // lines that are left out before Head
	Head   []string
	Left   int // lines that are left out between Head and Tail
	Tail   []string
}

// Fold returns at most so many of the lines: two thirds of them from the beginning and the others from the end, because
// an error stands at the end. If an expression matches lines, they begin with the one before the first match. All lines
// stay for most 0, and if only one would be left out.
func Fold(lines []string, most int, match *regexp.Regexp) Folded {
	n := len(lines)
	if most <= 0 || n <= most+1 {
		return Folded{Head: lines}
	}
	if match != nil {
		for i, line := range lines {
			if match.MatchString(line) {
				begin := min(max(i-1, 0), n-most)
				return Folded{Before: begin, Head: lines[begin : begin+most], Left: n - begin - most}
			}
		}
	}
	tail := most / 3
	return Folded{Head: lines[:most-tail], Left: n - most, Tail: lines[n-tail:]}
}
