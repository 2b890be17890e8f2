package sessions

import (
	"slices"
	"strings"
)

// placeholders are the titles that programs give to untitled sessions.
var placeholders = []string{
	"New Session", "新建会话", "新建會話", "Nouvelle session", "新しいセッション", "नया सत्र",
}

// placeholderPrefixes begin placeholders that end with a name.
var placeholderPrefixes = []string{
	"New Session - ", "New Session with ", "New session - ", "New session with ",
}

// IsUntitled reports whether a title is empty or a placeholder, so that a generated title may replace it. It ignores
// white space at both ends, but not case.
func IsUntitled(title string) bool {
	trimmed := strings.TrimSpace(title)
	if trimmed == "" || slices.Contains(placeholders, trimmed) {
		return true
	}
	for _, prefix := range placeholderPrefixes {
		if name, ok := strings.CutPrefix(trimmed, prefix); ok && strings.TrimSpace(name) != "" {
			return true
		}
	}
	return false
}

// Limits of generated titles, in code points.
const (
	maxPrompt    = 2000
	maxSanitized = 80
	maxFallback  = 60
)

// SanitizeTitle makes a title from a model's answer: its first line without quotes and punctuation at the ends, at
// most 80 code points. The result may be empty.
func SanitizeTitle(answer string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(answer), "\n")
	return firstRunes(strings.Trim(line, "\"'`.,;: \t\r"), maxSanitized)
}

// FallbackTitle makes a title from the first prompt of a session, without a model: the text before the first period,
// exclamation or question mark, even one within a word, without fenced code, in one line, at most 60 code points. It
// reads the first 2,000 code points. The result may be empty. Apply it with titles.SourceFallback. For the title of a
// [Summary], a mark within a word ends nothing.
func FallbackTitle(prompt string) string {
	return titleOf(prompt, func(text string) int { return strings.IndexAny(text, sentenceMarks) })
}

// promptTitle is [FallbackTitle], but ignores marks within words, as in addresses, versions and file names.
func promptTitle(prompt string) string { return titleOf(prompt, sentenceEnd) }

// sentenceMarks end a sentence.
const sentenceMarks = ".!?"

// sentenceEnd returns the position of the first mark that ends a word and so the sentence; -1 for none. It skips
// marks that follow no word.
func sentenceEnd(text string) int {
	for i := 0; i < len(text); i++ {
		word := text[i:]
		if end := strings.IndexByte(word, ' '); end >= 0 {
			word = word[:end]
		}
		if bare := strings.TrimRight(word, sentenceMarks); bare != "" && bare != word {
			return i + len(bare)
		}
		i += len(word)
	}
	return -1
}

// titleOf makes a title from the part of a prompt before the position that end returns; -1 for the whole.
func titleOf(prompt string, end func(text string) int) string {
	text := strings.Join(strings.Fields(withoutFences(firstRunes(prompt, maxPrompt))), " ")
	if end := end(text); end >= 0 {
		text = text[:end]
	}
	return strings.TrimRight(firstRunes(text, maxFallback), " ,;:-")
}

// withoutFences removes fenced code. An unclosed fence extends to the end.
func withoutFences(text string) string {
	const fence = "```"
	var kept strings.Builder
	for {
		before, rest, fenced := strings.Cut(text, fence)
		kept.WriteString(before)
		if !fenced {
			return kept.String()
		}
		kept.WriteByte(' ')
		if _, text, fenced = strings.Cut(rest, fence); !fenced {
			return kept.String()
		}
	}
}

// firstRunes returns the first n code points of s.
func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
