package core

import (
	"slices"
	"strings"

	"tributary/envelopes"
)

// Speech is the author of a text, whatever record contains it (README.md, Speech).
type Speech int

// The kinds of text.
const (
	SpeechHuman       Speech = iota // typed by a human
	SpeechCommand                   // a slash command, typed by a human
	SpeechInjected                  // put into the conversation by a machine
	SpeechTerminal                  // a command that the human ran beside the agent, or its output
	SpeechInterrupted               // the notice that a human stopped the agent
	SpeechAgent                     // a message of another agent
	SpeechSummary                   // the summary with which a compacted conversation continues
	SpeechTask                      // the prompt with which an agent starts another one
)

// TagContent returns the content of the first <tag> element; empty if there is none.
func TagContent(s, tag string) string {
	_, after, ok := strings.Cut(s, "<"+tag+">")
	if !ok {
		return ""
	}
	content, _, ok := strings.Cut(after, "</"+tag+">")
	if !ok {
		return ""
	}
	return content
}

// AfterElements returns a text without the elements of these names at its start, and without the white space around
// them. Agents put such elements before what a human typed.
func AfterElements(text string, names ...string) string {
	const space = " \t\n\f\r"
	for {
		rest := strings.TrimLeft(text, space)
		at := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(rest, "<"+name+">") })
		if at < 0 {
			return text
		}
		_, after, ok := strings.Cut(rest, "</"+names[at]+">")
		if !ok {
			return text
		}
		text = strings.TrimLeft(after, space)
	}
}

// DraftOf returns the draft for a text by its speech.
func DraftOf(kind Speech, text string) Draft {
	d := Draft{AgentEventV1: envelopes.AgentEventV1{Text: &text}, OnChannel: envelopes.ChannelChat}
	switch kind {
	case SpeechHuman:
		d.EventType = envelopes.UserMessage
	case SpeechCommand:
		d.EventType, d.OnChannel = envelopes.UserMessage, envelopes.ChannelCLI
	case SpeechInjected:
		d.EventType, d.OnChannel, d.Origin = envelopes.Meta, envelopes.ChannelSystem, envelopes.OriginInjected
	case SpeechTerminal:
		d.EventType, d.InRole, d.OnChannel = envelopes.Log, envelopes.RoleCLI, envelopes.ChannelTerminal
	case SpeechInterrupted:
		d.EventType, d.OnChannel = envelopes.SystemMessage, envelopes.ChannelSystem
	case SpeechAgent:
		d.EventType, d.Origin = envelopes.SystemMessage, envelopes.OriginAgent
	case SpeechSummary:
		d.EventType = envelopes.SessionSummary
	case SpeechTask:
		d.EventType, d.Origin = envelopes.UserMessage, envelopes.OriginAgent
	}
	return d
}
