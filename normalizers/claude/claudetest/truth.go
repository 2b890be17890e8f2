package claudetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// claudeObject gives a message of the SDK that comes as an object, without a type, the form
// of a line of the stream; any other record stays.
func claudeObject(v any) any {
	m, ok := v.(map[string]any)
	if _, typed := m["type"]; !ok || typed {
		return v
	}
	if data, ok := m["data"].(map[string]any); ok && m["subtype"] == "init" {
		return data
	}
	out := maps.Clone(m)
	_, isResult := m["tool_use_result"]
	content, hasContent := m["content"].([]any)
	switch {
	case m["num_turns"] != nil || m["total_cost_usd"] != nil:
		out["type"] = "result"
	case m["event"] != nil:
		out["type"] = "stream_event"
	case hasContent && normalizerstest.Member[string](m, "model") != "":
		out["type"] = "assistant"
		out["message"] = map[string]any{"role": "assistant", "content": m["content"], "model": m["model"]}
		out["error"] = m["error"]
	case hasContent && (normalizerstest.Member[string](m, "uuid") != "" || isResult):
		blocks := []any{}
		for _, b := range content {
			if block, ok := b.(map[string]any); ok && block["type"] == nil && block["tool_use_id"] != nil {
				block = maps.Clone(block)
				block["type"] = "tool_result"
				b = block
			}
			blocks = append(blocks, b)
		}
		out["type"] = "user"
		out["message"] = map[string]any{"role": "user", "content": blocks}
	}
	return out
}

// claudeText joins the text blocks of a content.
func claudeText(content any) string {
	switch c := content.(type) {
	case string:
		return c
	case []any:
		var parts []string
		for _, b := range c {
			if normalizerstest.Member[string](b, "type") == "text" {
				if s, ok := b.(map[string]any)["text"].(string); ok {
					parts = append(parts, s)
				}
			}
		}
		return strings.Join(parts, "\n")
	}
	return ""
}

var (
	claudeInserted = regexp.MustCompile(`(?s)<(system-reminder|ide_[a-z_]+)>.*?</(?:system-reminder|ide_[a-z_]+)>`)
	claudeExitCode = regexp.MustCompile(`^(?:(Error: )?Exit code )(\d+)`)
	claudeNameless = regexp.MustCompile(`(?s)<command-(?:name|message)>\s*</command-(?:name|message)>|</?command-args>`)
	claudeName     = regexp.MustCompile(`(?s)<command-name>(.*?)</command-name>`)
	claudeMessage  = regexp.MustCompile(`(?s)<command-message>(.*?)</command-message>`)
	claudeArgs     = regexp.MustCompile(`(?s)<command-args>(.*?)</command-args>`)
)

// machineText are the beginnings of texts that no human typed as a prompt.
var machineText = []string{
	"<task-notification>", "<agent-notification>", "<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>",
	"<local-command-result>", "Stop hook feedback:", "<bash-input>", "<bash-stdout>", "<bash-stderr>", "<teammate-message", "[Request interrupted", "Caveat: The messages below",
	"This session is being continued from a previous conversation",
}

// claudePrompt returns the text that a human typed, without its wrapper, and true.
func claudePrompt(text string) (string, bool) {
	text = strings.TrimSpace(text)
	for _, p := range machineText {
		if strings.HasPrefix(text, p) {
			return "", false
		}
	}
	if strings.HasPrefix(text, "<command-name>") || strings.HasPrefix(text, "<command-message>") {
		for _, m := range [][]string{claudeName.FindStringSubmatch(text), claudeMessage.FindStringSubmatch(text)} {
			if m == nil || strings.TrimSpace(m[1]) == "" {
				continue
			}
			name := "/" + strings.TrimPrefix(strings.TrimSpace(m[1]), "/")
			if a := claudeArgs.FindStringSubmatch(text); a != nil {
				name = strings.TrimSpace(name + " " + strings.TrimSpace(a[1]))
			}
			return name, true
		}
		text = claudeNameless.ReplaceAllString(text, "") // names no command
	}
	cut := strings.TrimSpace(claudeInserted.ReplaceAllString(text, ""))
	return cut, cut != ""
}

// interpret reads a file by the rules of README.md.
func interpret(name string, lines []normalizerstest.Line) normalizerstest.Account {
	a := normalizerstest.Account{Naive: make(map[string]normalizerstest.Figures)}
	stem := strings.TrimSuffix(path.Base(name), path.Ext(name))
	parsed := make([]any, len(lines))
	own := make([]string, len(lines))
	for i, l := range lines {
		if !l.Bad {
			dec := json.NewDecoder(bytes.NewReader(l.Data))
			dec.UseNumber()
			_ = dec.Decode(&parsed[i]) // it was read once already
			parsed[i] = claudeObject(parsed[i])
			own[i] = normalizerstest.Member[string](parsed[i], "sessionId")
			if id := normalizerstest.Member[string](parsed[i], "session_id"); id != "" {
				own[i] = id
			}
		}
		a.Trimmed = a.Trimmed || normalizerstest.Member[string](parsed[i], "uuid") == "[trimmed for fixture]"
	}
	// Section 4: its own id, the last one seen, the first that follows, the stem.
	last := ""
	for i := range lines {
		switch {
		case own[i] != "":
			last = own[i]
		case last == "":
			if j := slices.IndexFunc(own[i:], func(s string) bool { return s != "" }); j >= 0 {
				last = own[i+j]
			} else {
				last = stem
			}
		}
		a.Sessions = append(a.Sessions, last)
	}
	readers := make(map[string]*claudeReader)
	for i, l := range lines {
		session := a.Sessions[i]
		r := readers[session]
		if r == nil {
			r = &claudeReader{out: &a, session: session, seen: make(map[string]bool)}
			readers[session] = r
		}
		if l.Bad {
			a.Threads = append(a.Threads, normalizerstest.RawThread{})
			continue
		}
		r.read(l.Number, parsed[i])
	}
	return a
}

// claudeReader follows one session of a file.
type claudeReader struct {
	out     *normalizerstest.Account
	session string
	seen    map[string]bool // emitted contents, by id and content
	queue   []*queued
	records int
	emitted []*queued // emitted from the queue: a later record is the duplicate
}

type queued struct {
	text   string
	human  bool
	stated bool
	at     int // record at which the queue emitted it
}

func (r *claudeReader) read(number int, v any) {
	if !claudeUnknown(v) {
		r.records++
	}
	agent := normalizerstest.Member[string](v, "agentId")
	if agent == "" {
		agent = normalizerstest.Member[string](v, "parent_tool_use_id")
	}
	internal := normalizerstest.Member[bool](v, "isSidechain") || agent != ""
	r.out.Threads = append(r.out.Threads, normalizerstest.RawThread{Agent: agent, Internal: internal})
	kind := normalizerstest.Member[string](v, "type")
	if kind == "message" || kind == "tool_result" { // of old test logs: the role decides
		kind = normalizerstest.Member[string](v, "message", "role")
	}
	switch kind {
	case "user":
		r.user(number, v, internal)
	case "assistant":
		r.assistant(number, v)
	case "attachment":
		if normalizerstest.Member[string](v, "attachment", "type") == "queued_command" && normalizerstest.Member[string](v, "attachment", "commandMode") != "task-notification" {
			kind := normalizerstest.Member[string](v, "attachment", "origin", "kind")
			text, human := claudePrompt(claudeText(normalizerstest.Member[any](v, "attachment", "prompt")))
			if human && (kind == "" || kind == "human") && !normalizerstest.Member[bool](v, "attachment", "isMeta") {
				r.human(number, normalizerstest.Member[string](v, "uuid"), text)
			}
		}
	case "system":
		if normalizerstest.Member[string](v, "subtype") == "local_command" && !normalizerstest.Member[bool](v, "isMeta") {
			if text, human := claudePrompt(claudeText(normalizerstest.Member[any](v, "content"))); human {
				r.human(number, normalizerstest.Member[string](v, "uuid"), text)
			}
		}
	case "queue-operation":
		r.operation(number, v)
	}
}

// claudeTypes are the types that a record without a message may have.
var claudeTypes = strings.Fields(`system attachment queue-operation file-history-snapshot file-history-delta summary
	ai-title custom-title agent-name mode permission-mode pr-link worktree-state last-prompt bridge-session progress
	stream_event rate_limit_event auth_status control_request control_response control_cancel_request keep_alive tool_progress`)

// claudeUnknown reports whether a record is of a type that nobody knows yet.
func claudeUnknown(v any) bool {
	kind := normalizerstest.Member[string](v, "type")
	_, message := normalizerstest.Member[any](v, "message").(map[string]any)
	role := normalizerstest.Member[string](v, "message", "role")
	switch {
	case slices.Contains(claudeTypes, kind):
		return false
	case kind == "result":
		return normalizerstest.Member[string](v, "key") != ""
	case message && role == "":
		role = kind
	}
	return role != "user" && role != "assistant" && normalizerstest.Member[any](v, "toolUseResult") == nil
}

// say emits a message, unless the same was emitted under the same id.
func (r *claudeReader) utter(number int, who, id, text string) {
	key := who + "\x00" + id + "\x00" + text
	if id != "" && r.seen[key] {
		return
	}
	r.seen[key] = true
	r.out.Talk = append(r.out.Talk, normalizerstest.Utterance{Session: r.session, Who: who, Text: text, Line: number})
}

// human emits a prompt, unless the queue emitted it within the last 64 records.
func (r *claudeReader) human(number int, id, text string) {
	r.emitted = slices.DeleteFunc(r.emitted, func(q *queued) bool { return r.records-q.at > 64 })
	if i := slices.IndexFunc(r.emitted, func(q *queued) bool { return q.text == text }); i >= 0 {
		r.emitted = slices.Delete(r.emitted, i, i+1)
		return
	}
	if i := slices.IndexFunc(r.queue, func(q *queued) bool { return q.text == text && !q.stated }); i >= 0 {
		r.queue[i].stated = true
	}
	r.utter(number, "human", id, text)
}

func (r *claudeReader) operation(number int, v any) {
	content := claudeText(normalizerstest.Member[any](v, "content"))
	text, human := claudePrompt(content)
	op := normalizerstest.Member[string](v, "operation")
	switch op {
	case "enqueue":
		r.queue = append(r.queue, &queued{text: text, human: human || content == ""}) // a picture has no text
	case "popAll":
		r.queue = slices.DeleteFunc(r.queue, func(q *queued) bool { return q.human })
	case "remove", "dequeue":
		find := func(match func(*queued) bool) int { return slices.IndexFunc(r.queue, match) }
		i := -1
		if content != "" {
			i = find(func(q *queued) bool { return q.text == text && q.human == human })
		}
		if i < 0 {
			i = find(func(q *queued) bool { return q.stated })
		}
		if i < 0 {
			i = find(func(q *queued) bool { return q.human })
		}
		if i < 0 {
			i = find(func(*queued) bool { return true })
		}
		if i < 0 {
			return
		}
		q := r.queue[i]
		r.queue = slices.Delete(r.queue, i, i+1)
		if op == "remove" && q.human && q.text != "" && !q.stated {
			q.at = r.records
			r.emitted = append(r.emitted, q)
			r.utter(number, "human", "", q.text)
		}
	}
}

// user reads a record of type user: the order of the cases matters.
func (r *claudeReader) user(number int, v any, internal bool) {
	content := normalizerstest.Member[any](v, "message", "content")
	uuid := normalizerstest.Member[string](v, "uuid")
	text := claudeText(content)
	blocks, _ := content.([]any)
	result := false
	image := false
	for _, b := range blocks {
		switch normalizerstest.Member[string](b, "type") {
		case "tool_result":
			result = true
			r.result(number, v, b)
		case "image":
			image = true
		}
	}
	if outcome := normalizerstest.Member[any](v, "toolUseResult"); !result && outcome != nil && text == "" {
		r.result(number, v, nil) // a result without its block
		return
	}
	if !result {
		if normalizerstest.Member[bool](v, "isCompactSummary") || normalizerstest.Member[bool](v, "isMeta") {
			return
		}
		if normalizerstest.Member[string](v, "origin", "kind") == "task-notification" {
			return
		}
	}
	prompt, human := claudePrompt(text)
	if !human && (!image || result || strings.TrimSpace(text) != "") {
		return
	}
	if normalizerstest.Member[string](v, "forkedFrom", "sessionId") != "" {
		r.utter(number, "user_message of origin copied", uuid, prompt)
		return
	}
	if internal {
		r.utter(number, "agent", uuid, prompt)
		return
	}
	r.human(number, uuid, prompt)
}

func (r *claudeReader) result(number int, v, block any) {
	id := normalizerstest.Member[string](block, "tool_use_id")
	if id == "" {
		id = normalizerstest.Member[string](v, "sourceToolUseID")
	}
	key := "result\x00" + id
	if id == "" && block == nil {
		key += normalizerstest.Member[string](v, "uuid")
	}
	if r.seen[key] && (id != "" || block == nil) {
		return
	}
	r.seen[key] = true
	o := normalizerstest.ToolOutcome{Session: r.session, ID: id, Line: number}
	text := claudeText(normalizerstest.Member[any](block, "content"))
	if m := claudeExitCode.FindStringSubmatch(text); m != nil && normalizerstest.Member[bool](block, "is_error") {
		o.Form = m[1] + "Exit code"
		n, _ := strconv.ParseInt(m[2], 10, 64)
		o.Code = &n
	}
	// The tools that fetch the outcome of a background command state its code in a field.
	for _, names := range [][]string{{"toolUseResult", "exitCode"}, {"toolUseResult", "task", "exitCode"}} {
		if n, err := normalizerstest.Member[json.Number](v, names...).Int64(); err == nil && o.Code == nil {
			o.Form, o.Code = strings.Join(names, "."), &n
		}
	}
	r.out.Results = append(r.out.Results, o)
}

func (r *claudeReader) assistant(number int, v any) {
	sum := r.out.Naive[r.session]
	if normalizerstest.Member[string](v, "forkedFrom", "sessionId") == "" {
		sum.Add(claudeUsage(v))
	}
	r.out.Naive[r.session] = sum
	content := normalizerstest.Member[any](v, "message", "content")
	// The SDK marks an error of the API by the error itself.
	failed := normalizerstest.Member[bool](v, "isApiErrorMessage") || normalizerstest.Member[string](v, "sessionId") == "" && normalizerstest.Member[any](v, "error") != nil
	if text := claudeText(content); strings.TrimSpace(text) != "" && !failed {
		r.utter(number, "assistant", normalizerstest.Member[string](v, "uuid"), strings.TrimSpace(text))
	}
	blocks, _ := content.([]any)
	for _, b := range blocks {
		switch normalizerstest.Member[string](b, "type") {
		case "tool_use", "server_tool_use":
			id := normalizerstest.Member[string](b, "id")
			if key := "call\x00" + id; id == "" || !r.seen[key] {
				r.seen[key] = true
				r.out.Calls = append(r.out.Calls, normalizerstest.ToolUse{Session: r.session, ID: id, Name: normalizerstest.Member[string](b, "name"), Line: number})
			}
		case "tool_result", "web_search_tool_result":
			r.result(number, v, b)
		}
	}
}

// claudeUsage are the figures of one assistant record, as they stand.
func claudeUsage(v any) normalizerstest.Figures {
	return claudeUsageOf(normalizerstest.Member[any](v, "message", "usage"))
}

func claudeUsageOf(v any) normalizerstest.Figures {
	number := func(names ...string) int64 {
		n, _ := normalizerstest.Member[json.Number](v, names...).Int64()
		return n
	}
	f := normalizerstest.Figures{
		Input: number("input_tokens"), Output: number("output_tokens"), Cached: number("cache_read_input_tokens"),
		Thinking:   number("output_tokens_details", "thinking_tokens"),
		CacheWrite: number("cache_creation_input_tokens"),
	}
	if normalizerstest.Member[any](v, "cache_creation_input_tokens") == nil {
		f.CacheWrite = number("cache_creation", "ephemeral_5m_input_tokens") + number("cache_creation", "ephemeral_1h_input_tokens")
	}
	f.UsageInput, f.CacheRead, f.UsageReasoning = f.Input, f.Cached, f.Thinking
	f.UsageOutput = f.Output - f.Thinking
	f.Total = f.Input + f.CacheWrite + f.CacheRead + f.Output
	return f
}

// ledger has, for every session, the highest figures of each message.id in whatever thread, and
// the excess of the result of each SDK run above the calls of the run. Copied history is billed
// elsewhere. It attributes a call of a stream to the current run; figures that the call states
// after the result of its run are already in the result. The same applies to calls of a transcript
// and runs of which only the result is known. A call that a subagent or copied history states
// first belongs to no run.
type ledger map[string]*claudeBook

type claudeBook struct {
	calls   map[string]*claudeCall
	seen    map[string]bool
	run     int                     // the current one
	named   bool                    // calls of it by a stream
	used    normalizerstest.Figures // by its calls
	results normalizerstest.Figures // what results were above the calls
	ahead   normalizerstest.Figures // the part of it that calls of their runs may state later
	unseen  normalizerstest.Figures // that of results alone
	alone   normalizerstest.Figures // what calls used that are of no run
	settled normalizerstest.Figures // figures of calls that a result or another session already had
}

// claudeCall is one call of the API.
type claudeCall struct {
	figures normalizerstest.Figures
	request string // the first one stated
	run     int    // that a stream named it in
	outside bool   // of all runs
}

// call finds the call of a record. Another request than the first is another call.
func (b *claudeBook) call(v any, apart bool) *claudeCall {
	request := normalizerstest.Member[string](v, "requestId")
	id := normalizerstest.Member[string](v, "message", "id")
	if id == "" {
		id, request = cmp.Or(request, normalizerstest.Member[string](v, "uuid"), fmt.Sprint("@", len(b.calls))), ""
	}
	if c := b.calls[id]; c != nil && c.request != "" && request != "" && c.request != request {
		id += "\x00" + request
	}
	c := b.calls[id]
	if c == nil {
		c = &claudeCall{outside: apart}
		b.calls[id] = c
	}
	c.request = cmp.Or(c.request, request)
	return c
}

// atMost is the part of f that limit has, field by field; of the output text comes first.
func atMost(f, limit normalizerstest.Figures) normalizerstest.Figures {
	output := min(f.Output, limit.Output)
	return normalizerstest.Figures{
		Input: min(f.Input, limit.Input), Cached: min(f.Cached, limit.Cached), CacheWrite: min(f.CacheWrite, limit.CacheWrite),
		Output: output, Thinking: max(0, output-(f.Output-f.Thinking)),
	}
}

// above is what f has above of.
func above(f, of normalizerstest.Figures) normalizerstest.Figures {
	output := max(0, f.Output-of.Output)
	return normalizerstest.Figures{
		Input: max(0, f.Input-of.Input), Cached: max(0, f.Cached-of.Cached), CacheWrite: max(0, f.CacheWrite-of.CacheWrite),
		Output: output, Thinking: min(max(0, f.Thinking-of.Thinking), output),
	}
}

// Add implements [normalizerstest.Ledger].
func (l ledger) Add(session string, record []byte) {
	var v any
	dec := json.NewDecoder(bytes.NewReader(record))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return
	}
	b := l[session]
	if b == nil {
		b = &claudeBook{calls: map[string]*claudeCall{}, seen: map[string]bool{}, run: 1}
		l[session] = b
	}
	v = claudeObject(v)
	is := normalizerstest.Member[string](v, "type")
	if is == "system" || is == "result" {
		// The same record again is none.
		if id := normalizerstest.Member[string](v, "uuid"); id != "" {
			again := id + string(record)
			if b.seen[again] {
				return
			}
			b.seen[again] = true
		}
	}
	switch {
	case is == "system" && normalizerstest.Member[string](v, "subtype") == "init":
		b.run++
		b.used, b.named = normalizerstest.Figures{}, false
		return
	case is == "result" && normalizerstest.Member[string](v, "key") == "":
		now, stated, pool := claudeUsageOf(normalizerstest.Member[any](v, "usage")), b.used, &b.ahead
		if !b.named {
			stated, pool = b.alone, &b.unseen
			b.alone = above(b.alone, now)
		}
		more := above(now, stated)
		b.results.Add(more)
		pool.Add(more)
		b.run++
		b.used, b.named = normalizerstest.Figures{}, false
		return
	case is == "stream_event":
		id := normalizerstest.Member[string](v, "event", "message", "id")
		if id == "" {
			return
		}
		// The start of a message names its call; the message itself has the figures.
		start, _ := v.(map[string]any)
		start = maps.Clone(start)
		start["message"] = map[string]any{"id": id, "usage": map[string]any{}}
		v = start
	case is != "assistant" && normalizerstest.Member[string](v, "message", "role") != "assistant":
		return
	}
	if _, ok := normalizerstest.Member[any](v, "message", "usage").(map[string]any); !ok {
		return
	}
	copied := normalizerstest.Member[string](v, "forkedFrom", "sessionId")
	elsewhere := copied != "" && copied != session
	main := normalizerstest.Member[string](v, "agentId") == "" && normalizerstest.Member[string](v, "parent_tool_use_id") == "" && !normalizerstest.Member[bool](v, "isSidechain")
	call := b.call(v, elsewhere || !main)
	before, now := call.figures, claudeUsage(v)
	call.figures = normalizerstest.Figures{
		Input: max(before.Input, now.Input), Output: max(before.Output, now.Output), Cached: max(before.Cached, now.Cached),
		Thinking: max(before.Thinking, now.Thinking), CacheWrite: max(before.CacheWrite, now.CacheWrite),
	}
	more, pool := above(call.figures, before), &b.ahead
	switch stream := normalizerstest.Member[string](v, "sessionId") == ""; {
	case elsewhere:
		b.settled.Add(more)
		return
	case call.outside:
		return
	case call.run == 0 && stream && main:
		call.run, b.named = b.run, true
		b.alone = above(b.alone, before)
		b.used.Add(call.figures)
		return
	case call.run == b.run:
		b.used.Add(more)
		return
	case call.run == 0:
		pool = &b.unseen
	}
	stated := atMost(more, *pool)
	*pool = above(*pool, stated)
	b.settled.Add(stated)
	if pool == &b.unseen {
		b.alone.Add(above(more, stated))
	}
}

// Sums implements [normalizerstest.Ledger].
func (l ledger) Sums(session string) normalizerstest.Figures {
	var sum normalizerstest.Figures
	b := l[session]
	if b == nil {
		return sum
	}
	sum.Add(b.results)
	for _, c := range b.calls {
		sum.Add(c.figures)
	}
	sum.Input -= b.settled.Input
	sum.Output -= b.settled.Output
	sum.Cached -= b.settled.Cached
	sum.CacheWrite -= b.settled.CacheWrite
	sum.Thinking -= b.settled.Thinking
	sum.UsageInput, sum.CacheRead, sum.UsageReasoning = sum.Input, sum.Cached, sum.Thinking
	sum.UsageOutput = sum.Output - sum.Thinking
	sum.Total = sum.Input + sum.CacheWrite + sum.CacheRead + sum.Output
	return sum
}
