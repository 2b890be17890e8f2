package lenient

import (
	"bytes"
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// Strict rewrites a JSON value in valid UTF-8 and without duplicate names, keeping the last of each.
func Strict(v jsontext.Value) jsontext.Value {
	return appendStrict(make([]byte, 0, len(v)), jsontext.NewDecoder(bytes.NewBuffer(v), Options))
}

// appendStrict is [Strict] for the next value of dec, which must be valid.
func appendStrict(dst []byte, dec *jsontext.Decoder) []byte {
	switch dec.PeekKind() {
	case '{':
		return appendMembers(dst, dec)
	case '[':
		_, _ = dec.ReadToken()
		dst = append(dst, '[')
		for first := true; dec.PeekKind() != ']'; first = false {
			if !first {
				dst = append(dst, ',')
			}
			dst = appendStrict(dst, dec)
		}
		_, _ = dec.ReadToken()
		return append(dst, ']')
	case '"':
		tok, _ := dec.ReadToken()
		return AppendQuote(dst, tok.String())
	default:
		v, _ := dec.ReadValue()
		return append(dst, v...)
	}
}

// appendMembers is [appendStrict] for an object.
func appendMembers(dst []byte, dec *jsontext.Decoder) []byte {
	type written struct {
		from     int // start of a member, with the comma in front of it
		repeated bool
	}
	var members []written
	last := make(map[string]int) // member of a name
	begin := len(dst)
	_, _ = dec.ReadToken()
	for repeated := false; ; {
		if dec.PeekKind() != '}' {
			tok, _ := dec.ReadToken()
			name := tok.String()
			if i, ok := last[name]; ok {
				members[i].repeated, repeated = true, true
			}
			last[name] = len(members)
			members = append(members, written{from: len(dst)})
			dst = append(AppendQuote(append(dst, ','), name), ':')
			dst = appendStrict(dst, dec)
			continue
		}
		_, _ = dec.ReadToken()
		if repeated {
			end := len(dst)
			dst = dst[:begin]
			for i, m := range members {
				to := end
				if i+1 < len(members) {
					to = members[i+1].from
				}
				if !m.repeated {
					dst = append(dst, dst[m.from:to:to]...)
				}
			}
		}
		if len(members) == 0 {
			return append(dst, "{}"...)
		}
		dst[begin] = '{' // replaces the first comma
		return append(dst, '}')
	}
}

// errTrailing is the error of bytes behind a value.
var errTrailing = errors.New("more than one JSON value")

// ReadValue checks that v is exactly one JSON value.
func ReadValue(v jsontext.Value) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(v), Options)
	if err := dec.SkipValue(); err != nil {
		return err
	}
	if len(bytes.TrimSpace(v[dec.InputOffset():])) > 0 {
		return errTrailing
	}
	return nil
}
