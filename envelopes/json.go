package envelopes

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds the nesting of JSON that this package reads: the 128 levels of a record,
// inside an event, inside a CloudEvent.
const maxDepth = 128 + 2

var errTooDeep = errors.New("nested too deep")

// plainEvent is an event without its methods, so that the library encodes and decodes it by its field tags.
type plainEvent AgentEventV1

// AppendJSON appends e in JSON to dst, on one line: the 29 fields of the schema in their
// order, then the additive fields that are not empty. The same event gives the same bytes on
// every machine. Native JSON (raw, tool_metadata, ...) keeps its spelling, without the white
// space between its tokens. HTML characters are not escaped.
//
// Input that is not strict JSON (invalid UTF-8, a lone surrogate, a name twice in one object,
// more than 128 levels in a field) is an error that wraps [ErrInvalidEvent] and names the
// field; AppendJSON then returns dst unchanged. It checks nothing else: see
// [AgentEventV1.Validate].
func (e *AgentEventV1) AppendJSON(dst []byte) ([]byte, error) {
	return e.AppendCheckedJSON(dst, Checked{})
}

// Checked names the native JSON of an event that is known to be strict, compact and at most 128 levels deep.
type Checked struct{ Raw, ToolMetadata bool }

// AppendCheckedJSON is [AgentEventV1.AppendJSON] without parsing the native JSON that was already checked.
func (e *AgentEventV1) AppendCheckedJSON(dst []byte, c Checked) ([]byte, error) {
	if dst != nil {
		if out, ok := e.appendPlain(dst, c); ok {
			return out, nil
		}
		return e.appendAny(dst)
	}
	buffer := eventBuffers.Get().(*[]byte)
	out, ok := e.appendPlain((*buffer)[:0], c)
	if ok {
		dst = bytes.Clone(out)
	}
	if *buffer = out; cap(out) <= maxEventBuffer {
		eventBuffers.Put(buffer)
	}
	if ok {
		return dst, nil
	}
	return e.appendAny(nil)
}

// eventBuffers pools buffers in which an event is made before it is copied at its length.
var eventBuffers = sync.Pool{New: func() any { return new([]byte) }}

// maxEventBuffer is the size of the largest pooled buffer.
const maxEventBuffer = 256 << 10

// appendAny is [AgentEventV1.AppendJSON] with the library, for any event.
func (e *AgentEventV1) appendAny(dst []byte) ([]byte, error) {
	if err := e.checkDepth(); err != nil {
		return dst, err
	}
	b, err := json.Marshal((*plainEvent)(e), json.Deterministic(true), jsontext.PreserveRawStrings(true))
	if err != nil {
		return dst, notStrictField(err)
	}
	return append(dst, b...), nil
}

// checkDepth reports the first field whose native JSON is nested too deep for
// [DecodeAgentEvent].
func (e *AgentEventV1) checkDepth() error {
	for _, f := range [...]struct {
		name  string
		value jsontext.Value
	}{
		{"raw", e.Raw},
		{"tool_metadata", e.ToolMetadata},
		{"tool_input", e.ToolInput},
		{"message_metadata", e.MessageMetadata},
	} {
		if deeper(f.value, maxDepth-2) {
			return invalid(f.name, "is not strict JSON: "+errTooDeep.Error())
		}
	}
	if e.Metadata == nil {
		return nil
	}
	for _, value := range e.Metadata.Extensions {
		if deeper(value, maxDepth-3) {
			return invalid("metadata", "is not strict JSON: "+errTooDeep.Error())
		}
	}
	return nil
}

// notStrictField returns the error for an event that the library cannot encode. It names the field, which is the
// first token of the library's JSON pointer: later tokens come from the record.
func notStrictField(err error) error {
	var pointer jsontext.Pointer
	var syntactic *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntactic):
		pointer = syntactic.JSONPointer
	case errors.As(err, &semantic):
		pointer = semantic.JSONPointer
	}
	field, _, _ := strings.Cut(strings.TrimPrefix(string(pointer), "/"), "/")
	return invalid(field, "is not strict JSON: "+jsonProblem(err))
}

// DecodeAgentEvent reads one event in JSON. As the schema asks of consumers, it ignores
// unknown fields and keeps unknown values of enums; missing fields are null. It is strict
// about the JSON itself: UTF-8, no name twice in one object, bounded depth, nothing after the
// event. The event shares no memory with data.
//
// The error wraps [ErrInvalidEvent]. DecodeAgentEvent does not check the rules of
// [AgentEventV1.Validate].
func DecodeAgentEvent(data []byte) (AgentEventV1, error) {
	if deeper(data, maxDepth-1) {
		return AgentEventV1{}, fmt.Errorf("%w: nested too deep", ErrInvalidEvent)
	}
	if jsontext.Value(data).Kind() != jsontext.KindBeginObject {
		return AgentEventV1{}, fmt.Errorf("%w: not a JSON object", ErrInvalidEvent)
	}
	var e AgentEventV1
	if err := json.Unmarshal(data, (*plainEvent)(&e)); err != nil {
		return AgentEventV1{}, fmt.Errorf("%w: %s", ErrInvalidEvent, jsonProblem(err))
	}
	for _, v := range []*jsontext.Value{&e.Raw, &e.ToolMetadata, &e.ToolInput, &e.MessageMetadata} {
		if v.Kind() == jsontext.KindNull {
			*v = nil
		}
	}
	return e, nil
}

// MarshalJSON makes every JSON library write e as [AgentEventV1.AppendJSON] does.
func (e AgentEventV1) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil) }

// UnmarshalJSON makes every JSON library read e as [DecodeAgentEvent] does. By the
// convention of these libraries null leaves e unchanged.
func (e *AgentEventV1) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	decoded, err := DecodeAgentEvent(data)
	if err == nil {
		*e = decoded
	}
	return err
}

// jsonProblem describes an error of the JSON library without repeating anything of the document; the library's own
// texts repeat names and values.
func jsonProblem(err error) string {
	var syntactic *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.Is(err, errTooDeep):
		return errTooDeep.Error()
	case errors.Is(err, jsontext.ErrDuplicateName):
		return "a name stands twice in one object"
	case errors.As(err, &syntactic):
		return fmt.Sprintf("wrong syntax or not UTF-8 at byte %d", syntactic.ByteOffset)
	case errors.As(err, &semantic):
		return fmt.Sprintf("wrong type of value at byte %d", semantic.ByteOffset)
	default:
		return "wrong"
	}
}

// deeper reports whether the JSON in data is nested deeper than limit. The answer is meaningless for other data,
// which the decoder that runs next rejects.
func deeper(data []byte, limit int) bool {
	// Nearly every event has fewer brackets than levels are allowed.
	if bytes.Count(data, []byte{'{'})+bytes.Count(data, []byte{'['}) <= limit {
		return false
	}
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			if depth++; depth > limit {
				return true
			}
		case '}', ']':
			depth--
		case '"':
			i += 1 + stringEnd(data[i+1:])
		}
	}
	return false
}

// stringEnd returns the index of the quote that ends the JSON string in data, or the
// length of data without such a quote.
func stringEnd(data []byte) int {
	for i := 0; ; {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			return len(data)
		}
		i += n
		escapes := 0
		for escapes < i && data[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i
		}
		i++
	}
}
