package transcript

import "regexp"

// Folded are lines of which some may be hidden.
type Folded struct {
	Before int // hidden lines before Head
	Head   []string
	Left   int // hidden lines between Head and Tail
	Tail   []string
}

// Fold returns at most most of the lines: two thirds from the beginning and the rest from the end, where errors
// appear. If match matches lines, the result begins with the line before the first match. All lines stay if most is
// 0, and if only one would be hidden.
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
