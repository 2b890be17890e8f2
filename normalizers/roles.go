package normalizers

import (
	"strings"

	"tributary/envelopes"
)

// speech is what kind of words a text is, whoever's record it stands in
// (semantics.md section 5).
type speech int

const (
	speechHuman       speech = iota // typed by a human
	speechCommand                   // a slash command, typed by a human
	speechInjected                  // put into the conversation by a machine
	speechTerminal                  // a command that the human ran beside the agent, or its output
	speechInterrupted               // the notice that a human stopped the agent
	speechAgent                     // a message of another agent
	speechSummary                   // the summary that a compacted conversation goes on with
)

// claudeSpeech tells the speech of a text by how it begins; the first match counts.
var claudeSpeech = []struct {
	prefix string
	speech speech
}{
	{"This session is being continued from a previous conversation", speechSummary},
	{"<command-name>", speechCommand},
	{"<command-message>", speechCommand},
	{"<local-command-stdout>", speechTerminal},
	{"<local-command-stderr>", speechTerminal},
	{"<bash-input>", speechTerminal},
	{"<bash-stdout>", speechTerminal},
	{"<bash-stderr>", speechTerminal},
	{"<local-command-caveat>", speechInjected},
	{"<task-notification>", speechInjected},
	{"<agent-notification>", speechInjected},
	{"Caveat: The messages below", speechInjected},
	{"<teammate-message", speechAgent},
	{"[Request interrupted by user", speechInterrupted},
}

// speechOf classifies a text of Claude Code. What it returns as words is what was said:
// without the wrapping of a command, without what an IDE or the runtime put inline.
func speechOf(s string) (kind speech, words string) {
	trimmed := strings.TrimSpace(s)
	for _, c := range claudeSpeech {
		if !strings.HasPrefix(trimmed, c.prefix) {
			continue
		}
		switch c.speech {
		case speechCommand:
			if command, ok := slashCommand(trimmed); ok {
				return speechCommand, command
			}
			return speechHuman, s
		case speechTerminal:
			return speechTerminal, unwrapTerminal(trimmed)
		default:
			return c.speech, s
		}
	}
	words, cut := cutInjected(s)
	if cut && words == "" {
		return speechInjected, s
	}
	return speechHuman, words
}

// slashCommand is "/name args" for a wrapped slash command.
func slashCommand(s string) (string, bool) {
	name := strings.TrimSpace(element(s, "command-name"))
	if name == "" {
		name = strings.TrimSpace(element(s, "command-message"))
	}
	if name == "" {
		return "", false
	}
	if !strings.HasPrefix(name, "/") {
		name = "/" + name
	}
	if args := strings.TrimSpace(element(s, "command-args")); args != "" {
		name += " " + args
	}
	return name, true
}

// unwrapTerminal is what stands in the elements of a local command, one after the other.
func unwrapTerminal(s string) string {
	var parts []string
	for _, tag := range []string{"bash-input", "local-command-stdout", "local-command-stderr", "bash-stdout", "bash-stderr"} {
		if part := element(s, tag); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "\n")
}

// element is the content of the first <tag> element; empty when there is none.
func element(s, tag string) string {
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

// cutInjected cuts what an IDE and the runtime put into a prompt: <system-reminder> and
// <ide_...> elements. It reports whether there was any; a text without is unchanged.
func cutInjected(s string) (words string, cut bool) {
	var kept strings.Builder
	rest := s
	for {
		start, tag := nextInjected(rest)
		if tag == "" {
			break
		}
		end := strings.Index(rest[start:], "</"+tag+">")
		if end < 0 {
			break // not an element: somebody wrote about one
		}
		kept.WriteString(rest[:start])
		rest = rest[start+end+len(tag)+3:]
		cut = true
	}
	if !cut {
		return s, false
	}
	kept.WriteString(rest)
	return strings.TrimSpace(kept.String()), true
}

// nextInjected finds the next start of an injected element.
func nextInjected(s string) (start int, tag string) {
	for from := 0; ; {
		i := strings.IndexByte(s[from:], '<')
		if i < 0 {
			return 0, ""
		}
		from += i
		name, _, ok := strings.Cut(s[from+1:], ">")
		if ok && (name == "system-reminder" || isIDETag(name)) {
			return from, name
		}
		from++
	}
}

func isIDETag(name string) bool {
	rest, ok := strings.CutPrefix(name, "ide_")
	return ok && len(rest) > 0 && len(rest) < 64 && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// draftOf is the event that a text becomes by its speech.
func draftOf(kind speech, words string) draft {
	d := draft{AgentEventV1: envelopes.AgentEventV1{Text: &words}, on: envelopes.ChannelChat}
	switch kind {
	case speechHuman:
		d.EventType = envelopes.UserMessage
	case speechCommand:
		d.EventType, d.on = envelopes.UserMessage, envelopes.ChannelCLI
	case speechInjected:
		d.EventType, d.on, d.Origin = envelopes.Meta, envelopes.ChannelSystem, envelopes.OriginInjected
	case speechTerminal:
		d.EventType, d.as, d.on = envelopes.Log, envelopes.RoleCLI, envelopes.ChannelTerminal
	case speechInterrupted:
		d.EventType, d.on = envelopes.SystemMessage, envelopes.ChannelSystem
	case speechAgent:
		d.EventType, d.Origin = envelopes.SystemMessage, envelopes.OriginAgent
	case speechSummary:
		d.EventType = envelopes.SessionSummary
	}
	return d
}
