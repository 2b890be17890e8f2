package redact

// Limits of possible base64 in a text.
const (
	minBase64 = 20  // characters of a run, and of each of its lines except the last
	minBlob   = 256 // characters of a run that is opaque unless it decodes to text
	sample    = 12  // characters decoded first, to see whether they are text
	samples   = 8   // number taken from a possibly opaque run, for each alignment
	maxIndent = 256 // white space around a line end
)

// encoded returns the runs of base64 that decode to a text with a secret, as findings, and long runs that decode to
// no text, such as images, signatures and encrypted content.
func (s *scan) encoded(text []byte, depth int) (found []finding, blobs []span) {
	for i := 0; i < len(text); i++ {
		start := i
		for i < len(text) && base64Characters[text[i]] {
			i++
		}
		if i-start < minBase64 {
			continue
		}
		r := newBase64Run(text, start, i)
		i = r.end()
		if !s.spend(len(r.characters)) {
			return nil, nil
		}
		parts := r.texts()
		for _, p := range parts {
			if p.to-p.from < minBase64 || depth+1 >= maxDepth {
				continue
			}
			plain := decodeText(r.characters[p.from:p.to], p.wide)
			if inner := merge(s.search(plain, []int{len(plain)}, depth+1)); len(inner) > 0 {
				f := inner[0]
				f.start, f.end = r.around(p.from, p.to)
				for f.end < len(text) && text[f.end] == '=' {
					f.end++
				}
				found = append(found, f)
			}
		}
		for _, l := range r.lines {
			if len(parts) == 0 && l.end-l.start >= minBlob {
				blobs = append(blobs, l)
			}
		}
	}
	return found, blobs
}

// base64Run is base64 that may be wrapped into lines. It need not begin at a group of four characters, because what
// is before it may look like base64, too.
type base64Run struct {
	characters []byte // without line ends
	lines      []span // positions in the text
}

// newBase64Run returns the run whose first line is text[start:end]. Long lines belong to it, and one short line after
// them.
func newBase64Run(text []byte, start, end int) base64Run {
	r := base64Run{text[start:end:end], []span{{start, end}}}
	for end-start >= minBase64 {
		if start = afterLineEnd(text, end); start < 0 || !base64Characters[text[start]] {
			break
		}
		end = base64End(text, start)
		r.characters = append(r.characters, text[start:end]...)
		r.lines = append(r.lines, span{start, end})
	}
	return r
}

// end returns the end of the run in its text.
func (r *base64Run) end() int { return r.lines[len(r.lines)-1].end }

// around returns the range of lines that contain a part of the characters.
func (r *base64Run) around(from, to int) (start, end int) {
	at, start := 0, -1
	for _, l := range r.lines {
		at += l.end - l.start
		if start < 0 && at > from {
			start = l.start
		}
		if at >= to {
			return start, l.end
		}
	}
	return start, r.end()
}

// textPart is a part of a run's characters that decodes to text; wide means UTF-16.
type textPart struct {
	from, to int
	wide     bool
}

// texts returns the parts of a run that decode to text at one of the four alignments, with a few extra characters on
// both sides. It only samples a long run.
func (r *base64Run) texts() (parts []textPart) {
	all := r.characters
	step := sample
	if len(all) >= minBlob {
		step = max(step, len(all)/samples/4*4)
	}
	for alignment := range 4 {
		for at := alignment; at+sample <= len(all); at += step {
			narrow, wide := isTextSample(all[at : at+sample])
			if !narrow && !wide {
				continue
			}
			from, to := at, at+sample
			for from >= 4 && isTextGroup(all[from-4:], wide) {
				from -= 4
			}
			for to+4 <= len(all) && isTextGroup(all[to:], wide) {
				to += 4
			}
			at += (to - at - 1) / step * step // the rest of the part is known
			parts = append(parts, textPart{max(from-4, alignment), min(to+4, len(all)), wide})
		}
	}
	return parts
}

// base64Values has the values of the characters of both alphabets, and textBytes the ASCII bytes of a text.
var base64Values, textBytes = func() (values [256]byte, text [256]bool) {
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		values[c] = byte(i)
	}
	values['-'], values['_'] = values['+'], values['/']
	for c := range 256 {
		text[c] = ' ' <= c && c < 0x7f || c == '\n' || c == '\r' || c == '\t'
	}
	return values, text
}()

// base64Characters are the characters of both alphabets without padding.
var base64Characters = func() (t [256]bool) {
	for c := range 256 {
		t[c] = base64Values[c] != 0 || c == 'A'
	}
	return t
}()

// base64End returns the end of the base64 characters from an offset on.
func base64End(text []byte, at int) int {
	for at < len(text) && base64Characters[text[at]] {
		at++
	}
	return at
}

// afterLineEnd returns where the text after a line end begins, skipping white space; -1 if there is no line end at
// at, or no text after it.
func afterLineEnd(text []byte, at int) int {
	end := min(len(text), at+maxIndent)
	for at < end && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r') {
		at++
	}
	if at >= end || text[at] != '\n' {
		return -1
	}
	for at++; at < end && (text[at] == ' ' || text[at] == '\t'); at++ {
	}
	if at >= end {
		return -1
	}
	return at
}

// group decodes the first four characters.
func group(c []byte) (b [3]byte) {
	v := uint32(0)
	for _, c := range c[:4] {
		v = v<<6 | uint32(base64Values[c])
	}
	return [3]byte{byte(v >> 16), byte(v >> 8), byte(v)}
}

// isTextSample reports whether a sample decodes to ASCII, or (wide) to ASCII in UTF-16.
func isTextSample(c []byte) (narrow, wide bool) {
	if first := base64Values[c[0]]<<2 | base64Values[c[1]]>>4; first != 0 && !textBytes[first] {
		return false, false // true for most
	}
	zeros, texts := [2]int{}, 0
	for i := 0; i < sample; i += 4 {
		for j, b := range group(c[i:]) {
			switch {
			case textBytes[b]:
				texts++
			case b == 0:
				zeros[(i/4*3+j)%2]++
			default:
				return false, false
			}
		}
	}
	const bytes = sample / 4 * 3
	return texts == bytes, zeros[0] == (bytes+1)/2 && zeros[1] == 0 || zeros[1] == bytes/2 && zeros[0] == 0
}

// isTextGroup reports whether a text can continue with a group.
func isTextGroup(c []byte, wide bool) bool {
	b := group(c)
	for _, b := range b {
		if !textBytes[b] && (wide && b != 0 || !wide && b < 0x80) {
			return false
		}
	}
	return !wide || b[0] == 0 || b[1] == 0 || b[2] == 0
}

// decodeText decodes base64 to whole bytes. White space replaces what is no text.
func decodeText(characters []byte, wide bool) []byte {
	out := make([]byte, 0, len(characters)/4*3+3)
	add := func(list ...byte) {
		for _, b := range list {
			switch {
			case textBytes[b] || b >= 0x80:
				out = append(out, b)
			case !wide || b != 0:
				out = append(out, ' ')
			}
		}
	}
	for ; len(characters) >= 4; characters = characters[4:] {
		b := group(characters)
		add(b[:]...)
	}
	if n := len(characters); n > 1 {
		rest := [4]byte{'A', 'A', 'A', 'A'}
		copy(rest[:], characters)
		b := group(rest[:])
		add(b[:n-1]...)
	}
	return out
}
