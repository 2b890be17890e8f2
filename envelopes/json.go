package envelopes

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth is how deep JSON that is read may be nested: the 128 levels that a record may
// have, in an event, in a CloudEvent.
const maxDepth = 128 + 2

var errTooDeep = errors.New("nested too deep")

// AppendJSON appends e in JSON to dst, on one line: the 29 fields of the spec in its
// order, then the additive ones that are not empty. The same event gives the same bytes
// everywhere. Native JSON (raw, tool_metadata, ...) keeps its spelling, except for the
// white space between tokens, which is left out. HTML characters are not escaped.
//
// What is not strict JSON (invalid UTF-8, a lone surrogate, a name twice in one object,
// more than 128 levels in a field) is an error that wraps [ErrInvalidEvent] and names
// the field; dst is then returned as it was. Nothing else is checked: see
// [AgentEventV1.Validate].
func (e *AgentEventV1) AppendJSON(dst []byte) ([]byte, error) {
	w := eventWriter{b: slices.Grow(dst, e.sizeHint())}
	w.begin('{')
	w.string("schema_version", e.SchemaVersion)
	w.string("source", string(e.Source))
	w.string("project_hash", e.ProjectHash)
	w.optional("project_root", e.ProjectRoot)
	w.string("session_id", e.SessionID)
	w.string("event_id", e.EventID)
	w.optional("parent_event_id", e.ParentEventID)
	w.string("ts", e.TS)
	w.string("event_type", string(e.EventType))
	w.optional("role", (*string)(e.Role))
	w.optional("channel", (*string)(e.Channel))
	w.optional("text", e.Text)
	w.optional("tool_name", e.ToolName)
	w.optional("tool_call_id", e.ToolCallID)
	w.optional("tool_status", (*string)(e.ToolStatus))
	w.count("tool_latency_ms", e.ToolLatencyMS)
	w.count("tool_exit_code", e.ToolExitCode)
	w.optional("file_path", e.FilePath)
	w.optional("file_language", e.FileLanguage)
	w.optional("file_op", (*string)(e.FileOp))
	w.optional("model", e.Model)
	w.count("tokens_input", e.TokensInput)
	w.count("tokens_output", e.TokensOutput)
	w.count("tokens_total", e.TokensTotal)
	w.count("tokens_cached", e.TokensCached)
	w.count("tokens_thinking", e.TokensThinking)
	w.count("tokens_tool", e.TokensTool)
	w.optional("agent_id", e.AgentID)
	w.native("raw", e.Raw)

	if e.Sequence != 0 {
		w.name("sequence")
		w.b = strconv.AppendUint(w.b, e.Sequence, 10)
	}
	w.metadata(e.Metadata)
	if e.ToolMetadata != nil {
		w.native("tool_metadata", e.ToolMetadata)
	}
	if e.MessageMetadata != nil {
		w.native("message_metadata", e.MessageMetadata)
	}
	w.usage(e.Usage)
	w.files(e.Files)
	w.nonEmpty("origin", string(e.Origin))
	w.flag("is_internal", e.IsInternal)
	w.nonEmpty("supersedes", e.Supersedes)
	w.flag("text_truncated", e.TextTruncated)
	w.end('}')
	if w.err != nil {
		return dst, w.err
	}
	return w.b, nil
}

// sizeHint is about the length of e in JSON, so that the buffer seldom grows twice.
func (e *AgentEventV1) sizeHint() int {
	size := 1024 + len(e.Raw) + len(e.ToolMetadata) + len(e.MessageMetadata)
	if e.Text != nil {
		size += len(*e.Text) + len(*e.Text)/16
	}
	return size
}

// eventWriter writes the members of an event. It keeps the first error, and what it
// writes after one is not used. The tests hold it to the tags of [AgentEventV1].
type eventWriter struct {
	b     []byte
	field string // of the event, for errors
	depth int
	err   error
}

// begin opens an object or an array.
func (w *eventWriter) begin(delimiter byte) {
	w.b = append(w.b, delimiter)
	w.depth++
}

// end closes it.
func (w *eventWriter) end(delimiter byte) {
	w.b = append(w.b, delimiter)
	w.depth--
}

// comma separates what follows from a member or element before it.
func (w *eventWriter) comma() {
	switch w.b[len(w.b)-1] {
	case '{', '[':
	default:
		w.b = append(w.b, ',')
	}
}

// name begins a member whose name needs no escape.
func (w *eventWriter) name(name string) {
	if w.depth == 1 {
		w.field = name
	}
	w.comma()
	w.b = append(append(append(w.b, '"'), name...), `":`...)
}

func (w *eventWriter) string(name, value string) {
	w.name(name)
	w.quote(value)
}

// quote writes a string.
func (w *eventWriter) quote(value string) {
	var err error
	w.b, err = jsontext.AppendQuote(w.b, value)
	w.fail(err)
}

func (w *eventWriter) optional(name string, value *string) {
	w.name(name)
	if value == nil {
		w.b = append(w.b, "null"...)
		return
	}
	w.quote(*value)
}

func (w *eventWriter) count(name string, value *int64) {
	w.name(name)
	if value == nil {
		w.b = append(w.b, "null"...)
		return
	}
	w.b = strconv.AppendInt(w.b, *value, 10)
}

func (w *eventWriter) nonEmpty(name, value string) {
	if value != "" {
		w.string(name, value)
	}
}

func (w *eventWriter) flag(name string, value bool) {
	if value {
		w.name(name)
		w.b = append(w.b, "true"...)
	}
}

// native writes a member whose value is JSON already.
func (w *eventWriter) native(name string, value jsontext.Value) {
	w.name(name)
	w.value(value)
}

// value writes JSON in its own spelling. The library parses it as it goes.
func (w *eventWriter) value(value jsontext.Value) {
	if value == nil {
		w.b = append(w.b, "null"...)
		return
	}
	if deeper(value, maxDepth-1-w.depth) {
		w.fail(errTooDeep)
		return
	}
	var err error
	w.b, err = jsontext.AppendFormat(w.b, value, jsontext.PreserveRawStrings(true))
	w.fail(err)
}

// fail keeps the first error.
func (w *eventWriter) fail(err error) {
	if err != nil && w.err == nil {
		w.err = invalid(w.field, "is not strict JSON: "+jsonProblem(err))
	}
}

func (w *eventWriter) metadata(m *Metadata) {
	if m == nil {
		return
	}
	w.name("metadata")
	w.begin('{')
	w.optional("sessionId", m.SessionID)
	w.optional("model", m.Model)
	for _, name := range slices.Sorted(maps.Keys(m.Extensions)) {
		if name == "sessionId" || name == "model" {
			w.fail(jsontext.ErrDuplicateName)
		}
		w.comma()
		w.quote(name)
		w.b = append(w.b, ':')
		w.value(m.Extensions[name])
	}
	w.end('}')
}

func (w *eventWriter) usage(u *Usage) {
	if u == nil {
		return
	}
	w.name("usage")
	w.begin('{')
	w.count("input", &u.Input)
	w.count("cache_read", &u.CacheRead)
	w.count("cache_write", &u.CacheWrite)
	w.count("output", &u.Output)
	w.count("reasoning", &u.Reasoning)
	w.nonEmpty("key", u.Key)
	w.end('}')
}

func (w *eventWriter) files(files []File) {
	if len(files) == 0 {
		return
	}
	w.name("files")
	w.begin('[')
	for _, f := range files {
		w.comma()
		w.begin('{')
		w.string("path", f.Path)
		w.string("op", string(f.Op))
		w.end('}')
	}
	w.end(']')
}

// plainEvent is an event without its methods, so that the decoder sees the fields.
type plainEvent AgentEventV1

// DecodeAgentEvent reads one event in JSON. As consumers must, it ignores fields that it
// does not know and keeps values of enums that it does not know; missing fields are
// null. It is strict about the JSON itself: UTF-8, no name twice in one object, depth,
// nothing after the event. The event shares no memory with data.
//
// The error wraps [ErrInvalidEvent]. The rules of [AgentEventV1.Validate] are not
// checked.
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
	for _, v := range []*jsontext.Value{&e.Raw, &e.ToolMetadata, &e.MessageMetadata} {
		if v.Kind() == jsontext.KindNull {
			*v = nil
		}
	}
	return e, nil
}

// MarshalJSON makes every JSON library write e as [AgentEventV1.AppendJSON] does.
func (e AgentEventV1) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil) }

// UnmarshalJSON makes every JSON library read e as [DecodeAgentEvent] does. By their
// convention null leaves e as it is.
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

// jsonProblem says what is wrong with JSON without repeating any of it: the library's
// own errors hold names and numbers of the document.
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

// deeper reports whether the JSON in data is nested deeper than limit. For what is no
// JSON the answer has no meaning; the decoder that follows refuses it.
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
// length of data when there is none.
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
