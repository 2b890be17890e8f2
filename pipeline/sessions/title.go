package sessions

import (
	"regexp"
	"strings"
)

// maxTitle is the length of a fallback title, in characters.
const maxTitle = 60

var fenced = regexp.MustCompile("(?s)```.*?(?:```|$)")

// FallbackTitle makes a title of the first prompt of a session that has none: its first sentence
// without fenced code, on one line of at most 60 characters. It is empty if nothing is left.
func FallbackTitle(prompt string) string {
	text := strings.Join(strings.Fields(fenced.ReplaceAllString(prompt, " ")), " ")
	if end := strings.IndexAny(text, ".!?"); end >= 0 {
		text = text[:end]
	}
	if runes := []rune(text); len(runes) > maxTitle {
		text = string(runes[:maxTitle])
	}
	return strings.TrimRight(text, " ,;:-")
}
