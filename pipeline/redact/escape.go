package redact

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// isJSON reports whether a record is JSON, judged by its first byte.
func isJSON(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	return len(data) > 0 && (data[0] == '{' || data[0] == '[' || data[0] == '"')
}

// flatten appends a JSON record without the escapes in its strings, and the ends of its units: a member with its
// name, or consecutive strings of a list. So a secret is found together with the name beside it, or in parts, but
// never across members. Broken JSON has units, too.
func flatten(text []byte, units []int, data []byte) (flat []byte, ends []int) {
	open := false // the unit may continue with a string
	cut := func(at int) {
		if at > 0 && (len(units) == 0 || units[len(units)-1] < at) {
			units = append(units, at)
		}
	}
	for i := 0; i < len(data); {
		switch c := data[i]; c {
		case '"':
			begin := len(text)
			n := stringLength(data[i:])
			text = unescape(text, data[i:i+n])
			i += n
			if name := isName(data[i:]); name || !open {
				cut(begin)
			}
			open = true
			continue
		case '\\': // in broken JSON: locate knows no strings
			open = false
			var n int
			text, n = appendEscape(text, data[i:])
			i += n
			continue
		case ',', ':', ' ', '\t', '\r', '\n':
		default:
			open = false
		}
		text = append(text, data[i])
		i++
	}
	cut(len(text))
	if len(units) == 0 {
		units = append(units, len(text))
	}
	return text, units
}

// isName reports whether the string before data is a member name.
func isName(data []byte) bool {
	for _, c := range data {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c == ':'
		}
	}
	return false
}

// stringLength returns the length of the JSON string at the start of data; all of data if the string does not end.
func stringLength(data []byte) int {
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

// unescape appends src with its JSON escapes resolved.
func unescape(dst, src []byte) []byte {
	for len(src) > 0 {
		i := bytes.IndexByte(src, '\\')
		if i < 0 {
			return append(dst, src...)
		}
		dst = append(dst, src[:i]...)
		var n int
		dst, n = appendEscape(dst, src[i:])
		src = src[i+n:]
	}
	return dst
}

// simpleEscapes has the escapes of one letter.
var simpleEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// appendEscape appends what the escape at the start of src stands for, or the backslash itself if it begins no
// escape. n is the length of the escape.
func appendEscape(dst, src []byte) (out []byte, n int) {
	if len(src) < 2 {
		return append(dst, src...), len(src)
	}
	if c := simpleEscapes[src[1]]; c != 0 {
		return append(dst, c), 2
	}
	c, ok := hexEscape(src)
	if !ok {
		return append(dst, '\\'), 1
	}
	if utf16.IsSurrogate(c) {
		if low, ok := hexEscape(src[6:]); ok {
			if r := utf16.DecodeRune(c, low); r != utf8.RuneError {
				return utf8.AppendRune(dst, r), 12
			}
		}
	}
	return utf8.AppendRune(dst, c), 6
}

// hexEscape returns the UTF-16 unit of the escape \uXXXX at the start of src.
func hexEscape(src []byte) (rune, bool) {
	if len(src) < 6 || src[0] != '\\' || src[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(src[2:6]), 16, 16)
	return rune(v), err == nil
}

// locate converts the offsets of findings from the unescaped text to src. The findings must be in order.
func locate(src []byte, found []finding) {
	at, flat := 0, 0 // offsets in src and in the text
	var one [utf8.UTFMax]byte
	// forward advances to an offset in the text; inside an escape, to the start or end of the escape.
	forward := func(to int, behind bool) int {
		for flat < to {
			i := bytes.IndexByte(src[at:], '\\')
			if i < 0 || flat+i >= to {
				at, flat = at+to-flat, to
				return at
			}
			at, flat = at+i, flat+i
			decoded, n := appendEscape(one[:0], src[at:])
			if flat+len(decoded) > to && !behind {
				return at
			}
			at, flat = at+n, flat+len(decoded)
		}
		return at
	}
	for i := range found {
		found[i].start = forward(found[i].start, false)
		found[i].end = forward(found[i].end, true)
	}
}
