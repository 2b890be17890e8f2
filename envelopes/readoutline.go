package envelopes

import (
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
)

// readOutline is the fast path of [DecodeOutline]. It returns false for what the library must read or refuse: JSON
// that ends early or late, and fields of other types. It does not validate what it skips. BenchmarkOutline measures
// it.
func readOutline(data []byte) (e AgentEventV1, ok bool) {
	s := jsonscan.NewScanner(data)
	if s.Kind() != '{' {
		return e, false
	}
	values := new(outlineValues)
	r := outlineReader{e: &e, texts: values.texts[:], numbers: values.numbers[:]}
	s.Enter()
	for name, more := s.Name(); more; name, more = s.Name() {
		v := s.Value()
		read := outlineReaders[string(name)]
		if v == nil || read != nil && !read(&r, v) {
			return e, false
		}
	}
	return e, s.Close()
}

// outlineReader reads the fields of an outline. Its nullable fields point into shared texts and numbers.
type outlineReader struct {
	e       *AgentEventV1
	texts   []string
	numbers []int64
}

// outlineValues has the targets of an outline's nullable fields in one allocation.
type outlineValues struct {
	texts   [11]string
	numbers [8]int64
}

// outlineReaders read the fields of an outline. Each returns false for a value of another type.
var outlineReaders = map[string]func(*outlineReader, jsontext.Value) bool{
	"schema_version":  func(r *outlineReader, v jsontext.Value) bool { return readName(v, &r.e.SchemaVersion) },
	"source":          func(r *outlineReader, v jsontext.Value) bool { return readName(v, &r.e.Source) },
	"project_hash":    func(r *outlineReader, v jsontext.Value) bool { return readText(v, &r.e.ProjectHash) },
	"project_root":    func(r *outlineReader, v jsontext.Value) bool { return r.textOrNull(v, &r.e.ProjectRoot) },
	"session_id":      func(r *outlineReader, v jsontext.Value) bool { return readText(v, &r.e.SessionID) },
	"event_id":        func(r *outlineReader, v jsontext.Value) bool { return readText(v, &r.e.EventID) },
	"parent_event_id": func(r *outlineReader, v jsontext.Value) bool { return r.textOrNull(v, &r.e.ParentEventID) },
	"ts":              func(r *outlineReader, v jsontext.Value) bool { return readText(v, &r.e.TS) },
	"event_type":      func(r *outlineReader, v jsontext.Value) bool { return readName(v, &r.e.EventType) },
	"role":            func(r *outlineReader, v jsontext.Value) bool { return readNameOrNull(v, &r.e.Role) },
	"channel":         func(r *outlineReader, v jsontext.Value) bool { return readNameOrNull(v, &r.e.Channel) },
	"text":            func(r *outlineReader, v jsontext.Value) bool { return r.textOrNull(v, &r.e.Text) },
	"tool_name":       func(r *outlineReader, v jsontext.Value) bool { return r.textOrNull(v, &r.e.ToolName) },
	"tool_call_id":    func(r *outlineReader, v jsontext.Value) bool { return r.textOrNull(v, &r.e.ToolCallID) },
	"tool_status":     func(r *outlineReader, v jsontext.Value) bool { return readNameOrNull(v, &r.e.ToolStatus) },
	"tool_latency_ms": func(r *outlineReader, v jsontext.Value) bool { return r.numberOrNull(v, &r.e.ToolLatencyMS) },
	"tool_exit_code":  func(r *outlineReader, v jsontext.Value) bool { return r.numberOrNull(v, &r.e.ToolExitCode) },
	"file_path":       func(r *outlineReader, v jsontext.Value) bool { return r.textOrNull(v, &r.e.FilePath) },
	"file_language":   func(r *outlineReader, v jsontext.Value) bool { return r.textOrNull(v, &r.e.FileLanguage) },
	"file_op":         func(r *outlineReader, v jsontext.Value) bool { return readNameOrNull(v, &r.e.FileOp) },
	"model":           func(r *outlineReader, v jsontext.Value) bool { return r.textOrNull(v, &r.e.Model) },
	"tokens_input":    func(r *outlineReader, v jsontext.Value) bool { return r.numberOrNull(v, &r.e.TokensInput) },
	"tokens_output":   func(r *outlineReader, v jsontext.Value) bool { return r.numberOrNull(v, &r.e.TokensOutput) },
	"tokens_total":    func(r *outlineReader, v jsontext.Value) bool { return r.numberOrNull(v, &r.e.TokensTotal) },
	"tokens_cached":   func(r *outlineReader, v jsontext.Value) bool { return r.numberOrNull(v, &r.e.TokensCached) },
	"tokens_thinking": func(r *outlineReader, v jsontext.Value) bool { return r.numberOrNull(v, &r.e.TokensThinking) },
	"tokens_tool":     func(r *outlineReader, v jsontext.Value) bool { return r.numberOrNull(v, &r.e.TokensTool) },
	"agent_id":        func(r *outlineReader, v jsontext.Value) bool { return r.textOrNull(v, &r.e.AgentID) },
	"sequence":        func(r *outlineReader, v jsontext.Value) bool { return readCount(v, &r.e.Sequence) },
	"metadata":        func(r *outlineReader, v jsontext.Value) bool { return r.metadata(v, &r.e.Metadata) },
	"usage":           func(r *outlineReader, v jsontext.Value) bool { return readUsage(v, &r.e.Usage) },
	"files":           func(r *outlineReader, v jsontext.Value) bool { return json.Unmarshal(v, &r.e.Files) == nil },
	"origin":          func(r *outlineReader, v jsontext.Value) bool { return readName(v, &r.e.Origin) },
	"is_internal":     func(r *outlineReader, v jsontext.Value) bool { return readFlag(v, &r.e.IsInternal) },
	"supersedes":      func(r *outlineReader, v jsontext.Value) bool { return readText(v, &r.e.Supersedes) },
	"text_truncated":  func(r *outlineReader, v jsontext.Value) bool { return readFlag(v, &r.e.TextTruncated) },
	"via":             func(r *outlineReader, v jsontext.Value) bool { return readName(v, &r.e.Via) },
	"edge":            func(r *outlineReader, v jsontext.Value) bool { return readEdge(v, &r.e.Edge) },
	"vcs":             func(r *outlineReader, v jsontext.Value) bool { return readVCS(v, &r.e.VCS) },
}

// eachMember calls read for the members of an object until read returns false. It returns false then, and for a value
// that is not an object.
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

// readName reads a value of an enum.
func readName[T ~string](v jsontext.Value, to *T) bool {
	if name, known := enumNames()[string(v)]; known {
		*to = T(name)
		return true
	}
	return readText(v, to)
}

func readNameOrNull[T ~string](v jsontext.Value, to **T) bool {
	if v.Kind() == 'n' {
		return true
	}
	*to = new(T)
	return readName(v, *to)
}

// enumNames maps the JSON of enum values to the values, which every event has some of.
var enumNames = sync.OnceValue(func() map[string]string {
	names := map[string]string{strconv.Quote(SchemaVersion): SchemaVersion}
	addNames(names, Sources)
	addNames(names, EventTypes)
	addNames(names, roles)
	addNames(names, channels)
	addNames(names, toolStatuses)
	addNames(names, fileOps)
	addNames(names, origins)
	addNames(names, vias)
	return names
})

func addNames[T ~string](to map[string]string, enum []T) {
	for _, name := range enum {
		to[strconv.Quote(string(name))] = string(name)
	}
}

func (r *outlineReader) textOrNull(v jsontext.Value, to **string) bool {
	if v.Kind() == 'n' {
		return true
	}
	if len(r.texts) == 0 {
		return false // a repeated field
	}
	*to, r.texts = &r.texts[0], r.texts[1:]
	return readText(v, *to)
}

func (r *outlineReader) numberOrNull(v jsontext.Value, to **int64) bool {
	if v.Kind() == 'n' {
		return true
	}
	if len(r.numbers) == 0 {
		return false // a repeated field
	}
	*to, r.numbers = &r.numbers[0], r.numbers[1:]
	return readNumber(v, *to)
}

func readNumber(v jsontext.Value, to *int64) (ok bool) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	*to = n
	return err == nil
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
		case "cache_write_1h":
			return readNumber(v, &u.CacheWrite1h)
		case "web_search_requests":
			return readNumber(v, &u.WebSearchRequests)
		case "prompt":
			return readNumber(v, &u.Prompt)
		case "cost_usd":
			return json.Unmarshal(v, &u.CostUSD) == nil
		}
		return true
	})
}

func readEdge(v jsontext.Value, to **Edge) bool {
	if v.Kind() == 'n' {
		return true
	}
	edge := new(Edge)
	*to = edge
	return eachMember(v, func(name []byte, v jsontext.Value) bool {
		switch string(name) {
		case "host":
			return readText(v, &edge.Host)
		case "user":
			return readText(v, &edge.User)
		case "labels":
			edge.Labels = make(map[string]string)
			return eachMember(v, func(name []byte, v jsontext.Value) bool {
				var label string
				ok := readText(v, &label)
				edge.Labels[string(name)] = label
				return ok
			})
		case "verified":
			edge.Verified = v.Kind() == 't'
			return v.Kind() == 't' || v.Kind() == 'f'
		}
		return true
	})
}

func readVCS(v jsontext.Value, to **VCS) bool {
	if v.Kind() == 'n' {
		return true
	}
	vcs := new(VCS)
	*to = vcs
	return eachMember(v, func(name []byte, v jsontext.Value) bool {
		switch string(name) {
		case "repository":
			return readText(v, &vcs.Repository)
		case "branch":
			return readText(v, &vcs.Branch)
		case "commit":
			return readText(v, &vcs.Commit)
		case "pull_request":
			return readText(v, &vcs.PullRequest)
		}
		return true
	})
}

// metadata reads the part of the metadata that an outline has.
func (r *outlineReader) metadata(v jsontext.Value, to **Metadata) bool {
	if v.Kind() == 'n' {
		return true
	}
	m := new(Metadata)
	*to = m
	return eachMember(v, func(name []byte, v jsontext.Value) bool {
		switch string(name) {
		case "sessionId":
			return r.textOrNull(v, &m.SessionID)
		case "model":
			return r.textOrNull(v, &m.Model)
		case "error":
			m.Extensions = map[string]jsontext.Value{"error": v.Clone()}
		}
		return true
	})
}
