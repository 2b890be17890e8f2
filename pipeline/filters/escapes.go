package filters

import (
	"bytes"
	"encoding/binary"
	"strconv"
)

var asciiEscape = []byte(`\u00`)

// HasASCIIEscape reports whether JSON has \u00, 32 bytes at a time: bytes.Contains compares each byte where there are
// many backslashes.
func HasASCIIEscape(data []byte) bool {
	at := 0
	for ; at+33 <= len(data); at += 32 {
		b := (*[33]byte)(data[at:])
		if hasU0(b[:8], b[1:9])|hasU0(b[8:16], b[9:17])|hasU0(b[16:24], b[17:25])|hasU0(b[24:32], b[25:33]) != 0 &&
			bytes.Contains(data[max(at-1, 0):min(at+34, len(data))], asciiEscape) {
			return true
		}
	}
	return bytes.Contains(data[max(at-1, 0):], asciiEscape)
}

// hasU0 returns a number that is not 0 if eight bytes have a u where the eight bytes that begin one later have a 0.
func hasU0(bytes, later []byte) uint64 {
	const each, high = 0x0101010101010101, 0x8080808080808080
	noU := binary.LittleEndian.Uint64(bytes) ^ each*'u'
	noZero := binary.LittleEndian.Uint64(later) ^ each*'0'
	differ := noU | noZero // a byte is zero where a u stands before a 0
	return (differ - each) &^ differ & high
}

// Unescaped returns JSON with the characters instead of their escapes, where these are printable ASCII.
func Unescaped(data []byte) []byte {
	text := make([]byte, 0, len(data))
	for {
		at := bytes.IndexByte(data, '\\')
		if at < 0 || at+1 == len(data) {
			return append(text, data...)
		}
		text, data = append(text, data[:at]...), data[at:]
		size, char := 2, data[1]
		if bytes.HasPrefix(data, asciiEscape) && len(data) >= len(`\u0041`) {
			code, err := strconv.ParseUint(string(data[4:6]), 16, 8)
			if err == nil && ' ' <= code && code < 0x7f {
				size, char = 6, byte(code)
			}
		}
		text, data = append(text, char), data[size:]
	}
}
