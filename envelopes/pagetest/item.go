// Package pagetest formats the generated parts of pages, for the tests that compare them with the code.
package pagetest

import (
	"strings"
	"unicode/utf8"
)

// Filled breaks an item of a list into lines of at most 118 characters.
func Filled(item string) string {
	words := strings.Fields(item)
	text, width := words[0], utf8.RuneCountInString(words[0])
	for _, word := range words[1:] {
		n := utf8.RuneCountInString(word)
		if width+1+n > 118 {
			text, width = text+"\n ", 1
		}
		text, width = text+" "+word, width+1+n
	}
	return text + "\n"
}
