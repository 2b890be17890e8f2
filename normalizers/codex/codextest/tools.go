package codextest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Tool is one use of a tool.
type Tool struct {
	ID, Name string
	Call     int // index of the record of the call
	Result   int // and of the record of the result, -1 without
	Form     string
	Code     *int64
	Latency  *int64
	Running  bool
	Failed   bool
	Files    []envelopes.File // of its patch
	Changed  []envelopes.File // of its end
}

var (
	codexExitHeader    = regexp.MustCompile(`^Exit code: (-?\d+)\nWall time: ([\d.]+) seconds\n`)
	codexProcessHeader = regexp.MustCompile(`(?s)^(?:Command: .*?\n)?Chunk ID: [^\n]*\nWall time: ([\d.]+) seconds\nProcess (?:exited with code (-?\d+)|running with session ID \S+)\n`)
	codexWallHeader    = regexp.MustCompile(`^Wall time: ([\d.]+) seconds\nOutput:\n`)
	codexScriptHeader  = regexp.MustCompile(`^Script (\w+)[^\n]*\nWall time ([\d.]+) seconds\nOutput:`)
)

// stated reads the header in front of the body of an output.
func (t *Tool) stated(output any) {
	texts, _ := codexTexts(output)
	if c := normalizerstest.Member[any](output, "content"); c != nil {
		texts, _ = codexTexts(c)
	}
	if len(texts) == 0 {
		return
	}
	head := texts[0]
	milliseconds := func(seconds string) {
		f, err := strconv.ParseFloat(seconds, 64)
		if err == nil {
			t.Latency = new(int64(math.Round(f * 1000)))
		}
	}
	number := func(s string) *int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil
		}
		return &n
	}
	t.Form = "none"
	if _, isText := output.(string); isText && strings.HasPrefix(head, "{") {
		var form struct {
			Output   *string `json:"output"`
			Metadata *struct {
				ExitCode *int64   `json:"exit_code"`
				Duration *float64 `json:"duration_seconds"`
			} `json:"metadata"`
		}
		if json.Unmarshal([]byte(head), &form) == nil && form.Output != nil && form.Metadata != nil {
			t.Form, t.Code = "JSON metadata", form.Metadata.ExitCode
			if d := form.Metadata.Duration; d != nil {
				t.Latency = new(int64(math.Round(*d * 1000)))
			}
			return
		}
	}
	if m := codexExitHeader.FindStringSubmatch(head); m != nil {
		t.Form, t.Code = "Exit code:", number(m[1])
		milliseconds(m[2])
	} else if m := codexProcessHeader.FindStringSubmatch(head); m != nil {
		milliseconds(m[1])
		t.Form, t.Running = "running", m[2] == ""
		if !t.Running {
			t.Form, t.Code = "Process exited with code", number(m[2])
		}
	} else if m := codexWallHeader.FindStringSubmatch(head); m != nil {
		t.Form = "Wall time:"
		milliseconds(m[1])
	} else if m := codexScriptHeader.FindStringSubmatch(head); m != nil {
		milliseconds(m[2])
		t.Form, t.Running = "Script "+m[1], m[1] == "running"
		t.Failed = t.Failed || m[1] == "failed" || m[1] == "error"
	}
}

// ToolsOf returns the tool calls of a file, in the order of their events; the entry of a result
// without a call has none.
func ToolsOf(records []Raw) []*Tool {
	var out []*Tool
	open := make(map[string]*Tool)
	add := func(i int, id, name string) *Tool {
		t := &Tool{ID: id, Name: name, Call: i, Result: -1}
		out = append(out, t)
		if id != "" {
			open[id] = t
		}
		return t
	}
	turns := 0
	for i, r := range records {
		id := cmp.Or(normalizerstest.Member[string](r.item, "call_id"), normalizerstest.Member[string](r.item, "callId"))
		name := normalizerstest.Member[string](r.item, "name")
		typed := r.of
		if r.Kind == "response_item" && typed == "" && normalizerstest.Member[string](r.item, "role") == "" {
			switch {
			case name != "":
				typed = "function_call"
			case normalizerstest.Member[string](r.item, "status") != "" && id != "":
				typed = "function_call_output"
			}
		}
		switch {
		case r.bad:
		case r.Kind == "event_msg":
			codexEnd(records, i, id, open, add)
		case r.Kind != "response_item" && r.Kind != "":
		case typed == "function_call", typed == "custom_tool_call", typed == "local_shell_call", typed == "tool_search_call":
			if t := open[id]; t != nil && t.Call >= 0 && reflect.DeepEqual(records[t.Call].item, r.item) {
				continue // the same again
			}
			name = cmp.Or(name, strings.TrimSuffix(typed, "_call"))
			t := add(i, id, name)
			t.Files = codexPatch(r.item)
		case typed == "function_call_output", typed == "custom_tool_call_output", typed == "tool_search_output":
			t := open[id]
			if t == nil || t.Result >= 0 {
				t = &Tool{ID: id, Call: -1, Result: -1}
				out = append(out, t)
			}
			before := *t
			t.Result = i
			t.stated(normalizerstest.Member[any](r.item, "output"))
			if t.Code == nil && before.Code != nil {
				t.Code, t.Form = before.Code, "exec_command_end"
			}
			if t.Latency == nil {
				t.Latency = before.Latency
			}
		case typed == "web_search_call", typed == "image_generation_call":
			id = cmp.Or(id, normalizerstest.Member[string](r.item, "id"))
			end := i - 1
			for end > 0 && (records[end].bad || records[end].unknown()) {
				end--
			}
			if end >= 0 && records[end].of == "web_search_end" && records[end].Kind == "event_msg" && len(out) > 0 &&
				reflect.DeepEqual(normalizerstest.Member[any](records[end].item, "action"), normalizerstest.Member[any](r.item, "action")) {
				if t := out[len(out)-1]; t.Result == end {
					t.Call, t.Result = i, i
					continue
				}
			}
			add(i, id, strings.TrimSuffix(typed, "_call")).Result = i
		case typed == "turn.started":
			turns++
		case typed == "item.started", typed == "item.completed":
			codexExecTool(i, r, turns, open, add, typed == "item.completed")
		}
	}
	return out
}

// unknown reports whether a record is of a type that no version wrote so far: a generated one,
// which is named for that, an item of item_completed that is neither a text nor a tool, or a
// bare value that is no item.
func (r Raw) unknown() bool {
	switch {
	case r.Kind == "of_tomorrow", r.of == "of_tomorrow":
		return true
	case r.of == "item_completed":
		return !slices.Contains([]string{"UserMessage", "AgentMessage", "Plan", "Reasoning"}, normalizerstest.Member[string](r.item, "item", "type"))
	case r.Kind == "" && r.of == "":
		for _, name := range []string{"id", "role", "name", "call_id", "record_type"} {
			if normalizerstest.Member[string](r.item, name) != "" {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// codexEnd is the end of a tool beside its result.
func codexEnd(records []Raw, i int, id string, open map[string]*Tool, add func(int, string, string) *Tool) {
	r := records[i]
	var name string
	switch r.of {
	case "exec_command_end":
		name = "exec_command"
	case "patch_apply_end":
		name = "apply_patch"
	case "mcp_tool_call_end":
		name = "mcp__" + normalizerstest.Member[string](r.item, "invocation", "server") + "__" + normalizerstest.Member[string](r.item, "invocation", "tool")
	case "image_generation_end":
		name = "image_generation"
	case "view_image_tool_call":
		name = "view_image"
	case "dynamic_tool_call_request", "dynamic_tool_call_response":
		name = normalizerstest.Member[string](r.item, "tool")
	case "web_search_end", "web_search":
		name = "web_search"
	default:
		return
	}
	t := open[id]
	if t == nil {
		t = add(i, id, name)
		if r.of != "view_image_tool_call" && r.of != "dynamic_tool_call_request" {
			t.Result = i
		}
	} else if r.of == "dynamic_tool_call_response" && records[t.Call].of == "dynamic_tool_call_request" && t.Result < 0 {
		t.Result = i
	} else if t.Result >= 0 && t.Result < i {
		return
	}
	if n, err := normalizerstest.Member[json.Number](r.item, "exit_code").Int64(); err == nil {
		t.Code, t.Form = &n, "exec_command_end"
	}
	if s, err := normalizerstest.Member[json.Number](r.item, "duration", "secs").Float64(); err == nil && s >= 0 {
		n, _ := normalizerstest.Member[json.Number](r.item, "duration", "nanos").Float64()
		t.Latency = new(int64(math.Round(s*1000 + n/1e6)))
	}
	ok, hasOutcome := normalizerstest.Member[any](r.item, "success").(bool)
	status := normalizerstest.Member[string](r.item, "status")
	t.Failed = t.Failed || hasOutcome && !ok || status == "failed" || status == "declined" ||
		normalizerstest.Member[any](r.item, "result", "Err") != nil || normalizerstest.Member[bool](r.item, "result", "Ok", "isError")
	if r.of == "patch_apply_end" {
		t.Changed = codexChanges(normalizerstest.Member[map[string]any](r.item, "changes"))
	}
}

// codexExecTool is an item of the exec stream.
func codexExecTool(i int, r Raw, turns int, open map[string]*Tool, add func(int, string, string) *Tool, completed bool) {
	item := normalizerstest.Member[any](r.item, "item")
	name := normalizerstest.Member[string](item, "type")
	switch name {
	case "command_execution", "file_change":
	case "web_search":
		if !completed && normalizerstest.Member[string](item, "query") == "" {
			return // what is searched for comes at the end
		}
	case "collab_tool_call":
		name = normalizerstest.Member[string](item, "tool")
	case "mcp_tool_call":
		name = "mcp__" + normalizerstest.Member[string](item, "server") + "__" + normalizerstest.Member[string](item, "tool")
	default:
		return
	}
	id := fmt.Sprintf("%d.%s", max(1, turns), normalizerstest.Member[string](item, "id"))
	t := open[id]
	if t == nil {
		t = add(i, id, name)
	}
	if completed && t.Result < 0 {
		t.Result = i
		if n, err := normalizerstest.Member[json.Number](item, "exit_code").Int64(); err == nil {
			t.Code, t.Form = &n, "exec stream"
		}
	}
}

// codexResultsOf are the tools that have a result, in the order of the results.
func codexResultsOf(records []Raw) []*Tool {
	out := slices.DeleteFunc(ToolsOf(records), func(t *Tool) bool { return t.Result < 0 })
	slices.SortStableFunc(out, func(a, b *Tool) int { return cmp.Compare(a.Result, b.Result) })
	return out
}

var codexFileHeader = regexp.MustCompile(`(?m)^\*\*\* (Add File|Update File|Delete File|Move to): (.*?)\s*$`)

// codexPatch are the files of the patch in a call.
func codexPatch(item any) []envelopes.File {
	for _, phrase := range codexStrings(item) {
		_, patch, ok := strings.Cut(phrase, "*** Begin Patch")
		if !ok {
			continue
		}
		patch, _, _ = strings.Cut(patch, "\n*** End Patch")
		ops := map[string]envelopes.FileOp{"Add File": "create", "Update File": "modify", "Delete File": "delete", "Move to": "move"}
		var out []envelopes.File
		for _, m := range codexFileHeader.FindAllStringSubmatch(patch, -1) {
			out = append(out, envelopes.File{Path: m[2], Op: ops[m[1]]})
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// codexStrings are the strings in the arguments of a call.
func codexStrings(item any) []string {
	var out []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(v[k])
			}
		}
	}
	for _, name := range []string{"arguments", "input", "action"} {
		v := normalizerstest.Member[any](item, name)
		if s, ok := v.(string); ok {
			var inner any
			if json.Unmarshal([]byte(s), &inner) == nil {
				v = inner
			}
		}
		walk(v)
	}
	return out
}

func codexChanges(changes map[string]any) []envelopes.File {
	ops := map[string]envelopes.FileOp{"add": "create", "update": "modify", "delete": "delete"}
	var out []envelopes.File
	for p, change := range changes {
		out = append(out, envelopes.File{Path: p, Op: ops[normalizerstest.Member[string](change, "type")]})
		if to := normalizerstest.Member[string](change, "move_path"); to != "" {
			out = append(out, envelopes.File{Path: to, Op: "move"})
		}
	}
	slices.SortFunc(out, func(a, b envelopes.File) int { return strings.Compare(a.Path, b.Path) })
	return out
}
