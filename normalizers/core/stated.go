package core

import "strings"

// MaxStated is how many types of records that state a value a session remembers.
const MaxStated = 16

// StatedValue is the last value of a type of record that states one: a record that states
// the same value again yields no event.
type StatedValue struct {
	Type  string      `json:"t"`
	Value Fingerprint `json:"v"`
}

// PromptKey returns what makes two prompts equal: their text without white space around it.
func PromptKey(text string) Fingerprint { return FingerprintOf(strings.TrimSpace(text)) }
