package claudetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// claudeObject turns a message of the SDK that is an object without a type into a line of the stream. It returns any
// other record unchanged.
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

// claudeText joins the text blocks of content.
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
	claudeFailed   = regexp.MustCompile(`^(Error|Exit code |User rejected tool use|The user doesn't want to |\[Request interrupted by user)`)
	claudeNameless = regexp.MustCompile(`(?s)<command-(?:name|message)>\s*</command-(?:name|message)>|</?command-args>`)
	claudeName     = regexp.MustCompile(`(?s)<command-name>(.*?)</command-name>`)
	claudeMessage  = regexp.MustCompile(`(?s)<command-message>(.*?)</command-message>`)
	claudeArgs     = regexp.MustCompile(`(?s)<command-args>(.*?)</command-args>`)
)

// machineText has the beginnings of texts that no human typed as a prompt.
var machineText = []string{
	"<task-notification>", "<agent-notification>", "<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>",
	"<bash-notification>", "<cross-session-message", "<github-webhook-activity", "<tick>",
	"<local-command-result>", "Stop hook feedback:", "<bash-input>", "<bash-stdout>", "<bash-stderr>", "<teammate-message", "[Request interrupted", "Caveat: The messages below",
	"This session is being continued from a previous conversation",
}

// claudePrompt returns the text that a human typed without its wrapper and without what was inserted, or false.
func claudePrompt(text string) (string, bool) {
	text = strings.TrimSpace(text)
	rest := strings.TrimSpace(claudeInserted.ReplaceAllString(text, ""))
	if rest == "" || slices.ContainsFunc(machineText, func(p string) bool { return strings.HasPrefix(text, p) || strings.HasPrefix(rest, p) }) {
		return "", false
	}
	if !strings.HasPrefix(text, "<command-") {
		text = rest
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

// interpret reads a file by the rules of the vendor, without code of the normalizer.
func interpret(name string, lines []normalizerstest.Line) normalizerstest.Account {
	a := normalizerstest.Account{Naive: make(map[string]normalizerstest.Figures)}
	parsed := make([]any, len(lines))
	for i, l := range lines {
		if !l.Bad {
			dec := json.NewDecoder(bytes.NewReader(l.Data))
			dec.UseNumber()
			_ = dec.Decode(&parsed[i]) // it was read before
			parsed[i] = claudeObject(parsed[i])
		}
		a.Trimmed = a.Trimmed || normalizerstest.Member[string](parsed[i], "uuid") == "[trimmed for fixture]"
	}
	a.Sessions = normalizerstest.SessionsOf(name, lines, func(v any) string {
		v = claudeObject(v)
		own, ofRun := normalizerstest.Member[string](v, "sessionId"), normalizerstest.Member[string](v, "session_id")
		if normalizerstest.Member[string](v, "subtype") == "init" {
			own = ofRun
		}
		return cmp.Or(sessionOfChannel(v), own, ofRun)
	})
	readers := make(map[string]*claudeReader)
	for i, l := range lines {
		session := a.Sessions[i]
		r := readers[session]
		if r == nil {
			r = &claudeReader{out: &a, session: session, seen: make(map[string]bool), answers: make(map[string]int)}
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
	emitted []*queued // from the queue: a later record is the duplicate

	logged   bool            // the log has stated a message
	requests map[string]bool // that the log has stated
	stated   map[string]bool // what other channels have stated
	heard    []heardAnswer

	answers map[string]int // the lines of answers by their ids
}

type queued struct {
	text   string
	human  bool
	stated bool
	at     int // the record at which the queue emitted it
}

func (r *claudeReader) read(number int, v any) {
	if !claudeUnknown(v) {
		r.records++
	}
	agent := normalizerstest.Member[string](v, "agentId")
	if agent == "" {
		agent = cmp.Or(normalizerstest.Member[string](v, "parent_tool_use_id"), agentOf(v))
	}
	internal := normalizerstest.Member[bool](v, "isSidechain") || agent != ""
	r.out.Threads = append(r.out.Threads, normalizerstest.RawThread{Agent: agent, Internal: internal})
	if r.channel(number, v) {
		return
	}
	kind := normalizerstest.Member[string](v, "type")
	if kind == "message" || kind == "tool_result" { // in old test logs the role decides
		kind = normalizerstest.Member[string](v, "message", "role")
	}
	switch kind {
	case "user":
		r.logged = true
		r.user(number, v, internal)
	case "assistant":
		r.logged = true
		r.assistant(number, v)
	case "attachment":
		if normalizerstest.Member[string](v, "attachment", "type") == "queued_command" {
			kind := normalizerstest.Member[string](v, "attachment", "origin", "kind")
			said := claudeText(normalizerstest.Member[any](v, "attachment", "prompt"))
			machine := normalizerstest.Member[string](v, "attachment", "commandMode") == "task-notification" || normalizerstest.Member[bool](v, "attachment", "isMeta")
			if text, human := claudePrompt(said); human && (kind == "" || kind == "human") && !machine {
				r.human(number, normalizerstest.Member[string](v, "uuid"), text)
			} else {
				r.state(said)
			}
		}
	case "system":
		if normalizerstest.Member[string](v, "subtype") == "model_refusal_fallback" {
			r.retract(v)
		}
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
	ai-title custom-title agent-name mode permission-mode pr-link worktree-state cost-state last-prompt bridge-session progress
	stream_event rate_limit_event auth_status control_request control_response control_cancel_request keep_alive tool_progress`)

// claudeUnknown reports whether the type of a record is unknown.
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

// utter emits a message once per id.
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
	r.once("prompt", id)
	r.emitted = slices.DeleteFunc(r.emitted, func(q *queued) bool { return r.records-q.at > 64 })
	if i := slices.IndexFunc(r.emitted, func(q *queued) bool { return q.text == text }); i >= 0 {
		r.emitted = slices.Delete(r.emitted, i, i+1)
		return
	}
	r.state(text)
	r.utter(number, "human", id, text)
}

// state notes that a record, whoever its author is, has a text of the queue.
func (r *claudeReader) state(said string) {
	text, human := claudeQueued(said)
	if i := slices.IndexFunc(r.queue, func(q *queued) bool { return q.text == text && q.text != "" && q.human == human && !q.stated }); i >= 0 {
		r.queue[i].stated = true
	}
}

// claudeQueued returns what identifies an item of the queue: its prompt, else all of its text.
func claudeQueued(said string) (text string, human bool) {
	if text, human = claudePrompt(said); !human {
		text = strings.TrimSpace(said)
	}
	return text, human || said == "" // a picture has no text
}

func (r *claudeReader) operation(number int, v any) {
	content := claudeText(normalizerstest.Member[any](v, "content"))
	text, human := claudeQueued(content)
	op := normalizerstest.Member[string](v, "operation")
	switch op {
	case "enqueue":
		r.queue = append(r.queue, &queued{text: text, human: human})
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

// user reads a record of type user; the order of the cases matters.
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
		if normalizerstest.Member[bool](v, "isCompactSummary") {
			return
		}
		composed := normalizerstest.Member[bool](v, "client_composed")
		if composed || normalizerstest.Member[bool](v, "isMeta") || normalizerstest.Member[string](v, "origin", "kind") == "task-notification" {
			r.state(text)
			return
		}
	}
	prompt, human := claudePrompt(text)
	if !human && (!image || result || strings.TrimSpace(text) != "") {
		r.state(text)
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
	o.Failed = failedByText(v, block)
	failed := normalizerstest.Member[bool](block, "is_error") || o.Failed != nil && *o.Failed
	if m := claudeExitCode.FindStringSubmatch(text); m != nil && failed {
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

// failedByText reports whether a call failed whose structured result in a transcript is only a text; nil for others.
func failedByText(v, block any) *bool {
	outcome, isText := normalizerstest.Member[any](v, "toolUseResult").(string)
	if !isText || block == nil || normalizerstest.Member[string](v, "sessionId") == "" || len(normalizerstest.Member[[]any](v, "message", "content")) != 1 {
		return nil
	}
	if stated, ok := normalizerstest.Member[any](block, "is_error").(bool); ok {
		return &stated
	}
	failed := claudeFailed.MatchString(outcome)
	return &failed
}

func (r *claudeReader) assistant(number int, v any) {
	request := cmp.Or(normalizerstest.Member[string](v, "requestId"), normalizerstest.Member[string](v, "request_id"))
	if request != "" {
		if r.requests == nil {
			r.requests = make(map[string]bool)
		}
		r.requests[request] = true
	}
	sum := r.out.Naive[r.session]
	if normalizerstest.Member[string](v, "forkedFrom", "sessionId") == "" {
		sum.Add(claudeUsage(v))
	}
	r.out.Naive[r.session] = sum
	content := normalizerstest.Member[any](v, "message", "content")
	// The SDK marks an error of the API by the error itself.
	failed := normalizerstest.Member[bool](v, "isApiErrorMessage") || normalizerstest.Member[string](v, "sessionId") == "" && normalizerstest.Member[any](v, "error") != nil
	if text := claudeText(content); strings.TrimSpace(text) != "" && !failed {
		r.replace(request, text)
		if id := normalizerstest.Member[string](v, "uuid"); id != "" && r.answers[id] == 0 {
			r.retract(v)
			r.answers[id] = number
		}
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
		case "tool_result", "web_search_tool_result", "advisor_tool_result":
			r.result(number, v, b)
		}
	}
}
