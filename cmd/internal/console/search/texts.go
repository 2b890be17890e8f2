package search

import (
	"iter"

	"tributary/envelopes"
	"tributary/envelopes/jsonscan"
)

// Place names a text of an event.
type Place string

// The places.
const (
	InText      Place = "text"
	InArguments Place = "arguments"
	InOutput    Place = "output"
	InResult    Place = "result" // what the normalizer found in the result of a tool
)

// maxLevels limits the depth of arguments that are read.
const maxLevels = 128

// textsOf iterates over the searched texts of an event. outline is the event without its native JSON, which is in
// data.
func textsOf(outline *envelopes.AgentEventV1, data []byte) iter.Seq2[Place, string] {
	return func(yield func(Place, string) bool) {
		place := InText
		if outline.Text != nil {
			text := *outline.Text
			switch outline.EventType {
			case envelopes.ToolCall:
				place, text = InArguments, argumentsOf(text)
			case envelopes.ToolResult:
				place = InOutput
			default:
			}
			if !yield(place, text) {
				return
			}
		}
		if outline.EventType != envelopes.ToolResult {
			return
		}
		s := jsonscan.NewScanner(data)
		s.Enter()
		for name, more := s.Name(); more; name, more = s.Name() {
			v := s.Value()
			switch string(name) {
			case "tool_input":
				place = InArguments
			case "tool_output":
				place = InOutput
			case "tool_metadata":
				place = InResult
			default:
				continue
			}
			if text := valuesOf(v); text != "" && !yield(place, text) {
				return
			}
		}
	}
}

// argumentsOf returns the values of arguments in JSON, and other arguments unchanged.
func argumentsOf(text string) string {
	if len(text) == 0 || text[0] != '{' && text[0] != '[' || !jsonscan.Check([]byte(text), maxLevels).Strict {
		return text
	}
	return valuesOf([]byte(text))
}

// valuesOf returns the values of JSON without names, each on its own lines.
func valuesOf(value []byte) string {
	s := jsonscan.NewScanner(value)
	return string(appendValues(nil, &s))
}

// appendValues appends the values of the next JSON value.
func appendValues(dst []byte, s *jsonscan.Scanner) []byte {
	switch s.Kind() {
	case '{':
		s.Enter()
		for _, more := s.Name(); more; _, more = s.Name() {
			dst = appendValues(dst, s)
		}
		s.Leave()
		return dst
	case '[':
		s.Enter()
		for s.Kind() != 0 {
			dst = appendValues(dst, s)
		}
		s.Leave()
		return dst
	case '"':
		dst = append(dst, jsonscan.Unquote(s.Value())...)
	case 'n':
		s.Value()
		return dst
	default:
		dst = append(dst, s.Value()...)
	}
	return append(dst, '\n')
}
