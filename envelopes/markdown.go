package envelopes

import "strings"

// CodeBlock returns a Markdown code block with enough backticks for the text. language may be empty.
func CodeBlock(language, text string) string {
	ticks := strings.Repeat("`", max(3, backticks(text)+1))
	return ticks + language + "\n" + strings.TrimSuffix(text, "\n") + "\n" + ticks
}

// CodeSpan returns an inline code span in Markdown.
func CodeSpan(text string) string {
	n := backticks(text)
	if n == 0 {
		return "`" + text + "`"
	}
	ticks := strings.Repeat("`", n+1)
	return ticks + " " + text + " " + ticks
}

// backticks returns the length of the longest run of backticks in a text.
func backticks(text string) int {
	longest, run := 0, 0
	for i := range len(text) {
		if text[i] != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}
