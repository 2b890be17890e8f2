package core

import (
	"slices"
	"strings"
)

// maxStated is how many types of stating records a session remembers.
const maxStated = 16

// Stated has the last values of record types that only state a value: a record that states the same value again
// yields no event.
type Stated Window[statedValue]

type statedValue struct {
	Type  string      `json:"t"`
	Value Fingerprint `json:"v"`
}

// IsNew reports whether a value differs from the last one of its type, and remembers it. It adds to lost what the
// limit drops.
func (s *Stated) IsNew(name string, value Fingerprint, lost *uint64) bool {
	is := statedValue{Type: name, Value: value}
	if slices.Contains(*s, is) {
		return false
	}
	others := Window[statedValue](*s).Without(func(o statedValue) bool { return o.Type == name })
	*s = Stated(others.Push(is, maxStated, lost))
	return true
}

// PromptKey returns the identity of a prompt: its text without surrounding white space.
func PromptKey(text string) Fingerprint { return FingerprintOf(strings.TrimSpace(text)) }
