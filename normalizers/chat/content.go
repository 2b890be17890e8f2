package chat

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/lenient"
)

// Blocks reads the content of a message, a list of blocks, into wire structs; a text alone is one block of the type
// text.
func Blocks[T any](content jsontext.Value) []T {
	if content.Kind() == '"' {
		content = slices.Concat(jsontext.Value(`[{"type":"text","text":`), content, jsontext.Value(`}]`))
	}
	return lenient.ReadElements[T](content)
}

// TextOf is [Text] for the text of a [Result]; nil if the content has none.
func TextOf(content jsontext.Value) *string {
	text, ok := Text(content)
	return lenient.NullText{Value: text, OK: ok}.Ptr()
}

// Text returns the texts of the blocks of the type text in a content, line by line; ok is false if it has none.
func Text(content jsontext.Value) (text string, ok bool) {
	type block struct {
		lenient.Data

		Type lenient.Text `json:"type"`
		Text lenient.Text `json:"text"`
	}
	var texts []string
	for _, b := range Blocks[block](content) {
		if b.Type == "text" {
			texts = append(texts, string(b.Text))
		}
	}
	return strings.Join(texts, "\n"), texts != nil
}
