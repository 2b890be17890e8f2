package envelopes

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"unicode/utf8"
)

const (
	plainTokenBytes = 64  // maximum length of an id that is its own token
	wholeTokenBytes = 120 // maximum length of an id that a token has in full
)

// Token encodes an id as one token of a subject. Different ids have different tokens:
//
//	[A-Za-z0-9_-]{1,64}   the id itself
//	up to 120 bytes       "~" and the id in base64url without padding
//	longer                "~~" and the SHA-256 of the id in lower-case hex
//
// The last form does not contain the id, which travels in [HeaderSession].
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

// ParseToken is the inverse of [Token]. If whole is false, the token is the digest of a long id and id is empty: see
// [ResolveToken]. For a token that no valid id (not empty, UTF-8) has, the error wraps [errInvalidSubject].
func ParseToken(token string) (id string, whole bool, err error) {
	switch {
	case isPlain(token):
		return token, true, nil
	case len(token) > 1 && token[0] == '~' && token[1] == '~':
		if digest := token[2:]; len(digest) == hex.EncodedLen(sha256.Size) && isLowerHex(digest) {
			return "", false, nil
		}
	case len(token) > 1 && token[0] == '~':
		// The comparison rejects all other spellings of the same id.
		raw, err := base64.RawURLEncoding.DecodeString(token[1:])
		if err == nil && utf8.Valid(raw) && Token(string(raw)) == token {
			return string(raw), true, nil
		}
	}
	return "", false, fmt.Errorf("%w: not the token of an id", errInvalidSubject)
}

// ResolveToken returns the id of a token of any form. stated is the decoded value of
// [HeaderSession], or empty. The digest of a long id needs it, and it must never contradict
// the token. The error wraps [errInvalidSubject].
func ResolveToken(token, stated string) (id string, err error) {
	id, whole, err := ParseToken(token)
	switch {
	case err != nil:
		return "", err
	case whole && (stated == "" || stated == id):
		return id, nil
	case !whole && stated == "":
		return "", fmt.Errorf("%w: the token is a digest and header %s is missing", errInvalidSubject, HeaderSession)
	case !whole && utf8.ValidString(stated) && Token(stated) == token:
		return stated, nil
	default:
		return "", fmt.Errorf("%w: header %s contradicts the token", errInvalidSubject, HeaderSession)
	}
}

// isPlain reports whether id is its own token: [A-Za-z0-9_-]{1,64}.
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
