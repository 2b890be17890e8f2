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

// Tool is a use of a tool.
type Tool struct {
	ID, Name string
	Call     int // index of the record of the call
	Result   int // index of the record of the result, -1 for none
	Form     string
	Code     *int64
	Latency  *int64
	Running  bool
	Failed   bool
	Files    []envelopes.File // of the patch in the call
	Changed  []envelopes.File // of the end of the tool
	Body     string           // of the output in its result, without a header
	Repeats  []Repeat
}

// Repeat is an end behind the result of a tool with an exit code or a latency that the records before it lack.
type Repeat struct {
	At      int // index of the record
	Code    *int64
	Latency *int64
	Failed  bool
	Mute    bool // the end has no text
}

var (
	codexExitHeader    = regexp.MustCompile(`^Exit code: (-?\d+)\nWall time: ([\d.]+) seconds\n`)
	codexProcessHeader = regexp.MustCompile(`(?s)^(?:Command: .*?\n)?Chunk ID: [^\n]*\nWall time: ([\d.]+) seconds\nProcess (?:exited with code (-?\d+)|running with session ID \S+)\n`)
	codexWallHeader    = regexp.MustCompile(`^Wall time: ([\d.]+) seconds\nOutput:\n`)
	codexHeaded        = regexp.MustCompile(`^(?:Command|Chunk ID|Exit code|Wall time:?|Script)\b`)
	codexScriptHeader  = regexp.MustCompile(`^Script (\w+)[^\n]*\nWall time ([\d.]+) seconds\nOutput:`)
)

// stated reads the header before the body of an output.
func (t *Tool) stated(output any) {
	texts, _ := codexTexts(output)
	if c := normalizerstest.Member[any](output, "content"); c != nil {
		texts, _ = codexTexts(c)
	}
	if len(texts) == 0 {
		return
	}
	head := texts[0]
	t.Body = strings.Join(texts, "\n")
	if at := strings.Index(t.Body, "\nOutput:\n"); at >= 0 && codexHeaded.MatchString(head) {
		t.Body = t.Body[at+len("\nOutput:\n"):]
	}
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

// Types of items of tools: calls, outputs, and both at once.
var (
	callItems     = []string{"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"}
	outputItems   = []string{"function_call_output", "custom_tool_call_output", "tool_search_output"}
	finishedItems = []string{"web_search_call", "image_generation_call"}
)

// ToolsOf returns the tool calls of a file in the order of their events. A result without a call has an entry without
// a call.
func ToolsOf(records []Raw) []*Tool {
	u := toolUses{records: records, open: make(map[string]*Tool)}
	for i, r := range records {
		if r.bad {
			continue
		}
		id := cmp.Or(normalizerstest.Member[string](r.item, "call_id"), normalizerstest.Member[string](r.item, "callId"))
		switch typed := r.toolType(id); {
		case r.Kind == "event_msg":
			u.end(i, id)
		case r.Kind != "response_item" && r.Kind != "":
		case slices.Contains(callItems, typed):
			u.call(i, cmp.Or(id, normalizerstest.Member[string](r.item, "id")), typed)
		case slices.Contains(outputItems, typed):
			u.output(i, id)
		case slices.Contains(finishedItems, typed):
			u.finishedCall(i, cmp.Or(id, normalizerstest.Member[string](r.item, "id")), typed)
		case typed == "turn.started":
			u.turns++
		case typed == "item.started", typed == "item.completed":
			u.execItem(i, typed == "item.completed")
		}
	}
	return u.all
}

// toolType returns the type of an item. In the oldest rollouts items of tools state none.
func (r Raw) toolType(id string) string {
	switch {
	case r.Kind != "response_item" || r.of != "" || normalizerstest.Member[string](r.item, "role") != "":
		return r.of
	case normalizerstest.Member[string](r.item, "name") != "":
		return "function_call"
	case normalizerstest.Member[string](r.item, "status") != "" && id != "":
		return "function_call_output"
	default:
		return ""
	}
}

// isToolItem reports whether a record is an item of a tool, even a copy.
func (r Raw) isToolItem() bool {
	typed := r.toolType(normalizerstest.Member[string](r.item, "call_id"))
	return (r.Kind == "response_item" || r.Kind == "") && slices.Contains(slices.Concat(callItems, outputItems, finishedItems), typed)
}

// toolUses collects the tool calls of a file.
type toolUses struct {
	records []Raw
	all     []*Tool
	open    map[string]*Tool // the latest call of each id
	turns   int              // of the exec stream
}

// add adds a call that record i states.
func (u *toolUses) add(i int, id, name string) *Tool {
	t := &Tool{ID: id, Name: name, Call: i, Result: -1}
	u.all = append(u.all, t)
	if id != "" {
		u.open[id] = t
	}
	return t
}

// call reads an item that calls a tool, unless it repeats a call.
func (u *toolUses) call(i int, id, typed string) {
	item := u.records[i].item
	if t := u.open[id]; t != nil && t.Call >= 0 && reflect.DeepEqual(u.records[t.Call].item, item) {
		return
	}
	name := cmp.Or(normalizerstest.Member[string](item, "name"), strings.TrimSuffix(typed, "_call"))
	u.add(i, id, name).Files = codexPatch(item)
}

// output reads an item with the output of a call. An earlier end of the tool completes its header.
func (u *toolUses) output(i int, id string) {
	t := u.open[id]
	if t == nil || t.Result >= 0 {
		t = &Tool{ID: id, Call: -1, Result: -1}
		u.all = append(u.all, t)
	}
	before := *t
	t.Result = i
	t.stated(normalizerstest.Member[any](u.records[i].item, "output"))
	if t.Code == nil && before.Code != nil {
		t.Code, t.Form = before.Code, "exec_command_end"
	}
	if t.Latency == nil {
		t.Latency = before.Latency
	}
}

// finishedCall reads an item that is both call and result. The end of a search directly before it states the same
// call.
func (u *toolUses) finishedCall(i int, id, typed string) {
	end := i - 1
	for end > 0 && (u.records[end].bad || u.records[end].unknown()) {
		end--
	}
	if typed == "web_search_call" && len(u.all) > 0 && u.isSearchEnd(end, u.records[i].item) {
		if t := u.all[len(u.all)-1]; t.Result == end {
			t.Call, t.Result = i, i
			return
		}
	}
	u.add(i, id, strings.TrimSuffix(typed, "_call")).Result = i
}

// isSearchEnd reports whether a record is the end of the search that an item states.
func (u *toolUses) isSearchEnd(at int, item any) bool {
	if at < 0 {
		return false
	}
	r := u.records[at]
	return r.of == "web_search_end" && r.Kind == "event_msg" && reflect.DeepEqual(searched(r.item), searched(item))
}

// searched returns the action of a search: other, if it states none.
func searched(item any) any {
	return cmp.Or(normalizerstest.Member[any](item, "action"), any(map[string]any{"type": "other"}))
}

// unknown reports whether no version writes records of this type: a generated record, which is named so, an item of
// item_completed that is neither text nor tool, or a bare value that is no item.
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

// end reads the end of a tool in an event_msg beside the result.
func (u *toolUses) end(i int, id string) {
	r := u.records[i]
	name, ok := r.endedTool()
	if !ok {
		return
	}
	t := u.open[id]
	switch {
	case t == nil:
		t = u.add(i, id, name)
		if r.of != "view_image_tool_call" && r.of != "dynamic_tool_call_request" {
			t.Result = i
		}
	case r.of == "dynamic_tool_call_response" && u.records[t.Call].of == "dynamic_tool_call_request" && t.Result < 0:
		t.Result = i
	case t.Result >= 0 && t.Result < i:
		t.endedAgain(i, r)
		return
	}
	t.ended(r)
}

// endedAgain reads an end behind the result, which repeats the result if it states more.
func (t *Tool) endedAgain(i int, r Raw) {
	code, latency := t.Code, t.Latency
	if n := len(t.Repeats); n > 0 {
		code, latency = t.Repeats[n-1].Code, t.Repeats[n-1].Latency
	}
	var end Tool
	end.ended(r)
	mute := r.of == "exec_command_end"
	for _, name := range []string{"aggregated_output", "stdout", "stderr"} {
		mute = mute && normalizerstest.Member[string](r.item, name) == ""
	}
	if code == nil && end.Code != nil || latency == nil && end.Latency != nil {
		t.Repeats = append(t.Repeats, Repeat{At: i, Code: cmp.Or(end.Code, code), Latency: cmp.Or(end.Latency, latency), Failed: end.Failed, Mute: mute})
	}
}

// endedTool returns the name of the tool whose end an event_msg states, or false.
func (r Raw) endedTool() (string, bool) {
	switch r.of {
	case "exec_command_end":
		return "exec_command", true
	case "patch_apply_end":
		return "apply_patch", true
	case "mcp_tool_call_end":
		return mcpTool(normalizerstest.Member[any](r.item, "invocation")), true
	case "image_generation_end":
		return "image_generation", true
	case "view_image_tool_call":
		return "view_image", true
	case "dynamic_tool_call_request", "dynamic_tool_call_response":
		return normalizerstest.Member[string](r.item, "tool"), true
	case "web_search_end", "web_search":
		return "web_search", true
	default:
		return "", false
	}
}

// mcpTool is the name of a tool of an MCP server.
func mcpTool(invocation any) string {
	return "mcp__" + normalizerstest.Member[string](invocation, "server") + "__" + normalizerstest.Member[string](invocation, "tool")
}

// ended takes the outcome from the end of a tool.
func (t *Tool) ended(r Raw) {
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

// execItem reads an item of the exec stream. Its id is unique only in its turn.
func (u *toolUses) execItem(i int, completed bool) {
	item := normalizerstest.Member[any](u.records[i].item, "item")
	name := normalizerstest.Member[string](item, "type")
	switch name {
	case "command_execution", "file_change":
	case "web_search":
		if !completed && normalizerstest.Member[string](item, "query") == "" {
			return // the query comes at the end
		}
	case "collab_tool_call":
		name = normalizerstest.Member[string](item, "tool")
	case "mcp_tool_call":
		name = mcpTool(item)
	default:
		return
	}
	id := fmt.Sprintf("%d.%s", max(1, u.turns), normalizerstest.Member[string](item, "id"))
	t := u.open[id]
	if t == nil {
		t = u.add(i, id, name)
	}
	if completed && t.Result < 0 {
		t.Result = i
		if n, err := normalizerstest.Member[json.Number](item, "exit_code").Int64(); err == nil {
			t.Code, t.Form = &n, "exec stream"
		}
	}
}

// codexResultsOf returns the tools with a result, in the order of the results.
func codexResultsOf(records []Raw) []*Tool {
	out := slices.DeleteFunc(ToolsOf(records), func(t *Tool) bool { return t.Result < 0 })
	slices.SortStableFunc(out, func(a, b *Tool) int { return cmp.Compare(a.Result, b.Result) })
	return out
}

var codexFileHeader = regexp.MustCompile(`(?m)^\*\*\* (Add File|Update File|Delete File|Move to): (.*?)\s*$`)

// codexPatch returns the files of the patch in a call.
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

// codexStrings returns the strings in the arguments of a call.
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
