package claude

import (
	"strings"

	"tributary/normalizers/core"
)

// speech tells the speech of a text by how it begins; the first match counts.
var speech = []struct {
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
	{"<task-notification>", core.SpeechInjected},
	{"<agent-notification>", core.SpeechInjected},
	{"Caveat: The messages below", core.SpeechInjected},
	{"<teammate-message", core.SpeechAgent},
	{"[Request interrupted by user", core.SpeechInterrupted},
}

// speechOf classifies a text of Claude Code. What it returns as words is what was said:
// without the wrapping of a command, without what an IDE or the runtime put inline.
func speechOf(s string) (kind core.Speech, words string) {
	trimmed := strings.TrimSpace(s)
	for _, c := range speech {
		if !strings.HasPrefix(trimmed, c.prefix) {
			continue
		}
		switch c.speech {
		case core.SpeechCommand:
			if command, ok := slashCommand(trimmed); ok {
				return core.SpeechCommand, command
			}
			return core.SpeechHuman, s
		case core.SpeechTerminal:
			return core.SpeechTerminal, unwrapTerminal(trimmed)
		default:
			return c.speech, s
		}
	}
	words, cut := cutInjected(s)
	if cut && words == "" {
		return core.SpeechInjected, s
	}
	return core.SpeechHuman, words
}

// slashCommand is "/name args" for a wrapped slash command.
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

// unwrapTerminal is what stands in the elements of a local command, one after the other.
func unwrapTerminal(s string) string {
	var parts []string
	for _, tag := range []string{"bash-input", "local-command-stdout", "local-command-stderr", "bash-stdout", "bash-stderr"} {
		if part := core.TagContent(s, tag); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "\n")
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
