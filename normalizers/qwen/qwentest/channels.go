package qwentest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// channels are what the log of a file and its telemetry state.
type channels struct {
	*normalizerstest.Statements

	open [2][]openCall // of the log, and of the telemetry without an id
}

type openCall struct{ key, id string }

// interpret reads a file by the rules of the vendor, without code of the normalizer.
func interpret(name string, lines []normalizerstest.Line) normalizerstest.Account {
	c := &channels{Statements: normalizerstest.NewStatements(lines)}
	a := reading(c).Interpret(name, lines)
	c.AddTo(&a)
	return a
}

// reading reads the records of both channels; what both state is noted in c, which may be nil.
func reading(c *channels) normalizerstest.Reading {
	return normalizerstest.Reading{
		Session: func(record any) string {
			if a := normalizerstest.ExportedAttributes(record); a != nil {
				return text(a, "session.id")
			}
			return text(record, "sessionId")
		},
		Read: func(r *normalizerstest.Reader, v any) {
			switch a := normalizerstest.ExportedAttributes(v); {
			case a == nil:
				read(r, v, c)
			case list(v, "resourceLogs") != nil:
				c.export(r, v, a)
			}
			if c != nil {
				c.Advance()
			}
		},
	}
}

func (c *channels) key(r *normalizerstest.Reader, who, body string) string {
	body = strings.TrimSuffix(body, "...[truncated]")
	if len(body) > 4082 { // of texts in ASCII
		body = body[:4082]
	}
	return fmt.Sprintf("%s %s %s", r.Session, who, strings.Join(strings.Fields(body), ""))
}

// state notes a text of the log, each record once.
func (c *channels) state(r *normalizerstest.Reader, id, who, body string) {
	if c == nil || r.Copied || r.Agent != "" && who != "assistant" || who != "prompt" && who != "human" && strings.TrimSpace(body) == "" {
		return
	}
	if c.IsFirst(fmt.Sprint(r.Session, id, who, body)) {
		c.Log(c.key(r, who, body))
	}
}

// prompt notes a prompt of the log, which telemetry states with its text or without.
func (c *channels) prompt(r *normalizerstest.Reader, id, sent string) {
	c.state(r, id, "human", sent)
	c.state(r, id, "prompt", "")
}

// answer notes an answer of the log: telemetry states what the log states as exported of its parent, if it does.
func (c *channels) answer(r *normalizerstest.Reader, id, parent, whole string) {
	if exported := r.Noted("exported " + parent); exported != "" && strings.TrimSpace(whole) != "" {
		whole = exported
	}
	c.state(r, id, "assistant", whole)
}

// call notes a call of the log.
func (c *channels) call(r *normalizerstest.Reader, id, name string, args any) {
	if c == nil {
		r.Call(id, name)
		return
	}
	if !r.Copied && c.IsFirst(fmt.Sprint("call ", r.Session, id)) {
		key := callKey(r, name, args)
		if at := slices.IndexFunc(c.open[1], func(o openCall) bool { return o.key == key }); at >= 0 {
			r.Note("replaces "+id, c.open[1][at].id)
			c.open[1] = slices.Delete(c.open[1], at, at+1)
			return
		}
		c.open[0] = append(c.open[0], openCall{key, id})
	}
	if r.Noted("replaces "+id) == "" {
		r.Call(id, name)
	}
}

func callKey(r *normalizerstest.Reader, name string, args any) string {
	data, _ := json.Marshal(args) // of JSON
	return r.Session + " " + name + " " + string(data)
}

// forget notes that the telemetry states the id of a call.
func (c *channels) forget(r *normalizerstest.Reader, id string) {
	if c != nil {
		c.open[0] = slices.DeleteFunc(c.open[0], func(o openCall) bool { return o.id == id && strings.HasPrefix(o.key, r.Session+" ") })
	}
}

// export notes what a record exports.
func (c *channels) export(r *normalizerstest.Reader, v any, a map[string]any) {
	prompt := strings.Split(text(a, "prompt_id"), "#")
	r.Agent = text(a, "subagent_name")
	if len(prompt) == 3 && prompt[1] != "" {
		r.Agent = prompt[1]
	}
	data, _ := json.Marshal(v) // of JSON
	if c == nil || !c.IsFirst(r.Session+string(data)) {
		return
	}
	add := func(who, body string) {
		c.Export(c.key(r, who, body), normalizerstest.Utterance{Session: r.Session, Who: strings.Replace(who, "prompt", "human", 1), Text: strings.TrimSpace(body)})
	}
	switch text(a, "event.name") {
	case "qwen-code.user_prompt":
		body, whole := text(a, "prompt"), strings.TrimSpace(text(a, "prompt"))
		switch {
		case a["prompt"] == nil:
			add("prompt", "")
		case strings.HasPrefix(whole, "<system-reminder>"), strings.HasPrefix(whole, "<qwen:user-prompt-submit-context>"):
		default:
			if body = files.ReplaceAllString(body, ""); strings.TrimSpace(body) != "" {
				add("human", body)
			}
		}
	case "qwen-code.api_response":
		body := text(a, "response_text")
		if helper := strings.HasPrefix(prompt[0], "side-query") || text(a, "subagent_name") != "" && len(prompt) != 3; helper || strings.TrimSpace(body) == "" {
			return
		}
		add("assistant", body)
	case "qwen-code.tool_call":
		c.end(r, a)
	}
}

// end notes the end of a call.
func (c *channels) end(r *normalizerstest.Reader, a map[string]any) {
	id, name := text(a, "call_id"), text(a, "function_name")
	key := callKey(r, name, normalizerstest.Parse([]byte(text(a, "function_args"))))
	if id != "" {
		c.forget(r, id)
	} else if at := slices.IndexFunc(c.open[0], func(o openCall) bool { return o.key == key }); at >= 0 {
		id = c.open[0][at].id
		c.forget(r, id)
	} else {
		digest := func(parts ...string) string {
			sum := sha256.Sum256([]byte(strings.Join(parts, "\xff")))
			return base64.RawURLEncoding.EncodeToString(sum[:6])
		}
		id = "otlp:" + digest("end", digest(strings.SplitN(strings.TrimPrefix(key, r.Session+" "), " ", 2)...), text(a, "event.timestamp"))
		c.open[1] = append(c.open[1], openCall{key, id})
	}
	r.Call(id, name)
	readResult(r, id, "", text(a, "error.message"))
}

// ledger counts the tokens of a session that may come by log and by telemetry: of each part it bills the higher sum.
type ledger struct {
	log   normalizerstest.Ledger
	bills map[string]*bill
	seen  map[string]bool
}

func newLedger() normalizerstest.Ledger {
	return &ledger{log: reading(nil).Ledger(), bills: make(map[string]*bill), seen: make(map[string]bool)}
}

type bill struct {
	stated [2][4]int64 // by the log and by the telemetry: input without cache, cache, output without thoughts, thoughts
	sum    normalizerstest.Figures
}

// Add implements [normalizerstest.Ledger].
func (l *ledger) Add(session string, data []byte) {
	a := normalizerstest.ExportedAttributes(normalizerstest.Parse(data))
	if a == nil {
		before := l.log.Sums(session)
		l.log.Add(session, data)
		now := l.log.Sums(session)
		thoughts := now.UsageReasoning - before.UsageReasoning
		inside := thoughts == 0 || now.Output-before.Output != now.UsageOutput-before.UsageOutput
		l.bill(session, 0, inside, [4]int64{now.UsageInput - before.UsageInput, now.CacheRead - before.CacheRead, now.UsageOutput - before.UsageOutput, thoughts})
		return
	}
	if once := session + string(data); a["event.name"] == "qwen-code.api_response" && !l.seen[once] {
		l.seen[once] = true
		var n [5]int64
		for i, name := range []string{"input", "cached_content", "output", "thoughts", "total"} {
			n[i] = normalizerstest.ExportedNumber(a, name+"_token_count")
		}
		inside := strings.Contains("openai qwen-oauth", text(a, "auth_type"))
		if n[4] > 0 {
			inside = n[4] != n[0]+n[2]+n[3]
		}
		cached, thoughts := min(n[1], n[0]), reasoning(n, inside)
		if inside {
			n[2] -= thoughts
		}
		l.bill(session, 1, inside, [4]int64{n[0] - cached, cached, n[2], thoughts})
	}
}

// bill counts tokens that a channel states.
func (l *ledger) bill(session string, channel int, inside bool, parts [4]int64) {
	b := l.bills[session]
	if b == nil {
		b = &bill{}
		l.bills[session] = b
	}
	var left [4]int64
	for i, n := range parts {
		was := max(b.stated[0][i], b.stated[1][i])
		b.stated[channel][i] += n
		left[i] = max(b.stated[0][i], b.stated[1][i]) - was
	}
	output := left[2]
	if inside {
		output += left[3]
	}
	b.sum.Add(normalizerstest.Figures{
		Input: left[0] + left[1], Cached: left[1], Output: output, Thinking: left[3],
		UsageInput: left[0], CacheRead: left[1], UsageOutput: left[2], UsageReasoning: left[3], Total: left[0] + left[1] + left[2] + left[3],
	})
}

// Sums implements [normalizerstest.Ledger].
func (l *ledger) Sums(session string) normalizerstest.Figures {
	if b := l.bills[session]; b != nil {
		return b.sum
	}
	return normalizerstest.Figures{}
}
