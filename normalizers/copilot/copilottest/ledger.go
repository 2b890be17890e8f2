package copilottest

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// ledger counts the tokens of every session (README.md, Tokens): from records of usage, else from messages, and the
// totals at the end of a run if they are higher.
type ledger map[string]*copilotBill

type copilotBill struct {
	calls     map[string]normalizerstest.Figures // the figures emitted for each API call
	said      map[string]int64                   // the output of each call as messages state it
	seen      map[string]bool                    // records
	sum       normalizerstest.Figures
	reasoning int64 // stated
	emitted   int64 // the emitted part of it
	recorded  bool
	last      int64
	model     string     // of the main conversation
	spendings []spending // what was emitted, in order
	run       int        // number of spendings before the last start or resumption
}

// spending is what was emitted of a model at once.
type spending struct {
	model string
	parts normalizerstest.Figures
}

// spentOn sums up spendings, of a model or of all.
func spentOn(spendings []spending, model string, all bool) normalizerstest.Figures {
	var sum normalizerstest.Figures
	for _, s := range spendings {
		if all || s.model == model {
			sum.Add(s.parts)
		}
	}
	return sum
}

// isModel reports whether a name is the name of a model.
func isModel(name string) bool { return name != "" && !strings.EqualFold(name, "auto") }

// follow notes the model of the main conversation, and returns the model of the record.
func (b *copilotBill) follow(v, d any) string {
	sub := normalizerstest.Member[string](v, "agentId") != "" || normalizerstest.Member[string](d, "parentToolCallId") != ""
	names := map[string]string{
		"session.start": "selectedModel", "session.resume": "selectedModel", "session.model_change": "newModel",
		"session.tools_updated": "model", "session.auto_mode_resolved": "chosenModel", "assistant.message": "model",
	}
	stated := normalizerstest.Member[string](d, names[normalizerstest.Member[string](v, "type")])
	if isModel(stated) && !sub {
		b.model = stated
	}
	switch own := normalizerstest.Member[string](d, "model"); {
	case isModel(own):
		return own
	case sub:
		return ""
	default:
		return b.model
	}
}

// least returns, part by part, the lower of two figures.
func least(f, g normalizerstest.Figures) normalizerstest.Figures {
	return normalizerstest.Figures{
		UsageInput: min(f.UsageInput, g.UsageInput), CacheRead: min(f.CacheRead, g.CacheRead), CacheWrite: min(f.CacheWrite, g.CacheWrite),
		Output: min(f.Output, g.Output), Thinking: min(f.Thinking, g.Thinking),
	}
}

// rest returns, part by part, what f has above g.
func rest(f, g normalizerstest.Figures) normalizerstest.Figures {
	return normalizerstest.Figures{
		UsageInput: max(0, f.UsageInput-g.UsageInput), CacheRead: max(0, f.CacheRead-g.CacheRead), CacheWrite: max(0, f.CacheWrite-g.CacheWrite),
		Output: max(0, f.Output-g.Output), Thinking: max(0, f.Thinking-g.Thinking),
	}
}

// most returns, part by part, the higher of two figures.
func most(f, g normalizerstest.Figures) normalizerstest.Figures {
	return normalizerstest.Figures{
		UsageInput: max(f.UsageInput, g.UsageInput), CacheRead: max(f.CacheRead, g.CacheRead), CacheWrite: max(f.CacheWrite, g.CacheWrite),
		Output: max(f.Output, g.Output), Thinking: max(f.Thinking, g.Thinking),
	}
}

// Add implements [normalizerstest.Ledger].
func (l ledger) Add(session string, record []byte) {
	b := l[session]
	if b == nil {
		b = &copilotBill{calls: make(map[string]normalizerstest.Figures), said: make(map[string]int64), seen: make(map[string]bool)}
		l[session] = b
	}
	v := normalizerstest.Parse(record)
	id, d := normalizerstest.Member[string](v, "id"), normalizerstest.Member[any](v, "data")
	again := id + "\x00" + string(record)
	if id != "" && b.seen[again] {
		return
	}
	b.seen[again] = true
	model := b.follow(v, d)
	switch kind := normalizerstest.Member[string](v, "type"); kind {
	case "assistant.message":
		b.message(id, d, model)
	case "session.usage_record", "assistant.usage":
		u := d
		if kind == "session.usage_record" {
			u = normalizerstest.Member[any](d, "usage")
		}
		b.usage(cmp.Or(normalizerstest.Member[string](u, "apiCallId"), normalizerstest.Member[string](d, "apiCallId"), normalizerstest.Member[string](u, "accounting", "usageId")), u, model)
	case "session.start", "session.resume":
		b.run = len(b.spendings)
	case "session.shutdown":
		b.shutdown(normalizerstest.Member[map[string]any](d, "modelMetrics"))
	}
}

// count returns a count that an object states, else 0.
func count(v any, name string) int64 {
	n, _ := normalizerstest.Member[json.Number](v, name).Int64()
	return n
}

// usageOf returns the parts of a usage.
func usageOf(v any) normalizerstest.Figures {
	f := normalizerstest.Figures{CacheRead: count(v, "cacheReadTokens"), CacheWrite: count(v, "cacheWriteTokens"), Output: count(v, "outputTokens"), Thinking: count(v, "reasoningTokens")}
	f.UsageInput = count(v, "inputTokens") - f.CacheRead - f.CacheWrite
	return f
}

// message counts the output of a message, until the session has records of usage.
func (b *copilotBill) message(id string, d any, model string) {
	key := cmp.Or(normalizerstest.Member[string](d, "apiCallId"), normalizerstest.Member[string](d, "messageId"), id)
	output := count(d, "outputTokens")
	b.said[key] = max(b.said[key], output)
	more := output - b.calls[key].Output
	if b.recorded || more <= 0 {
		return
	}
	b.last = output
	if key != "" {
		f := b.calls[key]
		f.Output = b.last
		b.calls[key] = f
	}
	b.sum.Output += more
	b.sum.UsageOutput += more
	b.spendings = append(b.spendings, spending{model, normalizerstest.Figures{Output: more}})
}

// usage counts what a record of usage states about an API call beyond what was counted.
func (b *copilotBill) usage(key string, u any, model string) {
	now, was := usageOf(u), normalizerstest.Figures{}
	if f, known := b.calls[key]; known && key != "" {
		was = f
	} else if !b.recorded && b.last == now.Output {
		was.Output = b.last
	}
	b.recorded = true
	if own := normalizerstest.Member[string](u, "model"); isModel(own) {
		model = own
	}
	b.grow(model, rest(now, was))
	if key != "" {
		b.calls[key] = most(now, was)
	}
}

// shutdown counts what the totals have, model by model, beyond what was counted: in the session, or since the run
// began, if the messages of the session have more output than the totals.
func (b *copilotBill) shutdown(metrics map[string]any) {
	var total normalizerstest.Figures
	for _, m := range metrics {
		total.Add(usageOf(normalizerstest.Member[any](m, "usage")))
	}
	said := int64(0)
	for _, output := range b.said {
		said += output
	}
	counted := b.spendings
	if total.Output < said {
		counted = b.spendings[b.run:]
	}
	left := rest(total, spentOn(counted, "", true))
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		now := usageOf(normalizerstest.Member[any](metrics[name], "usage"))
		more := least(rest(now, spentOn(counted, name, false)), left)
		left = rest(left, more)
		b.grow(name, more)
	}
}

// grow adds to the sum. An event cannot carry more reasoning than output; the rest comes with the next one.
// tokens_thinking has all of it at once.
func (b *copilotBill) grow(model string, more normalizerstest.Figures) {
	b.spendings = append(b.spendings, spending{model, more})
	b.reasoning += more.Thinking
	reasoning := min(b.reasoning-b.emitted, more.Output)
	b.emitted += reasoning
	b.sum.UsageInput += more.UsageInput
	b.sum.CacheRead += more.CacheRead
	b.sum.CacheWrite += more.CacheWrite
	b.sum.Output += more.Output
	b.sum.UsageOutput += more.Output - reasoning
	b.sum.UsageReasoning += reasoning
	b.sum.Thinking += more.Thinking
	b.sum.Input += more.UsageInput + more.CacheRead + more.CacheWrite
	b.sum.Cached += more.CacheRead
}

// Sums implements [normalizerstest.Ledger].
func (l ledger) Sums(session string) normalizerstest.Figures {
	if l[session] == nil {
		return normalizerstest.Figures{}
	}
	sum := l[session].sum
	sum.Total = sum.Input + sum.Output
	return sum
}
