package genai

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/lenient"
)

// Message is a message to a model or of it, in the form of the conventions, or, with Content and Calls, in that of
// their events before version 1.37.
type Message struct {
	Role    lenient.Text       `json:"role"`
	Parts   lenient.List[Part] `json:"parts"`
	Content jsontext.Value     `json:"content"`
	Calls   lenient.List[Call] `json:"tool_calls"`
	ID      lenient.Text       `json:"id"` // of the call that a message of a tool answers
}

// Part is a part of a message.
type Part struct {
	Type      lenient.Text   `json:"type"`
	Content   lenient.Text   `json:"content"`
	ID        lenient.Text   `json:"id"`
	Name      lenient.Text   `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
	Response  jsontext.Value `json:"response"`
	Result    jsontext.Value `json:"result"` // of drafts of the conventions
}

// Call is a call in a message of before version 1.37.
type Call struct {
	ID       lenient.Text `json:"id"`
	Function struct {
		Name      lenient.Text   `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
	} `json:"function"`
}

// Choice is the body of an event with an answer, before version 1.37.
type Choice struct {
	Message Message `json:"message"`
}

// messages reads messages, which are a list, or the JSON of one as a text.
func messages(v jsontext.Value) []Message {
	return lenient.ReadElements[Message](structured(v))
}

// structured returns a value, or the value in a text that is JSON.
func structured(v jsontext.Value) jsontext.Value {
	if v.Kind() != '"' {
		return v
	}
	in := jsontext.Value(lenient.Unquote(v))
	if k := in.Kind(); k != '[' && k != '{' || lenient.ReadValue(in) != nil {
		return nil
	}
	return in
}
