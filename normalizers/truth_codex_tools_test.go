package normalizers_test

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
)

// codexTool is one use of a tool.
type codexTool struct {
	id, name string
	call     int // index of the record that tells the call
	result   int // and of the one that tells the result, -1 without
	form     string
	code     *int64
	latency  *int64
	running  bool
	failed   bool
	files    []envelopes.File // of its patch
	changed  []envelopes.File // of its end
}

var (
	codexExitHeader    = regexp.MustCompile(`^Exit code: (-?\d+)\nWall time: ([\d.]+) seconds\n`)
	codexProcessHeader = regexp.MustCompile(`(?s)^(?:Command: .*?\n)?Chunk ID: [^\n]*\nWall time: ([\d.]+) seconds\nProcess (?:exited with code (-?\d+)|running with session ID \S+)\n`)
	codexWallHeader    = regexp.MustCompile(`^Wall time: ([\d.]+) seconds\nOutput:\n`)
	codexScriptHeader  = regexp.MustCompile(`^Script (\w+)[^\n]*\nWall time ([\d.]+) seconds\nOutput:`)
)

// stated reads what an output states in front of its body (vendor-formats.md 5.3).
func (t *codexTool) stated(output any) {
	texts, _ := codexTexts(output)
	if c := member[any](output, "content"); c != nil {
		texts, _ = codexTexts(c)
	}
	if len(texts) == 0 {
		return
	}
	head := texts[0]
	milliseconds := func(seconds string) {
		f, err := strconv.ParseFloat(seconds, 64)
		if err == nil {
			t.latency = new(int64(math.Round(f * 1000)))
		}
	}
	number := func(s string) *int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil
		}
		return &n
	}
	t.form = "none"
	if _, isText := output.(string); isText && strings.HasPrefix(head, "{") {
		var form struct {
			Output   *string `json:"output"`
			Metadata *struct {
				ExitCode *int64   `json:"exit_code"`
				Duration *float64 `json:"duration_seconds"`
			} `json:"metadata"`
		}
		if json.Unmarshal([]byte(head), &form) == nil && form.Output != nil && form.Metadata != nil {
			t.form, t.code = "JSON metadata", form.Metadata.ExitCode
			if d := form.Metadata.Duration; d != nil {
				t.latency = new(int64(math.Round(*d * 1000)))
			}
			return
		}
	}
	if m := codexExitHeader.FindStringSubmatch(head); m != nil {
		t.form, t.code = "Exit code:", number(m[1])
		milliseconds(m[2])
	} else if m := codexProcessHeader.FindStringSubmatch(head); m != nil {
		milliseconds(m[1])
		t.form, t.running = "running", m[2] == ""
		if !t.running {
			t.form, t.code = "Process exited with code", number(m[2])
		}
	} else if m := codexWallHeader.FindStringSubmatch(head); m != nil {
		t.form = "Wall time:"
		milliseconds(m[1])
	} else if m := codexScriptHeader.FindStringSubmatch(head); m != nil {
		milliseconds(m[2])
		t.form, t.running = "Script "+m[1], m[1] == "running"
		t.failed = t.failed || m[1] == "failed" || m[1] == "error"
	}
}

// codexToolsOf are the tool calls of a file, in the order in which they are told; where a
// record tells a result without a call, its entry has no call.
func codexToolsOf(records []codexRaw) []*codexTool {
	var out []*codexTool
	open := make(map[string]*codexTool)
	add := func(i int, id, name string) *codexTool {
		t := &codexTool{id: id, name: name, call: i, result: -1}
		out = append(out, t)
		if id != "" {
			open[id] = t
		}
		return t
	}
	turns := 0
	for i, r := range records {
		id := cmp.Or(member[string](r.item, "call_id"), member[string](r.item, "callId"))
		name := member[string](r.item, "name")
		typed := r.of
		if r.kind == "response_item" && typed == "" && member[string](r.item, "role") == "" {
			switch {
			case name != "":
				typed = "function_call"
			case member[string](r.item, "status") != "" && id != "":
				typed = "function_call_output"
			}
		}
		switch {
		case r.bad:
		case r.kind == "event_msg":
			codexEnd(records, i, id, open, add)
		case r.kind != "response_item" && r.kind != "":
		case typed == "function_call", typed == "custom_tool_call", typed == "local_shell_call", typed == "tool_search_call":
			if t := open[id]; t != nil && t.call >= 0 && reflect.DeepEqual(records[t.call].item, r.item) {
				continue // the same again
			}
			name = cmp.Or(name, strings.TrimSuffix(typed, "_call"))
			t := add(i, id, name)
			t.files = codexPatch(r.item)
		case typed == "function_call_output", typed == "custom_tool_call_output", typed == "tool_search_output":
			t := open[id]
			if t == nil || t.result >= 0 {
				t = &codexTool{id: id, call: -1, result: -1}
				out = append(out, t)
			}
			before := *t
			t.result = i
			t.stated(member[any](r.item, "output"))
			if t.code == nil && before.code != nil {
				t.code, t.form = before.code, "exec_command_end"
			}
			if t.latency == nil {
				t.latency = before.latency
			}
		case typed == "web_search_call", typed == "image_generation_call":
			id = cmp.Or(id, member[string](r.item, "id"))
			if i > 0 && records[i-1].of == "web_search_end" && records[i-1].kind == "event_msg" && len(out) > 0 &&
				reflect.DeepEqual(member[any](records[i-1].item, "action"), member[any](r.item, "action")) {
				if t := out[len(out)-1]; t.result == i-1 {
					t.call, t.result = i, i
					continue
				}
			}
			add(i, id, strings.TrimSuffix(typed, "_call")).result = i
		case typed == "turn.started":
			turns++
		case typed == "item.started", typed == "item.completed":
			codexExecTool(i, r, turns, open, add, typed == "item.completed")
		}
	}
	return out
}

// codexEnd is the end of a tool beside its result.
func codexEnd(records []codexRaw, i int, id string, open map[string]*codexTool, add func(int, string, string) *codexTool) {
	r := records[i]
	var name string
	switch r.of {
	case "exec_command_end":
		name = "exec_command"
	case "patch_apply_end":
		name = "apply_patch"
	case "mcp_tool_call_end":
		name = "mcp__" + member[string](r.item, "invocation", "server") + "__" + member[string](r.item, "invocation", "tool")
	case "image_generation_end":
		name = "image_generation"
	case "view_image_tool_call":
		name = "view_image"
	case "dynamic_tool_call_request", "dynamic_tool_call_response":
		name = member[string](r.item, "tool")
	case "web_search_end", "web_search":
		name = "web_search"
	default:
		return
	}
	t := open[id]
	if t == nil {
		t = add(i, id, name)
		if r.of != "view_image_tool_call" && r.of != "dynamic_tool_call_request" {
			t.result = i
		}
	} else if r.of == "dynamic_tool_call_response" && records[t.call].of == "dynamic_tool_call_request" && t.result < 0 {
		t.result = i
	} else if t.result >= 0 && t.result < i {
		return
	}
	if n, err := member[json.Number](r.item, "exit_code").Int64(); err == nil {
		t.code, t.form = &n, "exec_command_end"
	}
	if s, err := member[json.Number](r.item, "duration", "secs").Float64(); err == nil && s >= 0 {
		n, _ := member[json.Number](r.item, "duration", "nanos").Float64()
		t.latency = new(int64(math.Round(s*1000 + n/1e6)))
	}
	ok, said := member[any](r.item, "success").(bool)
	status := member[string](r.item, "status")
	t.failed = t.failed || said && !ok || status == "failed" || status == "declined" ||
		member[any](r.item, "result", "Err") != nil || member[bool](r.item, "result", "Ok", "isError")
	if r.of == "patch_apply_end" {
		t.changed = codexChanges(member[map[string]any](r.item, "changes"))
	}
}

// codexExecTool is an item of the exec stream.
func codexExecTool(i int, r codexRaw, turns int, open map[string]*codexTool, add func(int, string, string) *codexTool, completed bool) {
	item := member[any](r.item, "item")
	name := member[string](item, "type")
	switch name {
	case "command_execution", "file_change":
	case "web_search":
		if !completed && member[string](item, "query") == "" {
			return // what is searched for comes at the end
		}
	case "collab_tool_call":
		name = member[string](item, "tool")
	case "mcp_tool_call":
		name = "mcp__" + member[string](item, "server") + "__" + member[string](item, "tool")
	default:
		return
	}
	id := fmt.Sprintf("%d.%s", max(1, turns), member[string](item, "id"))
	t := open[id]
	if t == nil {
		t = add(i, id, name)
	}
	if completed && t.result < 0 {
		t.result = i
		if n, err := member[json.Number](item, "exit_code").Int64(); err == nil {
			t.code, t.form = &n, "exec stream"
		}
	}
}

// codexResultsOf are the tools that have a result, in the order of the results.
func codexResultsOf(records []codexRaw) []*codexTool {
	out := slices.DeleteFunc(codexToolsOf(records), func(t *codexTool) bool { return t.result < 0 })
	slices.SortStableFunc(out, func(a, b *codexTool) int { return cmp.Compare(a.result, b.result) })
	return out
}

var codexFileHeader = regexp.MustCompile(`(?m)^\*\*\* (Add File|Update File|Delete File|Move to): (.*?)\s*$`)

// codexPatch are the files of the patch in a call.
func codexPatch(item any) []envelopes.File {
	for _, words := range codexStrings(item) {
		_, patch, ok := strings.Cut(words, "*** Begin Patch")
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
		v := member[any](item, name)
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
		out = append(out, envelopes.File{Path: p, Op: ops[member[string](change, "type")]})
		if to := member[string](change, "move_path"); to != "" {
			out = append(out, envelopes.File{Path: to, Op: "move"})
		}
	}
	slices.SortFunc(out, func(a, b envelopes.File) int { return strings.Compare(a.Path, b.Path) })
	return out
}
