package envelopes

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
)

// maxOutlineDepth is more levels than an event has whose native JSON is within its bound.
const maxOutlineDepth = 2 * maxDepth

// readOutline is the fast path of [DecodeOutline]. It returns false for what the library has to
// read, or to refuse: JSON that is not strict, and a field of another type. BenchmarkOutline
// measures it.
func readOutline(data []byte) (e AgentEventV1, ok bool) {
	if !jsonscan.Check(data, maxOutlineDepth).Strict {
		return e, false
	}
	ok = eachMember(data, func(name []byte, v jsontext.Value) bool {
		read := outlineReaders[string(name)]
		return read == nil || read(&e, v)
	})
	return e, ok
}

// outlineReaders read the fields of an outline. Each returns false for a value of another type.
var outlineReaders = map[string]func(*AgentEventV1, jsontext.Value) bool{
	"schema_version":  func(e *AgentEventV1, v jsontext.Value) bool { return readText(v, &e.SchemaVersion) },
	"source":          func(e *AgentEventV1, v jsontext.Value) bool { return readText(v, &e.Source) },
	"project_hash":    func(e *AgentEventV1, v jsontext.Value) bool { return readText(v, &e.ProjectHash) },
	"project_root":    func(e *AgentEventV1, v jsontext.Value) bool { return readTextOrNull(v, &e.ProjectRoot) },
	"session_id":      func(e *AgentEventV1, v jsontext.Value) bool { return readText(v, &e.SessionID) },
	"event_id":        func(e *AgentEventV1, v jsontext.Value) bool { return readText(v, &e.EventID) },
	"parent_event_id": func(e *AgentEventV1, v jsontext.Value) bool { return readTextOrNull(v, &e.ParentEventID) },
	"ts":              func(e *AgentEventV1, v jsontext.Value) bool { return readText(v, &e.TS) },
	"event_type":      func(e *AgentEventV1, v jsontext.Value) bool { return readText(v, &e.EventType) },
	"role":            func(e *AgentEventV1, v jsontext.Value) bool { return readTextOrNull(v, &e.Role) },
	"channel":         func(e *AgentEventV1, v jsontext.Value) bool { return readTextOrNull(v, &e.Channel) },
	"text":            func(e *AgentEventV1, v jsontext.Value) bool { return readTextOrNull(v, &e.Text) },
	"tool_name":       func(e *AgentEventV1, v jsontext.Value) bool { return readTextOrNull(v, &e.ToolName) },
	"tool_call_id":    func(e *AgentEventV1, v jsontext.Value) bool { return readTextOrNull(v, &e.ToolCallID) },
	"tool_status":     func(e *AgentEventV1, v jsontext.Value) bool { return readTextOrNull(v, &e.ToolStatus) },
	"tool_latency_ms": func(e *AgentEventV1, v jsontext.Value) bool { return readNumberOrNull(v, &e.ToolLatencyMS) },
	"tool_exit_code":  func(e *AgentEventV1, v jsontext.Value) bool { return readNumberOrNull(v, &e.ToolExitCode) },
	"file_path":       func(e *AgentEventV1, v jsontext.Value) bool { return readTextOrNull(v, &e.FilePath) },
	"file_language":   func(e *AgentEventV1, v jsontext.Value) bool { return readTextOrNull(v, &e.FileLanguage) },
	"file_op":         func(e *AgentEventV1, v jsontext.Value) bool { return readTextOrNull(v, &e.FileOp) },
	"model":           func(e *AgentEventV1, v jsontext.Value) bool { return readTextOrNull(v, &e.Model) },
	"tokens_input":    func(e *AgentEventV1, v jsontext.Value) bool { return readNumberOrNull(v, &e.TokensInput) },
	"tokens_output":   func(e *AgentEventV1, v jsontext.Value) bool { return readNumberOrNull(v, &e.TokensOutput) },
	"tokens_total":    func(e *AgentEventV1, v jsontext.Value) bool { return readNumberOrNull(v, &e.TokensTotal) },
	"tokens_cached":   func(e *AgentEventV1, v jsontext.Value) bool { return readNumberOrNull(v, &e.TokensCached) },
	"tokens_thinking": func(e *AgentEventV1, v jsontext.Value) bool { return readNumberOrNull(v, &e.TokensThinking) },
	"tokens_tool":     func(e *AgentEventV1, v jsontext.Value) bool { return readNumberOrNull(v, &e.TokensTool) },
	"agent_id":        func(e *AgentEventV1, v jsontext.Value) bool { return readTextOrNull(v, &e.AgentID) },
	"sequence":        func(e *AgentEventV1, v jsontext.Value) bool { return readCount(v, &e.Sequence) },
	"metadata":        func(e *AgentEventV1, v jsontext.Value) bool { return readOutlineMetadata(v, &e.Metadata) },
	"usage":           func(e *AgentEventV1, v jsontext.Value) bool { return readUsage(v, &e.Usage) },
	"files":           func(e *AgentEventV1, v jsontext.Value) bool { return json.Unmarshal(v, &e.Files) == nil },
	"origin":          func(e *AgentEventV1, v jsontext.Value) bool { return readText(v, &e.Origin) },
	"is_internal":     func(e *AgentEventV1, v jsontext.Value) bool { return readFlag(v, &e.IsInternal) },
	"supersedes":      func(e *AgentEventV1, v jsontext.Value) bool { return readText(v, &e.Supersedes) },
	"text_truncated":  func(e *AgentEventV1, v jsontext.Value) bool { return readFlag(v, &e.TextTruncated) },
}

// eachMember calls read for the members of an object, until it returns false; false for a value that
// is no object.
func eachMember(object jsontext.Value, read func(name []byte, v jsontext.Value) bool) bool {
	s := jsonscan.NewScanner(object)
	if s.Kind() != '{' {
		return false
	}
	s.Enter()
	for {
		name, more := s.Name()
		if !more {
			return true
		}
		if !read(name, s.Value()) {
			return false
		}
	}
}

func readText[T ~string](v jsontext.Value, to *T) bool {
	if v.Kind() != '"' {
		return false
	}
	*to = T(jsonscan.Unquote(v))
	return true
}

func readTextOrNull[T ~string](v jsontext.Value, to **T) bool {
	if v.Kind() == 'n' {
		return true
	}
	*to = new(T)
	return readText(v, *to)
}

func readNumber(v jsontext.Value, to *int64) (ok bool) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	*to = n
	return err == nil
}

func readNumberOrNull(v jsontext.Value, to **int64) bool {
	if v.Kind() == 'n' {
		return true
	}
	*to = new(int64)
	return readNumber(v, *to)
}

func readCount(v jsontext.Value, to *uint64) bool {
	n, err := strconv.ParseUint(string(v), 10, 64)
	*to = n
	return err == nil
}

func readFlag(v jsontext.Value, to *bool) bool {
	*to = v.Kind() == 't'
	return *to || v.Kind() == 'f'
}

func readUsage(v jsontext.Value, to **Usage) bool {
	if v.Kind() == 'n' {
		return true
	}
	u := new(Usage)
	*to = u
	return eachMember(v, func(name []byte, v jsontext.Value) bool {
		switch string(name) {
		case "input":
			return readNumber(v, &u.Input)
		case "cache_read":
			return readNumber(v, &u.CacheRead)
		case "cache_write":
			return readNumber(v, &u.CacheWrite)
		case "output":
			return readNumber(v, &u.Output)
		case "reasoning":
			return readNumber(v, &u.Reasoning)
		case "key":
			return readText(v, &u.Key)
		}
		return true
	})
}

// readOutlineMetadata reads the part of the metadata that an outline has.
func readOutlineMetadata(v jsontext.Value, to **Metadata) bool {
	if v.Kind() == 'n' {
		return true
	}
	m := new(Metadata)
	*to = m
	return eachMember(v, func(name []byte, v jsontext.Value) bool {
		switch string(name) {
		case "sessionId":
			return readTextOrNull(v, &m.SessionID)
		case "model":
			return readTextOrNull(v, &m.Model)
		case "error":
			m.Extensions = map[string]jsontext.Value{"error": v.Clone()}
		}
		return true
	})
}
