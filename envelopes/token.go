package envelopes

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"unicode/utf8"
)

const (
	plainTokenBytes = 64  // a longer id does not stand for itself
	wholeTokenBytes = 120 // a longer id does not fit a token at all
)

// Token encodes an id as one token of a subject, injectively:
//
//	[A-Za-z0-9_-]{1,64}   the id itself
//	up to 120 bytes       "~" and the id in base64url without padding
//	longer                "~~" and the SHA-256 of the id in lower-case hex
//
// In the last form the id is not in the token: it travels in [HeaderSession].
func Token(id string) string {
	switch {
	case isPlain(id):
		return id
	case len(id) <= wholeTokenBytes:
		return "~" + base64.RawURLEncoding.EncodeToString([]byte(id))
	default:
		digest := sha256.Sum256([]byte(id))
		return "~~" + hex.EncodeToString(digest[:])
	}
}

// ParseToken is the inverse of [Token]. When whole is false the token is the digest of a
// long id, and id is empty: see [ResolveToken]. Any token that [Token] does not give for
// an id (not empty, UTF-8) is an error that wraps [ErrInvalidSubject].
func ParseToken(token string) (id string, whole bool, err error) {
	switch {
	case isPlain(token):
		return token, true, nil
	case len(token) > 1 && token[0] == '~' && token[1] == '~':
		if digest := token[2:]; len(digest) == hex.EncodedLen(sha256.Size) && isLowerHex(digest) {
			return "", false, nil
		}
	case len(token) > 1 && token[0] == '~':
		// The last comparison refuses every other spelling of the same id.
		raw, err := base64.RawURLEncoding.DecodeString(token[1:])
		if err == nil && utf8.Valid(raw) && Token(string(raw)) == token {
			return string(raw), true, nil
		}
	}
	return "", false, fmt.Errorf("%w: not the token of an id", ErrInvalidSubject)
}

// ResolveToken returns the id that a token stands for, whatever its form. stated is what
// [HeaderSession] says, decoded, or empty. It is needed for the digest of a long id, and
// may never contradict the token.
func ResolveToken(token, stated string) (id string, err error) {
	id, whole, err := ParseToken(token)
	switch {
	case err != nil:
		return "", err
	case whole && (stated == "" || stated == id):
		return id, nil
	case !whole && stated == "":
		return "", fmt.Errorf("%w: the token is a digest and header %s is missing", ErrInvalidSubject, HeaderSession)
	case !whole && utf8.ValidString(stated) && Token(stated) == token:
		return stated, nil
	default:
		return "", fmt.Errorf("%w: header %s contradicts the token", ErrInvalidSubject, HeaderSession)
	}
}

// isPlain reports whether id is its own token.
func isPlain(id string) bool {
	if id == "" || len(id) > plainTokenBytes {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', isDigit(c), c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

func isLowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isDigit(c) && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
