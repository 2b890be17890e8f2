// Package conversation prints the conversation of a session for people: as lines of a terminal ([Pretty]) and as a document
// in Markdown ([Markdown]). It reads no broker and no settings; [transcript] makes the conversation.
package conversation

import (
	"regexp"
	"strings"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/transcript"
)

// Lines that are left of a folded text.
const (
	foldedPrompt  = 30 // of a human
	foldedDiff    = 15
	foldedOutput  = 6
	foldedOther   = 6 // prompts of subagents, summaries, noise
	foldedCommand = 4
	foldedThought = 3
)

// Options say which parts of a conversation to print.
type Options struct {
	Full  bool                                            // all lines of results, arguments and thoughts
	Match *regexp.Regexp                                  // folded texts keep its matches; nil for none
	Cost  func(models map[string]*sessions.Billed) string // of the tokens of models, empty without a price; nil for no costs
}

// Session is the heading of a conversation.
type Session struct {
	Source      envelopes.Source
	ID          string
	Title       string
	Project     string
	First, Last time.Time
	Tokens      int64
	Cost        string // empty if unknown
}

// facts returns the line about the session.
func (s *Session) facts() string {
	var parts []string
	if !s.First.IsZero() {
		parts = append(parts, terminal.DateTime(s.First)+" to "+terminal.DateTime(s.Last))
	}
	parts = append(parts, terminal.Thousands(s.Tokens)+" tokens")
	if s.Cost != "" {
		parts = append(parts, s.Cost)
	}
	return strings.Join(parts, ", ")
}

// Printer prints the parts of a conversation in their order.
type Printer interface {
	Heading(s *Session) error
	Turn(t *transcript.Turn) error
	Item(i *transcript.Item) error
}
