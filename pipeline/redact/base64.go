package redact

import (
	"encoding/base64"
	"regexp"
	"unicode/utf8"
)

// base64Characters are those of both alphabets, padding excluded.
var base64Characters = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_") {
		t[c] = true
	}
	return t
}()

var urlAlphabet = regexp.MustCompile(`[-_]`)

// decodeBase64 decodes a run of either alphabet as far as it is whole bytes. It returns nil for
// one of both.
func decodeBase64(run []byte) []byte {
	encoding := base64.RawStdEncoding
	if urlAlphabet.Match(run) {
		encoding = base64.RawURLEncoding
	}
	if len(run)%4 == 1 {
		run = run[:len(run)-1]
	}
	out := make([]byte, encoding.DecodedLen(len(run)))
	n, err := encoding.Decode(out, run)
	if err != nil {
		return nil
	}
	return out[:n]
}

// isText reports whether b is text of which most is ASCII.
func isText(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' || c == 0x7f {
			return false
		}
	}
	// A probe may end within a character.
	for range utf8.UTFMax {
		if utf8.Valid(b) || len(b) == 0 {
			break
		}
		b = b[:len(b)-1]
	}
	ascii := 0
	for _, c := range b {
		if c < utf8.RuneSelf {
			ascii++
		}
	}
	return utf8.Valid(b) && 4*ascii > 3*len(b)
}

// encoded returns the runs of base64 that are a text with a secret, as findings, and those that
// are long and no text, such as images, signatures and encrypted content.
func (s *scan) encoded(text []byte, depth int) (found []finding, blobs [][2]int) {
	for i := 0; i < len(text); i++ {
		if !base64Characters[text[i]] {
			continue
		}
		start := i
		for i < len(text) && base64Characters[text[i]] {
			i++
		}
		run := text[start:i]
		switch {
		case len(run) < minBase64:
		case isText(decodeBase64(run[:probe])):
			if plain := decodeBase64(run); depth+1 < maxDepth && isText(plain) {
				if inner := merge(s.search(plain, []int{len(plain)}, depth+1)); len(inner) > 0 {
					for i < len(text) && text[i] == '=' {
						i++
					}
					f := inner[0]
					found = append(found, finding{start, i, f.rule, f.generic, f.secret})
				}
			}
		case len(run) >= minBlob:
			blobs = append(blobs, [2]int{start, i})
		}
	}
	return found, blobs
}

const (
	minBase64 = 20  // characters of base64 that may be a text
	minBlob   = 256 // characters of base64 that are opaque unless they are a text
	probe     = 16  // characters that are decoded first, to see whether they are a text
)

type piece struct{}
