package jsonscan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendString appends s as a JSON string, with the same bytes as [jsontext.AppendQuote]. It returns false if s is
// not UTF-8; what is appended then is invalid.
func AppendString(dst []byte, s string) ([]byte, bool) {
	dst = append(slices.Grow(dst, len(s)+len(`""`)), '"')
	rest, high := s, uint64(0)
	for len(rest) >= 8 {
		w := word(rest)
		dst = binary.LittleEndian.AppendUint64(dst, w)
		found := escaped(w)
		if found == 0 {
			high |= w
			rest = rest[8:]
			continue
		}
		n := bits.TrailingZeros64(found) / 8
		high |= w & (1<<(8*n) - 1)
		dst = appendEscape(dst[:len(dst)-8+n], rest[n])
		rest = rest[n+1:]
	}
	for i := range len(rest) {
		high |= uint64(rest[i])
		if b := rest[i]; b < ' ' || b == '"' || b == '\\' {
			dst = appendEscape(dst, b)
		} else {
			dst = append(dst, b)
		}
	}
	return append(dst, '"'), high&highs == 0 || utf8.ValidString(s)
}

// appendEscape appends the escape sequence of a character that has one.
func appendEscape(dst []byte, b byte) []byte {
	const hex = "0123456789abcdef"
	switch b {
	case '"', '\\':
		return append(dst, '\\', b)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	default:
		return append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
	}
}

// AppendCompact appends a value without white space between its tokens. The value must be JSON, as for a [Scanner].
func AppendCompact(dst, value []byte) []byte {
	c := NewScanner(value)
	begin := 0 // of what is not appended yet
	for i := 0; i < len(value); {
		switch value[i] {
		case '"':
			i = c.textEnd(i)
		case ' ', '\t', '\n', '\r':
			dst = append(dst, value[begin:i]...)
			for i < len(value) && value[i] <= ' ' {
				i++
			}
			begin = i
		default:
			i++
		}
	}
	return append(dst, value[begin:]...)
}

// Unquote returns the text of a JSON string. Invalid UTF-8 is replaced as by [jsontext.AppendUnquote].
func Unquote(quoted []byte) string {
	if len(quoted) < 2 {
		return ""
	}
	body := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(body, '\\') < 0 && utf8.Valid(body) {
		return string(body)
	}
	buffer := unescaped.Get().(*[]byte)
	out, ok := appendUnescaped((*buffer)[:0], body)
	if !ok || !utf8.Valid(out) {
		out, _ = jsontext.AppendUnquote(out[:0], quoted) // its only error is about replaced characters
	}
	text := string(out)
	if *buffer = out; cap(out) <= maxPooled {
		unescaped.Put(buffer)
	}
	return text
}

// unescaped pools buffers in which a text is made before it is copied at its length.
var unescaped = sync.Pool{New: func() any { return new([]byte) }}

// maxPooled is the size of the largest pooled buffer.
const maxPooled = 64 << 10

// appendUnescaped appends the text of the body of a string. It returns false for rare cases: a lone surrogate, or an
// invalid body.
func appendUnescaped(dst, body []byte) ([]byte, bool) {
	dst = slices.Grow(dst, len(body)+8)
	for {
		for len(body) >= 8 {
			w := binary.LittleEndian.Uint64(body)
			dst = binary.LittleEndian.AppendUint64(dst, w)
			if found := backslashes(w); found != 0 {
				n := bits.TrailingZeros64(found) / 8
				dst, body = dst[:len(dst)-8+n], body[n:]
				break
			}
			body = body[8:]
		}
		if len(body) > 0 && body[0] != '\\' {
			n := bytes.IndexByte(body, '\\')
			if n < 0 {
				return append(dst, body...), true
			}
			dst, body = append(dst, body[:n]...), body[n:]
		}
		if len(body) == 0 {
			return dst, true
		}
		if len(body) < 2 {
			return dst, false
		}
		switch b := unescapes[body[1]]; {
		case b != 0:
			dst, body = append(dst, b), body[2:]
		case body[1] == 'u':
			r, size := unescapeRune(body)
			if size == 0 {
				return dst, false
			}
			dst, body = utf8.AppendRune(dst, r), body[size:]
		default:
			return dst, false
		}
	}
}

// unescapes are the characters of the short escape sequences.
var unescapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescapeRune returns the character of an escape sequence \uXXXX, or of two for a surrogate pair, and its length; 0
// for a lone surrogate.
func unescapeRune(b []byte) (rune, int) {
	r := hex4(b[2:])
	if r < 0 || !utf16.IsSurrogate(r) {
		if r < 0 {
			return 0, 0
		}
		return r, 6
	}
	if len(b) < 12 || b[6] != '\\' || b[7] != 'u' {
		return 0, 0
	}
	if r = utf16.DecodeRune(r, hex4(b[8:])); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}
