package normalizers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// This file reads Copilot CLI's logs a second time, with nothing but encoding/json and
// the design pages: what it finds is what the events are held to.

// readCopilot cuts a file into its records: lines with their ends, where it does not begin
// with a brace, else values, on a line or over several.
func readCopilot(data []byte) []line {
	var out []line
	rest := bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if first := bytes.TrimSpace(rest); len(first) > 0 && first[0] != '{' {
		for i, l := range bytes.SplitAfter(data, []byte("\n")) {
			if len(l) > 0 {
				out = append(out, line{number: i + 1, data: l})
			}
		}
		return out
	}
	at := func(b []byte) int { return 1 + bytes.Count(data[:len(data)-len(b)], []byte("\n")) }
	for {
		rest = bytes.TrimLeft(rest, " \t\r\n")
		if len(rest) == 0 {
			return out
		}
		dec := json.NewDecoder(bytes.NewReader(rest))
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			bad, _, _ := bytes.Cut(rest, []byte("\n"))
			// A writer that died within a line leaves its next record on it.
			for i := 1; i < len(bad); i++ {
				if bytes.HasPrefix(bad[i:], []byte(`{"type":`)) && json.Valid(bad[i:]) && member[string](parse(bad[i:]), "id") != "" {
					bad = bad[:i]
				}
			}
			out = append(out, line{number: at(rest), data: bytes.TrimSpace(bad), bad: true})
			rest = rest[len(bad):]
			continue
		}
		out = append(out, line{number: at(rest), data: v})
		rest = rest[dec.InputOffset():]
	}
}

var (
	copilotMarkerLine = regexp.MustCompile(`^\[copilot-session\] ([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})\s*$`)
	copilotExitLine   = regexp.MustCompile(`^<((?:shellId|command with id): [^<>]* )?(completed|exited) with exit code (-?[0-9]+)>$`)
	copilotColors     = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|\x1b\\][^\x1b\x07]*(\x1b\\\\|\x07)")
)

// interpretCopilot reads a file as the design pages say.
func interpretCopilot(name string, lines []line) account {
	a := account{naive: make(map[string]figures), trimmed: slices.ContainsFunc(lines, func(l line) bool {
		return bytes.Contains(l.data, []byte(`"id":"[trimmed for fixture]"`))
	})}
	plain := len(lines) > 0 && len(bytes.TrimSpace(lines[0].data)) == 0 // a record that is blank
	for _, l := range lines {
		if text := bytes.TrimSpace(bytes.TrimPrefix(l.data, []byte("\xef\xbb\xbf"))); len(text) > 0 {
			plain = plain || text[0] != '{' && !l.bad && l.number == lines[0].number
			break
		}
	}
	own := func(l line) string {
		if plain {
			if m := copilotMarkerLine.FindSubmatch(l.data); m != nil {
				return string(m[1])
			}
			return ""
		}
		v := parse(l.data)
		if id := member[string](v, "sessionId"); id != "" {
			return id
		}
		if member[string](v, "type") == "session.start" {
			return member[string](v, "data", "sessionId")
		}
		return ""
	}
	last, stem := "", strings.TrimSuffix(path.Base(name), path.Ext(name))
	readers := make(map[string]*copilotReader)
	var order []*copilotReader
	for i, l := range lines {
		if id := own(l); id != "" {
			last = id
		}
		if last == "" { // the first that follows, else the name of the file
			last = stem
			for _, next := range lines[i:] {
				if id := own(next); id != "" {
					last = id
					break
				}
			}
		}
		a.sessions = append(a.sessions, last)
		r := readers[last]
		if r == nil {
			r = &copilotReader{out: &a, session: last, told: make(map[string]string), names: make(map[string]string), started: make(map[string]bool)}
			readers[last] = r
			order = append(order, r)
		}
		thread := rawThread{}
		switch {
		case l.bad:
		case plain:
			r.line(l)
		default:
			thread = r.read(l)
		}
		a.threads = append(a.threads, thread)
	}
	for _, r := range order {
		r.flush()
	}
	return a
}

// copilotReader follows one session of a file.
type copilotReader struct {
	out     *account
	session string
	told    map[string]string // ids with what they told
	names   map[string]string // of tools, by call
	started map[string]bool   // calls told by their execution, not yet by a message

	open      string // text that is being joined
	openID    string // messageId and agent of it
	paragraph string
	number    int
}

// first reports whether an event of this id has not told the same before.
func (r *copilotReader) first(id, content string) bool {
	if id == "" {
		return true
	}
	if r.told[id] == content {
		return false
	}
	r.told[id] = content
	return true
}

func (r *copilotReader) say(who, id, text string, n int) {
	if strings.TrimSpace(text) != "" && r.first(id, who+text) {
		r.out.talk = append(r.out.talk, utterance{session: r.session, who: who, text: strings.TrimSpace(text), line: n})
	}
}

func (r *copilotReader) flush() {
	r.say("assistant", "", r.open, r.number)
	r.say("assistant", "", r.paragraph, r.number)
	r.open, r.openID, r.paragraph = "", "", ""
}

// line reads a line of plain text.
func (r *copilotReader) line(l line) {
	words := copilotColors.ReplaceAllString(string(bytes.TrimPrefix(l.data, []byte("\xef\xbb\xbf"))), "")
	r.number = l.number
	if copilotMarkerLine.Match(l.data) || strings.TrimSpace(words) == "" {
		r.flush()
		return
	}
	r.paragraph += words
}

// read reads a record, and says of which thread it is.
func (r *copilotReader) read(l line) rawThread {
	v := parse(l.data)
	if timeline, ok := member[any](v, "timeline").([]any); ok && member[string](v, "type") == "" {
		for _, e := range timeline {
			r.entry(l.number, e)
		}
		return rawThread{}
	}
	kind, id, d := member[string](v, "type"), member[string](v, "id"), member[any](v, "data")
	agent := member[string](v, "agentId")
	if agent == "" {
		agent = member[string](d, "parentToolCallId")
	}
	if agent == "" && strings.HasPrefix(kind, "subagent.") {
		agent = member[string](d, "toolCallId")
	}
	thread := rawThread{agent, agent != ""}
	content := member[string](d, "content")
	key := ""
	if kind == "assistant.message" && member[string](d, "messageId") != "" {
		key = member[string](d, "messageId") + "\x00" + agent
	}
	if r.openID != "" && r.openID != key {
		r.say("assistant", "", r.open, r.number)
		r.open, r.openID = "", ""
	}
	switch kind {
	case "user.message":
		source := member[string](d, "source")
		switch {
		case member[bool](d, "isAutopilotContinuation"), strings.HasPrefix(strings.TrimSpace(content), "<system_notification>"):
		case strings.HasPrefix(source, "agent-"), agent != "" && (source == "" || source == "user"):
			if strings.TrimSpace(content) == "" && len(member[[]any](d, "attachments")) > 0 && r.first(id, "agent") {
				r.out.talk = append(r.out.talk, utterance{session: r.session, who: "agent", line: l.number})
			}
			r.say("agent", id, content, l.number)
			if agent == "" && (strings.TrimSpace(content) != "" || len(member[[]any](d, "attachments")) > 0) {
				thread.internal = true
			}
		case source == "" || source == "user":
			if strings.TrimSpace(content) == "" && len(member[[]any](d, "attachments")) > 0 && r.first(id, "human") {
				r.out.talk = append(r.out.talk, utterance{session: r.session, who: "human", line: l.number})
			}
			r.say("human", id, content, l.number)
		}
	case "assistant.message":
		index, _ := member[json.Number](d, "chunkIndex").Int64()
		count, _ := member[json.Number](d, "chunkCount").Int64()
		words := r.open + content
		if key != "" && count > index+1 {
			r.open, r.openID, r.number = words, key, l.number
		} else {
			r.open, r.openID = "", ""
			r.say("assistant", id, words, l.number)
		}
		for _, q := range member[[]any](d, "toolRequests") {
			call := member[string](q, "toolCallId")
			if r.started[call] {
				delete(r.started, call)
				continue
			}
			r.call(l.number, call, member[string](q, "name"), member[any](q, "arguments"))
		}
	case "tool.execution_start":
		call := member[string](d, "toolCallId")
		if _, ok := r.names[call]; !ok {
			r.call(l.number, call, member[string](d, "toolName"), member[any](d, "arguments"))
			r.started[call] = true
		}
	case "tool.execution_complete":
		words := member[string](d, "result", "content")
		if s := member[string](d, "result"); s != "" {
			words = s
		}
		if words == "" {
			words = member[string](d, "result", "detailedContent")
		}
		r.result(l.number, member[string](d, "toolCallId"), words, member[json.Number](d, "shellExecution", "exitCode"), fmt.Sprint(member[any](d, "success"), member[any](d, "error")))
	}
	return thread
}

// call notes a call, once.
func (r *copilotReader) call(n int, id, name string, arguments any) {
	if _, again := r.told["call "+id]; r.first("call "+id, fmt.Sprint(name, arguments)) && !again {
		r.out.calls = append(r.out.calls, toolUse{session: r.session, id: id, name: name, line: n})
	}
	r.names[id] = name
}

// result notes a result, once, with the code that it states, or its last line.
func (r *copilotReader) result(n int, id, words string, exit json.Number, outcome string) {
	if _, again := r.told["result "+id]; !r.first("result "+id, words+outcome+string(exit)) || again {
		return
	}
	w := toolOutcome{session: r.session, id: id, line: n}
	lines := strings.Split(strings.TrimRight(words, " \t\r\n"), "\n")
	name, known := r.names[id]
	if code, err := exit.Int64(); err == nil {
		w.code, w.form = &code, "shellExecution"
	} else if m := copilotExitLine.FindStringSubmatch(lines[len(lines)-1]); m != nil && (!known || strings.Contains(name, "bash") || strings.Contains(name, "shell")) {
		code, _ := strconv.ParseInt(m[3], 10, 64)
		w.code, w.form = &code, m[2]
	}
	r.out.results = append(r.out.results, w)
}

// entry reads an entry of a timeline.
func (r *copilotReader) entry(n int, e any) {
	id, words := member[string](e, "id"), member[string](e, "text")
	switch kind := member[string](e, "type"); kind {
	case "user":
		r.say("human", id, words, n)
	case "copilot":
		r.say("assistant", id, words, n)
	case "tool_call_requested", "tool_call_completed":
		call := member[string](e, "callId")
		if _, ok := r.names[call]; !ok {
			r.call(n, call, member[string](e, "name"), member[any](e, "arguments"))
		}
		if kind == "tool_call_completed" {
			r.result(n, call, member[string](e, "result", "log"), "", member[string](e, "result", "type"))
		}
	}
}

// copilotLedger counts the tokens of every session (semantics.md section 3): the records
// of usage, else what the messages state, and the total of a session where it is more.
type copilotLedger map[string]*copilotBill

type copilotBill struct {
	calls     map[string]figures // what was told of each API call
	seen      map[string]bool    // records of usage
	sum       figures
	reasoning int64 // stated so far
	told      int64 // of it
	recorded  bool
	last      int64
}

func (l copilotLedger) add(session string, record []byte) {
	b := l[session]
	if b == nil {
		b = &copilotBill{calls: make(map[string]figures), seen: make(map[string]bool)}
		l[session] = b
	}
	v := parse(record)
	d := member[any](v, "data")
	number := func(v any, name string) int64 {
		n, _ := member[json.Number](v, name).Int64()
		return n
	}
	parts := func(v any) figures {
		f := figures{CacheRead: number(v, "cacheReadTokens"), CacheWrite: number(v, "cacheWriteTokens"), Output: number(v, "outputTokens"), Thinking: number(v, "reasoningTokens")}
		f.UsageInput = number(v, "inputTokens") - f.CacheRead - f.CacheWrite
		return f
	}
	first := func(names ...string) string {
		for _, n := range names {
			if n != "" {
				return n
			}
		}
		return ""
	}
	switch kind := member[string](v, "type"); kind {
	case "assistant.message":
		key := first(member[string](d, "apiCallId"), member[string](d, "messageId"), member[string](v, "id"))
		more := number(d, "outputTokens") - b.calls[key].Output
		if b.recorded || more <= 0 {
			return
		}
		b.last = number(d, "outputTokens")
		if key != "" {
			f := b.calls[key]
			f.Output = b.last
			b.calls[key] = f
		}
		b.sum.Output += more
		b.sum.UsageOutput += more
	case "session.usage_record", "assistant.usage":
		id := member[string](v, "id")
		again := id + "\x00" + string(record)
		if id != "" && b.seen[again] {
			return
		}
		b.seen[again] = true
		u := d
		if kind == "session.usage_record" {
			u = member[any](d, "usage")
		}
		now := parts(u)
		key := first(member[string](u, "apiCallId"), member[string](d, "apiCallId"), member[string](u, "accounting", "usageId"))
		was, known := b.calls[key]
		if known = known && key != ""; !known {
			was = figures{}
			if !b.recorded && b.last == now.Output {
				was.Output = b.last
			}
		}
		b.recorded = true
		b.grow(figures{
			UsageInput: max(0, now.UsageInput-was.UsageInput), CacheRead: max(0, now.CacheRead-was.CacheRead), CacheWrite: max(0, now.CacheWrite-was.CacheWrite),
			Output: max(0, now.Output-was.Output), Thinking: max(0, now.Thinking-was.Thinking),
		})
		if key != "" {
			b.calls[key] = figures{
				UsageInput: max(now.UsageInput, was.UsageInput), CacheRead: max(now.CacheRead, was.CacheRead), CacheWrite: max(now.CacheWrite, was.CacheWrite),
				Output: max(now.Output, was.Output), Thinking: max(now.Thinking, was.Thinking),
			}
		}
	case "session.shutdown":
		var total figures
		for _, m := range member[map[string]any](d, "modelMetrics") {
			total.add(parts(member[any](m, "usage")))
		}
		b.grow(figures{
			UsageInput: max(0, total.UsageInput-b.sum.UsageInput), CacheRead: max(0, total.CacheRead-b.sum.CacheRead), CacheWrite: max(0, total.CacheWrite-b.sum.CacheWrite),
			Output: max(0, total.Output-b.sum.Output), Thinking: max(0, total.Thinking-b.reasoning),
		})
	}
}

// grow adds to the sum. An event cannot carry more reasoning than output: what is left
// comes with the next one.
func (b *copilotBill) grow(more figures) {
	b.reasoning += more.Thinking
	reasoning := min(b.reasoning-b.told, more.Output)
	b.told += reasoning
	b.sum.UsageInput += more.UsageInput
	b.sum.CacheRead += more.CacheRead
	b.sum.CacheWrite += more.CacheWrite
	b.sum.Output += more.Output
	b.sum.UsageOutput += more.Output - reasoning
	b.sum.UsageReasoning += reasoning
	b.sum.Thinking += reasoning
	b.sum.Input += more.UsageInput + more.CacheRead + more.CacheWrite
	b.sum.Cached += more.CacheRead
}

func (l copilotLedger) sums(session string) figures {
	if l[session] == nil {
		return figures{}
	}
	sum := l[session].sum
	sum.Total = sum.Input + sum.Output
	return sum
}

// copilotRaw reports whether raw is what an event of a record may carry: an entry of a
// document, or a line of plain text as a string.
func copilotRaw(data, raw []byte) bool {
	timeline := member[[]any](parse(data), "timeline")
	if slices.ContainsFunc(timeline, func(e any) bool { return fmt.Sprint(e) == fmt.Sprint(parse(raw)) }) {
		return true
	}
	s, ok := parse(raw).(string)
	return ok && plainText(s) == plainText(string(data))
}

// plainText is a text without what is no UTF-8.
func plainText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\ufffd", "")
}
