// Package vscodetest reads and generates logs of the chat of VS Code for the tests.
//
// [Suite] is what the tests of all vendors use.
//
// The invariant: the reader and the generator share no code and no table with the normalizer, so that a mistake in
// one of them shows as a difference. The reader applies each entry of a journal to the whole session, and looks for
// what that states anew.
package vscodetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes the chat of VS Code to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"kind":9,"k":["of_tomorrow"],"v":[]}`,
		`42`,
		`{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"copilot-chat"}}]},"scopeSpans":[{"spans":[{"name":"x","attributes":[{"key":"gen_ai.operation.name","value":{"stringValue":"of_tomorrow"}},{"key":"copilot_chat.session_id","value":{"stringValue":"$SESSION"}}]}]}]}]}`,
	},
	Source: envelopes.VSCodeCopilot,
	Room:   "vscode",
	Apart:  true,
	Lines:  lines,
	Read:   normalizerstest.Values{}.Read,
	Bad:    normalizerstest.Malformed,
	Ledger: func() normalizerstest.Ledger {
		return &ledger{log: reading(nil).Ledger(), bills: make(map[string]*bill), seen: make(map[string]bool)}
	},
	Interpret: interpret,
	Raw:       normalizerstest.RawOf(requestsOf),
	VCS: func() func(string, normalizerstest.Line) envelopes.VCS {
		now := make(map[string]envelopes.VCS)
		return func(session string, l normalizerstest.Line) envelopes.VCS {
			v := normalizerstest.Parse(l.Data)
			repo := normalizerstest.Member[map[string]any](v, "repoData")
			if whole := object(v, "v"); whole["requests"] != nil {
				repo = object(whole, "repoData")
			} else if keys := list(v, "k"); len(keys) == 1 && keys[0] == "repoData" {
				repo = whole
			}
			if repo != nil {
				now[session] = envelopes.VCS{
					Repository: normalizerstest.StatedRepository(text(repo, "remoteUrl")),
					Branch:     normalizerstest.StatedBranch(text(repo, "localBranch")), Commit: normalizerstest.StatedCommit(text(repo, "localHeadCommit")),
				}
			}
			return now[session]
		}
	},
}

// reading reads the records; what both channels state is noted in c, which may be nil.
func reading(c *channels) normalizerstest.Reading {
	return normalizerstest.Reading{
		Session: func(record any) string {
			switch {
			case normalizerstest.ExportedAttributes(record) != nil:
				return chatOf(normalizerstest.ExportedAttributes(record))
			case list(record, "requests") != nil:
				return text(record, "sessionId")
			case list(record, "v", "requests") != nil:
				return text(record, "v", "sessionId")
			default:
				return ""
			}
		},
		Read: func(r *normalizerstest.Reader, v any) {
			read(r, v, c)
			if c != nil {
				c.Advance()
			}
		},
	}
}

// read notes what a record states.
func read(r *normalizerstest.Reader, v any, c *channels) {
	if a := normalizerstest.ExportedAttributes(v); a != nil {
		c.export(r, v, a)
		return
	}
	state := normalizerstest.Parse([]byte(r.Noted("session")))
	m, _ := state.(map[string]any)
	m = apply(m, v)
	if whole, err := json.Marshal(m); err == nil {
		r.Note("session", string(whole))
	}
	keys := list(v, "k")
	var left []shown
	for i, q := range list(m, "requests") {
		known := "copy of " + text(q, "requestId")
		if r.Noted(known) == "" {
			r.Note(known, strconv.FormatBool(isCopy(m, q)))
		}
		r.Copied = r.Noted(known) == "true"
		if text(q, "confirmation") == "" {
			left = nil
		}
		left = readRequest(r, c, q, fmt.Sprint("requests/", i), len(keys) == 3 && keys[2] == "result", left)
	}
	r.Copied = false
}

// isCopy reports whether a request of a chat was copied from the one that it was forked from: it has the bare id that
// only a fork gives, and was sent and answered in the moment in which the chat was created.
func isCopy(session, q any) bool {
	created, begun := number(session, "creationDate")
	sent, dated := number(q, "timestamp")
	answered, ended := number(q, "modelState", "completedAt")
	groups := strings.Split(text(q, "requestId"), "-")
	return len(groups) == 5 && len(groups[0]) == 8 && len(groups[4]) == 12 && begun && dated && sent >= created && sent-created < 10_000 &&
		(ended && answered == sent || object(q, "modelState") == nil && list(q, "response") == nil)
}

func text(v any, names ...string) string { return normalizerstest.Member[string](v, names...) }
func list(v any, names ...string) []any  { return normalizerstest.Member[[]any](v, names...) }
func object(v any, names ...string) map[string]any {
	return normalizerstest.Member[map[string]any](v, names...)
}

func number(v any, names ...string) (int64, bool) {
	n, err := normalizerstest.Member[json.Number](v, names...).Int64()
	return n, err == nil
}

// requestsOf returns the requests that a record has whole.
func requestsOf(record any) []any {
	switch keys := list(record, "k"); {
	case list(record, "requests") != nil:
		return list(record, "requests")
	case list(record, "v", "requests") != nil:
		return list(record, "v", "requests")
	case len(keys) == 1 && keys[0] == "requests":
		return list(record, "v")
	case len(keys) == 2:
		return []any{normalizerstest.Member[any](record, "v")}
	default:
		return nil
	}
}

// apply returns the session after a record.
func apply(session map[string]any, record any) map[string]any {
	if session == nil {
		session = map[string]any{}
	}
	keys, value := list(record, "k"), normalizerstest.Member[any](record, "v")
	kind, ok := number(record, "kind")
	switch {
	case list(record, "requests") != nil:
		return record.(map[string]any)
	case !ok || kind < 0 || kind > 3:
	case kind == 0:
		if m := object(record, "v"); m != nil {
			return m
		}
	case len(keys) > 0:
		at := int64(-1)
		if i, ok := number(record, "i"); ok {
			at = i
		}
		if changed, ok := change(session, keys, int(kind), value, at).(map[string]any); ok {
			return changed
		}
	}
	return session
}

// change returns a value after a change at a path in it.
func change(in any, keys []any, kind int, value any, at int64) any {
	if len(keys) == 0 {
		if kind != 2 {
			return value
		}
		elements, _ := in.([]any)
		if at >= 0 {
			elements = resized(elements, int(at))
		}
		more, _ := value.([]any)
		return slices.Concat(elements, more)
	}
	switch key := keys[0].(type) {
	case json.Number:
		n, _ := key.Int64()
		elements, _ := in.([]any)
		if int(n) >= len(elements) {
			elements = resized(elements, int(n)+1)
		}
		elements[n] = change(elements[n], keys[1:], kind, value, at)
		return elements
	case string:
		members, _ := in.(map[string]any)
		if members == nil {
			members = map[string]any{}
		}
		members[key] = change(members[key], keys[1:], kind, value, at)
		return members
	}
	return in
}

func resized(elements []any, n int) []any {
	for len(elements) < n {
		elements = append(elements, nil)
	}
	return elements[:n]
}

// shown is a call in an answer, or one of the model with its result.
type shown struct {
	id, name, agent string
	code            *int64
	isStated        bool // a result is
}

// readRequest notes what a request states. called means that the record states the calls of the model alone. before are
// the calls that the request before left to this one; the result are those that this one leaves to the next.
func readRequest(r *normalizerstest.Reader, c *channels, q any, place string, called bool, before []shown) (left []shown) {
	id := text(q, "requestId")
	if id == "" {
		id = place
	}
	use(r, id, q)
	prompt := text(q, "message") + text(q, "message", "text")
	by := normalizerstest.Member[bool](q, "isSystemInitiated") || text(q, "confirmation") != ""
	if sent := sentPrompt(prompt, list(q, "message", "parts")); strings.TrimSpace(prompt) != "" {
		c.state(r, id, "human", sent)
	}
	if !by && (strings.TrimSpace(prompt) != "" || len(list(q, "variableData", "variables")) > 0) {
		c.state(r, id, "prompt", "")
	}
	for i, round := range list(q, "result", "metadata", "toolCallRounds") {
		if body := text(round, "response"); strings.TrimSpace(body) != "" {
			c.state(r, fmt.Sprint(id, " round ", i), "assistant", body)
		}
	}
	if !by {
		if r.Say("human", id+" "+prompt, prompt); strings.TrimSpace(prompt) == "" && len(list(q, "variableData", "variables")) > 0 {
			r.Attach(id)
		}
	}
	parts := list(q, "response")
	if old := text(q, "response"); old != "" {
		parts = []any{old}
	}
	model := modelCalls(q)
	seen, ids := showing(parts, id), make(map[string]shown)
	all := slices.Concat(before, model)
	join(r, all, seen)
	model = all[len(before):]
	for _, c := range all {
		ids[c.id] = c
		isShown := slices.ContainsFunc(slices.Collect(maps.Values(seen)), func(s shown) bool { return s.id == c.id })
		if !c.isStated && !isShown && normalizerstest.Member[bool](q, "result", "metadata", "maxToolCallsExceeded") {
			left = append(left, c)
		}
	}
	if called {
		noteCalls(r, model, seen)
	}
	var answer strings.Builder
	begin := 0
	say := func() {
		r.Say("assistant", fmt.Sprint(id, " part ", begin, answer.String()), answer.String())
		if isStopped(q) && strings.TrimSpace(answer.String()) != "" {
			c.state(r, fmt.Sprint(id, " stopped ", begin), "assistant", answer.String())
		}
		answer.Reset()
	}
	isOpen := false
	for i, p := range parts {
		kind := text(p, "kind")
		if words, ok := wordsOf(p); ok || isOpen && strings.HasSuffix(kind, "EditGroup") {
			if !isOpen {
				begin, isOpen = i, true
			}
			answer.WriteString(words)
			continue
		}
		say()
		isOpen = false
		if c, ok := seen[i]; ok {
			if c.agent != "" {
				r.Inner(c.id, c.agent)
			}
			if m, ok := ids[c.id]; ok {
				c.name, c.isStated = m.name, m.isStated || c.isStated
				if c.code == nil {
					c.code = m.code
				}
			}
			note(r, c)
		}
	}
	say()
	noteCalls(r, model, seen)
	return left
}

// isStopped reports whether a human stopped a request, which then has no texts of the model beside its answer.
func isStopped(q any) bool {
	state, _ := number(q, "modelState", "value")
	return (state == 2 || normalizerstest.Member[bool](q, "isCanceled")) && len(list(q, "result", "metadata", "toolCallRounds")) == 0
}

// sentPrompt returns a prompt as it is sent: without the participant and the command that it names.
func sentPrompt(prompt string, parts []any) string {
	for _, p := range parts {
		if kind := text(p, "kind"); kind == "agent" || kind == "subcommand" {
			_, prompt, _ = strings.Cut(strings.TrimSpace(prompt)+" ", " ")
		}
	}
	return prompt
}

func note(r *normalizerstest.Reader, c shown) {
	if r.Call(c.id, c.name); c.isStated {
		r.Result(c.id, c.code, "exitCode")
	}
}

// noteCalls notes the calls of the model, with the exit codes that the answer states, or else their results.
func noteCalls(r *normalizerstest.Reader, model []shown, seen map[int]shown) {
	for _, c := range model {
		for _, s := range seen {
			if s.id == c.id && s.code != nil {
				c.code = s.code
			}
		}
		note(r, c)
	}
}

// modelCalls returns the calls as the model made them.
func modelCalls(q any) (out []shown) {
	results := object(q, "result", "metadata", "toolCallResults")
	for _, round := range list(q, "result", "metadata", "toolCallRounds") {
		for _, c := range list(round, "toolCalls") {
			content := list(results[text(c, "id")], "content")
			s := shown{id: text(c, "id"), name: text(c, "name"), isStated: content != nil}
			if s.name == "run_in_terminal" {
				s.code = lastCode(content)
			}
			out = append(out, s)
		}
	}
	return out
}

// lastCode returns the exit code that the last line of a result states; nil for none.
func lastCode(content []any) *int64 {
	var all strings.Builder
	for _, c := range content {
		if words := spoken(normalizerstest.Member[any](c, "value")); words != "" {
			all.WriteString("\n" + words)
		}
	}
	whole := strings.TrimSpace(all.String())
	words, ok := strings.CutPrefix(whole[strings.LastIndex(whole, "\n")+1:], "Command exited with code ")
	code, err := strconv.ParseUint(words, 10, 63)
	if !ok || err != nil || code == 0 {
		return nil
	}
	return new(int64(code))
}

// spoken returns a text, or the texts of a node of a prompt.
func spoken(v any) string {
	if words, ok := v.(string); ok {
		return words
	}
	words := text(v, "text")
	if normalizerstest.Member[bool](v, "lineBreakBefore") {
		words = "\n" + words
	}
	if node := object(v, "node"); node != nil {
		words += spoken(node)
	}
	all := []string{words}
	for _, child := range list(v, "children") {
		all = append(all, spoken(child))
	}
	return strings.Join(all, "")
}

// names are the names that the model has for the tools in the cases.
var names = map[string]string{
	"copilot_readFile": "read_file", "copilot_findTextInFiles": "grep_search", "copilot_fetchWebPage": "fetch_webpage",
	"copilot_findFiles": "file_search", "copilot_getErrors": "get_errors",
}

// showing returns the calls in an answer by the number of their part.
func showing(parts []any, request string) map[int]shown {
	out := make(map[int]shown)
	for i, p := range parts {
		if text(p, "kind") != "toolInvocationSerialized" {
			continue
		}
		c := shown{id: text(p, "toolCallId"), name: text(p, "toolId"), agent: text(p, "subAgentInvocationId")}
		if name := names[c.name]; name != "" {
			c.name = name
		}
		if c.id == "" {
			c.id = fmt.Sprint(request, "/", i)
		}
		if code, ok := number(p, "toolSpecificData", "terminalCommandState", "exitCode"); ok {
			c.code = &code
		}
		m, _ := p.(map[string]any)
		confirmed := fmt.Sprint(m["isConfirmed"])
		details, isList := m["resultDetails"].([]any)
		_, isText := object(p, "toolSpecificData", "terminalCommandOutput")["text"].(string)
		_, isAgents := object(p, "toolSpecificData")["result"].(string)
		c.isStated = c.code != nil || confirmed == "false" || confirmed == "map[type:0]" || confirmed == "map[type:5]" || text(p, "resultError") != "" ||
			m["resultError"] == true || object(p, "resultDetails") != nil || isList && details != nil || isText || isAgents
		out[i] = c
	}
	return out
}

// join finds the calls of the model among those of the answer. Both then have the id that was noted first.
func join(r *normalizerstest.Reader, model []shown, seen map[int]shown) {
	taken := make(map[int]bool)
	for i := range model {
		c := &model[i]
		c.id = strings.Split(c.id, "__vscode")[0]
		for n := range 1000 {
			s, ok := seen[n]
			if !ok || taken[n] || s.agent != "" || s.id != c.id && (strings.Count(s.id, "-") != 4 || s.name != c.name) {
				continue
			}
			if taken[n] = true; r.Tool(s.id) != "" {
				c.id = s.id
			}
			s.id = c.id
			seen[n] = s
			break
		}
	}
}

// wordsOf returns what a part adds to a text.
func wordsOf(p any) (string, bool) {
	if s, ok := p.(string); ok {
		return s, true
	}
	switch text(p, "kind") {
	case "", "markdownContent", "markdownVuln":
		words := text(p, "value") + text(p, "content", "value")
		if strings.TrimSpace(words) == "```" {
			words = ""
		}
		return words, p != nil
	case "inlineReference":
		for _, names := range [][]string{{"name"}, {"inlineReference", "name"}, {"inlineReference", "uri", "path"}, {"inlineReference", "path"}} {
			if name := text(p, names...); name != "" {
				return "`" + path.Base(name) + "`", true
			}
		}
		return "", true
	default:
		return "", false
	}
}

// use notes the tokens of a request. What counts as input is not counted again as cached.
func use(r *normalizerstest.Reader, id string, q any) {
	var t normalizerstest.Tokens
	before, _ := strconv.ParseInt(r.Noted("input "+id), 10, 64) // 0 for none
	for _, m := range list(q, "modelTotals") {
		in, _ := number(m, "inputTokens")
		cached, _ := number(m, "cachedTokens")
		out, _ := number(m, "outputTokens")
		t.Input, t.CacheRead, t.Output = t.Input+max(0, in-cached), t.CacheRead+cached, t.Output+out
	}
	t.CacheRead = max(0, t.CacheRead-max(0, before-t.Input))
	if len(list(q, "modelTotals")) == 0 {
		for _, of := range [][]string{{"promptTokens"}, {"result", "metadata", "promptTokens"}} {
			n, _ := number(q, of...)
			t.Input = max(t.Input, n)
		}
		for _, of := range [][]string{{"completionTokens"}, {"result", "metadata", "outputTokens"}} {
			n, _ := number(q, of...)
			t.Output = max(t.Output, n)
		}
	}
	r.Note("input "+id, strconv.FormatInt(max(t.Input, before), 10))
	r.Use(id, t)
}
