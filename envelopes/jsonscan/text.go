package jsonscan

import (
	"bytes"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendString appends s as a JSON string, byte for byte as [jsontext.AppendQuote] does. It
// returns false where s is not UTF-8; what it has appended then has no meaning.
func AppendString(dst []byte, s string) ([]byte, bool) {
	dst = append(dst, '"')
	for checked := false; ; {
		n := plain(s)
		for checked && n < len(s) && s[n] >= utf8.RuneSelf {
			for n < len(s) && s[n] >= utf8.RuneSelf {
				n++
			}
			n += plain(s[n:])
		}
		dst = append(dst, s[:n]...)
		if n == len(s) {
			return append(dst, '"'), true
		}
		s = s[n:]
		if s[0] >= utf8.RuneSelf {
			if !utf8.ValidString(s) {
				return dst, false
			}
			checked = true
			continue
		}
		dst = appendEscape(dst, s[0])
		s = s[1:]
	}
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

// AppendCompact appends a value without the white space between its tokens. The value is known to be JSON, as
// that of a [Scanner] is.
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

// Unquote returns the text of a JSON string that is valid, or was in what is not UTF-8: then it
// has replacement characters, as [jsontext.AppendUnquote] writes them.
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
		out, _ = jsontext.AppendUnquote(out[:0], quoted) // the replaced characters are its only error
	}
	text := string(out)
	if *buffer = out; cap(out) <= maxPooled {
		unescaped.Put(buffer)
	}
	return text
}

// unescaped are pooled: a text is made there, and then copied in its length.
var unescaped = sync.Pool{New: func() any { return new([]byte) }}

// maxPooled is the size of the largest buffer that is pooled.
const maxPooled = 64 << 10

// appendUnescaped appends the text of the body of a string. It returns false for what is rare: a
// lone surrogate, and a body that is none.
func appendUnescaped(dst, body []byte) ([]byte, bool) {
	for {
		n := bytes.IndexByte(body, '\\')
		if n < 0 {
			return append(dst, body...), true
		}
		dst = append(dst, body[:n]...)
		if body = body[n:]; len(body) < 2 {
			return dst, false
		}
		b := body[1]
		switch b {
		case '"', '\\', '/':
		case 'b':
			b = '\b'
		case 'f':
			b = '\f'
		case 'n':
			b = '\n'
		case 'r':
			b = '\r'
		case 't':
			b = '\t'
		case 'u':
			r, size := unescapeRune(body)
			if size == 0 {
				return dst, false
			}
			dst, body = utf8.AppendRune(dst, r), body[size:]
			continue
		default:
			return dst, false
		}
		dst, body = append(dst, b), body[2:]
	}
}

// unescapeRune returns the character of an escape sequence \uXXXX, or of two for the halves of a
// surrogate, and its length; 0 for a lone surrogate.
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
