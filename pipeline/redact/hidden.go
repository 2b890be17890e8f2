package redact

import (
	"bytes"
	"slices"
	"sort"
	"unicode"
	"unicode/utf8"
)

// view is a text without some of its parts.
type view struct {
	text     []byte
	segments []segment
}

// segment maps an offset of a view to an offset in the text.
type segment struct{ at, from int }

// add appends text[from:to].
func (v *view) add(text []byte, from, to int) {
	v.segments = append(v.segments, segment{len(v.text), from})
	v.text = append(v.text, text[from:to]...)
}

// place returns the offset in the text of a byte of the view, and the index of its segment.
func (v *view) place(at int) (offset, index int) {
	index = sort.Search(len(v.segments), func(i int) bool { return v.segments[i].at > at }) - 1
	return v.segments[index].from + at - v.segments[index].at, index
}

// hidden searches the unit text[start:end] again without invisible characters (zero width, or the zeros of UTF-16),
// if there are some between two ASCII characters.
func (s *scan) hidden(found []finding, text []byte, start, end, depth int) []finding {
	if depth+1 >= maxDepth {
		return found
	}
	v, at := view{}, start
	for i := start; ; {
		for i < end && marks[text[i]]&markInvisible == 0 {
			i++
		}
		if i == end {
			break
		}
		n := invisible(text[i:end])
		if n > 0 && i > start && i+n < end && textBytes[text[i-1]] && textBytes[text[i+n]] {
			v.add(text, at, i)
			at = i + n
		}
		i += max(n, 1)
	}
	if v.text == nil {
		return found
	}
	v.add(text, at, end)
	for _, f := range merge(s.search(v.text, []int{len(v.text)}, depth+1)) {
		f.start, _ = v.place(f.start)
		f.end, _ = v.place(f.end - 1)
		f.end++
		found = append(found, f)
	}
	return found
}

// invisible returns the length of the invisible characters at the start of a text.
func invisible(text []byte) (n int) {
	for n < len(text) && marks[text[n]]&markInvisible != 0 {
		c, size := utf8.DecodeRune(text[n:])
		if c != 0 && c != '\u034f' && !unicode.In(c, unicode.Cf, unicode.Variation_Selector) {
			break
		}
		n += size
	}
	return n
}

// Limits of secrets wrapped into lines.
const (
	minWrapped  = 16 // characters of a secret, and of its lines except the first and the last
	wrapContext = 64 // bytes of the line before it
)

// wrapped searches the ends and beginnings of the lines of the unit text[start:end] again without what is between
// them, because a terminal may have wrapped a secret. found has the secrets within one line.
func (s *scan) wrapped(found []finding, text []byte, start, end, depth int) []finding {
	unit := text[start:end]
	if depth+1 >= maxDepth || bytes.IndexByte(unit, '\n') < 0 {
		return found
	}
	v, units := joinLines(unit)
	if len(units) == 0 || !s.spend(2*len(v.text)) {
		return found
	}
	inLine := len(found)
	joined, _ := s.keywords(nil, v.text, units, nil)
	for _, f := range merge(joined) {
		from, first := v.place(f.start)
		to, last := v.place(f.end - 1)
		if first+1 == len(v.segments) {
			continue // in one line
		}
		head := v.segments[first+1].at
		lineEnd := start + v.segments[first].from + head - v.segments[first].at
		if f.end < head {
			continue // in one line
		}
		if !s.spend(inLine) {
			return found
		}
		known := slices.ContainsFunc(found[:inLine], func(g finding) bool { return g.start < lineEnd && g.end >= lineEnd })
		tail := v.text[max(head, v.segments[last].at):max(head, f.end)]
		switch {
		case !isRandom(f.secret), (known || f.generic) && !isRandom(tail):
		case f.generic && bytes.Contains(bytes.TrimRight(tail, "="), []byte("=")): // an assignment
		default:
			f.start, f.end = start+from, start+to+1
			found = append(found, f)
		}
	}
	return found
}

// joinLines returns the line ends and next beginnings that may be parts of a secret, joined without the line end,
// each as a unit. Lines of equal width may be in between.
func joinLines(unit []byte) (v view, units []int) {
	var lines []span
	for at := 0; ; {
		i := bytes.IndexByte(unit[at:], '\n')
		if i < 0 {
			return v, units
		}
		at += i + 1
		end := at - 1
		for end > 0 && (unit[end-1] == ' ' || unit[end-1] == '\t' || unit[end-1] == '\r') {
			end--
		}
		start := end
		for start > 0 && wrapCharacters[unit[start-1]] {
			start--
		}
		lines = append(lines[:0], span{start, end})
		width := 0
		for start < end {
			next := afterLineEnd(unit, end)
			if next < 0 || !wrapCharacters[unit[next]] {
				break
			}
			to := next
			for to < len(unit) && wrapCharacters[unit[to]] {
				to++
			}
			if n := len(lines); n > 1 {
				last := end - lines[n-1].start
				if last < minWrapped || width > 0 && last != width || !isRandom(unit[next:to]) {
					break
				}
				width = last
			}
			lines = append(lines, span{next, to})
			at, end = next, to
		}
		if mayBeWrapped(unit, lines) {
			v.addLines(unit, lines)
			units = append(units, len(v.text))
		}
	}
}

func mayBeWrapped(unit []byte, lines []span) bool {
	n := 0
	for _, l := range lines {
		n += l.end - l.start
	}
	random := func(l span) bool { return isRandom(unit[l.start:l.end]) }
	return len(lines) > 1 && n >= minWrapped && slices.ContainsFunc(lines, random)
}

// addLines adds lines with their surroundings.
func (v *view) addLines(unit []byte, lines []span) {
	first, last := lines[0], lines[len(lines)-1]
	context := first.start
	for context > 0 && first.start-context < wrapContext && unit[context-1] != '\n' {
		context--
	}
	v.add(unit, context, first.end)
	for _, l := range lines[1 : len(lines)-1] {
		v.add(unit, l.start, l.end)
	}
	v.add(unit, last.start, min(last.end+1, len(unit)))
}

// wrapCharacters are the characters of secrets.
var wrapCharacters = func() (t [256]bool) {
	t = base64Characters
	for _, c := range []byte(".~=:@%") {
		t[c] = true
	}
	return t
}()

// isRandom reports whether a text is neither a word nor a number: it has letters and digits, or small letters before
// capitals.
func isRandom(text []byte) bool {
	var small, letter, digit bool
	for _, c := range text {
		switch {
		case '0' <= c && c <= '9':
			digit = true
		case 'a' <= c && c <= 'z':
			small, letter = true, true
		case 'A' <= c && c <= 'Z':
			if small {
				return true
			}
			letter = true
		}
		if digit && letter {
			return true
		}
	}
	return false
}
