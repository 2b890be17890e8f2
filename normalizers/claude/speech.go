package claude

import (
	"strings"

	"tributary/normalizers/core"
)

// speechPrefixes classify a text by its beginning. The first match counts.
var speechPrefixes = []struct {
	prefix string
	speech core.Speech
}{
	{"This session is being continued from a previous conversation", core.SpeechSummary},
	{"<command-name>", core.SpeechCommand},
	{"<command-message>", core.SpeechCommand},
	{"<local-command-stdout>", core.SpeechTerminal},
	{"<local-command-stderr>", core.SpeechTerminal},
	{"<bash-input>", core.SpeechTerminal},
	{"<bash-stdout>", core.SpeechTerminal},
	{"<bash-stderr>", core.SpeechTerminal},
	{"<local-command-caveat>", core.SpeechInjected},
	{"<local-command-result>", core.SpeechInjected},
	{"Stop hook feedback:", core.SpeechInjected},
	{"<task-notification>", core.SpeechInjected},
	{"<agent-notification>", core.SpeechInjected},
	{"<bash-notification>", core.SpeechInjected},
	{"<github-webhook-activity", core.SpeechInjected},
	{"<tick>", core.SpeechInjected},
	{"Caveat: The messages below", core.SpeechInjected},
	{"<teammate-message", core.SpeechAgent},
	{"<cross-session-message", core.SpeechAgent},
	{"[Request interrupted by user", core.SpeechInterrupted},
}

// speechOf classifies a text of Claude Code. It returns the text without the elements that wrap a command, and
// without those that an IDE or Claude Code put into a prompt. A text that they only precede is classified, too.
func speechOf(s string) (kind core.Speech, text string) {
	if kind, text = beginningOf(s); kind != core.SpeechHuman {
		return kind, text
	}
	text, found := cutInjected(text)
	if !found {
		return core.SpeechHuman, text
	}
	if text == "" {
		return core.SpeechInjected, s
	}
	return beginningOf(text)
}

// beginningOf classifies a text by its beginning. It returns the text without the elements that wrap a command.
func beginningOf(s string) (kind core.Speech, text string) {
	trimmed := strings.TrimSpace(s)
	for _, c := range speechPrefixes {
		if !strings.HasPrefix(trimmed, c.prefix) {
			continue
		}
		switch c.speech {
		case core.SpeechCommand:
			if command, ok := slashCommand(trimmed); ok {
				return core.SpeechCommand, command
			}
			return namelessCommand(s)
		case core.SpeechTerminal:
			return core.SpeechTerminal, unwrapTerminal(trimmed)
		default:
			return c.speech, s
		}
	}
	return core.SpeechHuman, s
}

// slashCommand returns "/name args" for a wrapped slash command; false if it has no name.
func slashCommand(s string) (string, bool) {
	name := strings.TrimSpace(core.TagContent(s, "command-name"))
	if name == "" {
		name = strings.TrimSpace(core.TagContent(s, "command-message"))
	}
	if name == "" {
		return "", false
	}
	if !strings.HasPrefix(name, "/") {
		name = "/" + name
	}
	if args := strings.TrimSpace(core.TagContent(s, "command-args")); args != "" {
		name += " " + args
	}
	return name, true
}

// namelessCommand classifies a wrapped slash command without a name. Its arguments, and any text beside it, are a
// prompt. A text without such an element only mentions one.
func namelessCommand(s string) (kind core.Speech, text string) {
	text = s
	for _, tag := range []string{"command-name", "command-message", "command-args"} {
		content := core.TagContent(text, tag)
		text = strings.ReplaceAll(text, "<"+tag+">"+content+"</"+tag+">", content)
	}
	text, _ = cutInjected(text)
	switch trimmed := strings.TrimSpace(text); {
	case trimmed == "":
		return core.SpeechInjected, s
	case text == s:
		return core.SpeechHuman, s
	default:
		return core.SpeechHuman, trimmed
	}
}

// unwrapTerminal returns the content of the elements for a command that the human ran beside the agent, joined with
// line ends.
func unwrapTerminal(s string) string {
	var parts []string
	for _, tag := range []string{"bash-input", "local-command-stdout", "local-command-stderr", "bash-stdout", "bash-stderr"} {
		if part := core.TagContent(s, tag); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "\n")
}

// cutInjected removes the elements that an IDE and Claude Code put into a prompt: <system-reminder> and <ide_...>. It
// reports whether it found any.
func cutInjected(s string) (text string, found bool) {
	var kept strings.Builder
	rest := s
	for {
		start, tag := nextInjected(rest)
		if tag == "" {
			break
		}
		end := strings.Index(rest[start:], "</"+tag+">")
		if end < 0 {
			break // not an element, only a mention of one
		}
		kept.WriteString(rest[:start])
		rest = rest[start+end+len(tag)+3:]
		found = true
	}
	if !found {
		return s, false
	}
	kept.WriteString(rest)
	return strings.TrimSpace(kept.String()), true
}

// nextInjected returns the next start tag of an injected element; an empty tag for none.
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

// isIDETag reports whether an element of this name comes from an IDE.
func isIDETag(name string) bool {
	rest, ok := strings.CutPrefix(name, "ide_")
	return ok && len(rest) > 0 && len(rest) < 64 && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz_") == ""
}
