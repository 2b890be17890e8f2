package vscodetest

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"tributary/normalizers/normalizerstest"
)

// channels are what the chats of a file and their telemetry state.
type channels struct{ *normalizerstest.Statements }

// interpret reads a file by the rules of the vendor, without code of the normalizer.
func interpret(name string, lines []normalizerstest.Line) normalizerstest.Account {
	c := &channels{normalizerstest.NewStatements(lines)}
	a := reading(c).Interpret(name, lines)
	c.AddTo(&a)
	return a
}

func key(r *normalizerstest.Reader, who, body string) string {
	if who == "assistant" {
		body = nameless(body)
	}
	return r.Session + " " + who + " " + strings.Join(strings.Fields(body), "")
}

// linked matches links of Markdown and code.
var linked = regexp.MustCompile("\\[[^\\]]+\\]\\([^)\\s]+\\)|`[^`\\s]+`")

// nameless returns an answer without the names of files, which the model writes as paths, in code or as links, and of
// which the chat keeps the file.
func nameless(body string) string {
	words := strings.Fields(linked.ReplaceAllString(body, "§"))
	for i, w := range words {
		if strings.Contains(w[:len(w)-1], ".") {
			words[i] = "§"
		}
	}
	return strings.Join(words, " ")
}

// state notes a text of the chat, once for an id. The telemetry does not state copied ones.
func (c *channels) state(r *normalizerstest.Reader, id, who, body string) {
	if c != nil && !r.Copied && c.IsFirst(fmt.Sprint(r.Session, id, who, body)) {
		c.Log(key(r, who, body))
	}
}

// add notes a text of the telemetry.
func (c *channels) add(r *normalizerstest.Reader, who, body string) {
	if c != nil {
		u := normalizerstest.Utterance{Session: r.Session, Who: who, Text: strings.TrimSpace(body)}
		if body == "" {
			who = "prompt"
		}
		c.Export(key(r, who, r.Agent+body), u)
	}
}

// chatOf returns the session that a span states.
func chatOf(a map[string]any) string {
	return cmp.Or(text(a, "copilot_chat.parent_chat_session_id"), text(a, "copilot_chat.chat_session_id"), text(a, "copilot_chat.session_id"))
}

// isCounted reports whether an exported record is a span of VS Code's own agent.
func isCounted(v any, a map[string]any) bool {
	name := text(a, "gen_ai.agent.name")
	return list(v, "resourceSpans") != nil && name != "claude" && name != "copilotcli" && name != "Claude Copilot Proxy" &&
		(text(a, "gen_ai.operation.name") != "execute_tool" || text(a, "gen_ai.tool.type") != "")
}

// export notes what a span states.
func (c *channels) export(r *normalizerstest.Reader, v any, a map[string]any) {
	if once := fmt.Sprint(r.Session, v); !isCounted(v, a) || r.Noted(once) != "" {
		return
	} else {
		r.Note(once, "exported")
	}
	isPart := text(a, "copilot_chat.parent_chat_session_id") != ""
	if isPart {
		r.Agent = text(a, "copilot_chat.chat_session_id")
	}
	switch text(a, "gen_ai.operation.name") {
	case "chat":
		name := text(a, "gen_ai.agent.name")
		if name != "" && !strings.Contains(name, "/") || isPart && r.Agent == "" {
			return
		}
		for _, m := range messages(a, "gen_ai.output.messages") {
			for _, p := range list(m, "parts") {
				if body := text(p, "content"); text(p, "type") == "text" && strings.TrimSpace(body) != "" {
					c.add(r, "assistant", body)
				} else if text(p, "type") == "tool_call" && text(p, "id") != "" {
					r.Call(text(p, "id"), text(p, "name"))
				}
			}
		}
	case "execute_tool":
		if id := text(a, "gen_ai.tool.call.id"); id != "" {
			r.Call(id, text(a, "gen_ai.tool.name"))
			r.Result(id, nil, "")
		}
	case "invoke_agent":
		if r.Agent != "" {
			return
		}
		var body strings.Builder
		for _, m := range messages(a, "gen_ai.input.messages") {
			for _, p := range list(m, "parts") {
				body.WriteString(text(p, "content"))
			}
		}
		if strings.TrimSpace(body.String()) == "" {
			body.Reset()
		}
		c.add(r, "human", body.String())
	}
}

func messages(a map[string]any, name string) []any {
	out, _ := normalizerstest.Parse([]byte(text(a, name))).([]any)
	return out
}

// ledger counts the tokens of a session that may come by its chat and by telemetry: the higher sum of input, and of
// output.
type ledger struct {
	log   normalizerstest.Ledger
	bills map[string]*bill
	seen  map[string]bool
}

type bill struct {
	stated [2][2]int64 // input and output by the chat and by the telemetry
	sum    normalizerstest.Figures
}

// parts are input, what is written to the cache, what is read from it, output without reasoning, reasoning.
type parts [5]int64

// Add implements [normalizerstest.Ledger].
func (l *ledger) Add(session string, data []byte) {
	v := normalizerstest.Parse(data)
	a := normalizerstest.ExportedAttributes(v)
	if a == nil {
		before := l.log.Sums(session)
		l.log.Add(session, data)
		now := l.log.Sums(session)
		p := parts{now.UsageInput - before.UsageInput, 0, now.CacheRead - before.CacheRead, now.UsageOutput - before.UsageOutput}
		p = l.bill(session, 0, p)
		l.bills[session].sum.Add(normalizerstest.Figures{
			Input: p[0], Cached: p[2], Output: p[3], UsageInput: p[0], CacheRead: p[2], UsageOutput: p[3], Total: p[0] + p[2] + p[3],
		})
		return
	}
	once := session + fmt.Sprint(v)
	if !isCounted(v, a) || text(a, "gen_ai.operation.name") != "chat" || l.seen[once] {
		return
	}
	l.seen[once] = true
	of := func(name string) int64 { return normalizerstest.ExportedNumber(a, "gen_ai.usage."+name) }
	read, written := of("cache_read.input_tokens"), of("cache_creation.input_tokens")
	reasoning := min(max(of("reasoning_tokens"), of("reasoning.output_tokens")), of("output_tokens"))
	p := l.bill(session, 1, parts{of("input_tokens") - read - written, written, read, of("output_tokens") - reasoning, reasoning})
	l.bills[session].sum.Add(normalizerstest.Figures{
		Input: p[0] + p[1] + p[2], Cached: p[2], Output: p[3] + p[4], Thinking: p[4],
		UsageInput: p[0], CacheWrite: p[1], CacheRead: p[2], UsageOutput: p[3], UsageReasoning: p[4], Total: p[0] + p[1] + p[2] + p[3] + p[4],
	})
}

// bill returns what a channel states and the other has not billed. What is billed already covers the first parts first.
func (l *ledger) bill(session string, channel int, p parts) parts {
	b := l.bills[session]
	if b == nil {
		b = &bill{}
		l.bills[session] = b
	}
	for of, within := range [][]int{{0, 1, 2}, {3, 4}} {
		was := max(b.stated[0][of], b.stated[1][of])
		var all int64
		for _, i := range within {
			all += p[i]
		}
		b.stated[channel][of] += all
		covered := all - (max(b.stated[0][of], b.stated[1][of]) - was)
		for _, i := range within {
			n := min(covered, p[i])
			p[i], covered = p[i]-n, covered-n
		}
	}
	return p
}

// Sums implements [normalizerstest.Ledger].
func (l *ledger) Sums(session string) normalizerstest.Figures {
	if b := l.bills[session]; b != nil {
		return b.sum
	}
	return normalizerstest.Figures{}
}

// Exported returns what VS Code's agent would have exported of the session that the records of a chat make: prompts and
// the answers and calls of the model, with the runs of the calls that are returned, and all tokens in one span.
func Exported(session string, log [][]byte, returned []string, input, output int64) (out [][]byte) {
	var m map[string]any
	for _, record := range log {
		m = apply(m, normalizerstest.Parse(record))
	}
	n := 0
	add := func(operation string, a normalizerstest.Attributes) {
		n++
		a["gen_ai.operation.name"], a["copilot_chat.chat_session_id"] = operation, session
		out = append(out, normalizerstest.ExportedSpan("copilot-chat", "copilot-chat", operation, "t1", fmt.Sprintf("%016x", n), "", time.Unix(1, 0), time.Unix(2, 0), a))
	}
	message := func(role string, parts ...any) string {
		return encode([]any{map[string]any{"role": role, "parts": parts}})
	}
	for _, q := range list(m, "requests") {
		if isCopy(m, q) {
			continue
		}
		prompt := sentPrompt(text(q, "message", "text"), list(q, "message", "parts"))
		if strings.TrimSpace(prompt) != "" {
			add("invoke_agent", normalizerstest.Attributes{"gen_ai.input.messages": message("user", map[string]any{"type": "text", "content": prompt})})
		}
		for _, round := range list(q, "result", "metadata", "toolCallRounds") {
			parts := []any{map[string]any{"type": "text", "content": text(round, "response")}}
			for _, c := range list(round, "toolCalls") {
				id, _, _ := strings.Cut(text(c, "id"), "__vscode")
				if slices.Contains(returned, id) {
					parts = append(parts, map[string]any{"type": "tool_call", "id": id, "name": text(c, "name"), "arguments": text(c, "arguments")})
				}
			}
			add("chat", normalizerstest.Attributes{"gen_ai.agent.name": "panel/editAgent", "gen_ai.output.messages": message("assistant", parts...)})
		}
		if isStopped(q) {
			for _, answer := range writtenIn(list(q, "response")) {
				add("chat", normalizerstest.Attributes{"gen_ai.agent.name": "panel/editAgent", "gen_ai.output.messages": message("assistant", map[string]any{"type": "text", "content": answer})})
			}
			for _, p := range list(q, "response") {
				if text(p, "kind") == "thinking" {
					add("chat", normalizerstest.Attributes{"gen_ai.agent.name": "panel/editAgent", "copilot_chat.reasoning_content": wordsIn(p, "value")})
				}
			}
		}
	}
	for _, id := range returned {
		add("execute_tool", normalizerstest.Attributes{
			"gen_ai.tool.type": "function", "gen_ai.tool.name": "x", "gen_ai.tool.call.id": id, "gen_ai.tool.call.result": "sent",
		})
	}
	add("chat", normalizerstest.Attributes{"gen_ai.usage.input_tokens": input, "gen_ai.usage.output_tokens": output})
	return out
}

// writtenIn returns the texts of an answer between its other parts, as the model wrote them.
func writtenIn(parts []any) []string {
	answers, isOpen := []string{}, false
	for i, p := range parts {
		words, ok := wordsOf(p)
		if name := strings.Trim(words, "`"); text(p, "kind") == "inlineReference" && name != "" {
			words = fmt.Sprintf([]string{"`app/%[1]s`", "[%[1]s](app/%[1]s#L7)", " app/%[1]s "}[i%3], name)
		}
		switch isEdit := strings.HasSuffix(text(p, "kind"), "EditGroup"); {
		case ok && !isOpen:
			answers, isOpen = append(answers, words), true
		case ok || isOpen && isEdit:
			answers[len(answers)-1] += words
		default:
			isOpen = false
		}
	}
	return slices.DeleteFunc(answers, func(a string) bool { return strings.TrimSpace(a) == "" })
}

// wordsIn returns a text, or the texts in a list as one.
func wordsIn(v any, names ...string) string {
	words := []string{text(v, names...)}
	for _, w := range list(v, names...) {
		words = append(words, text(w))
	}
	return strings.Join(words, "")
}
