package core

import (
	"slices"
	"strings"
)

// maxStated is how many types of records that state a value a session remembers.
const maxStated = 16

// Stated are the last values of the types of record that only state one: a record that states
// the same value again yields no event.
type Stated Window[statedValue]

type statedValue struct {
	Type  string      `json:"t"`
	Value Fingerprint `json:"v"`
}

// IsNew reports whether a value differs from the last one of its type, and remembers it. What the
// limit drops is added to lost.
func (s *Stated) IsNew(name string, value Fingerprint, lost *uint64) bool {
	is := statedValue{Type: name, Value: value}
	if slices.Contains(*s, is) {
		return false
	}
	others := Window[statedValue](*s).Without(func(o statedValue) bool { return o.Type == name })
	*s = Stated(others.Push(is, maxStated, lost))
	return true
}

// PromptKey returns what makes two prompts equal: their text without white space around it.
func PromptKey(text string) Fingerprint { return FingerprintOf(strings.TrimSpace(text)) }
