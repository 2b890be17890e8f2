package copilottest

import (
	"cmp"
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
	recorded  bool
	last      int64
	model     string     // of the main conversation
	spendings []spending // what was emitted, in order
	run       int        // number of spendings before the last start or resumption

	sent    map[string]normalizerstest.Figures // of each API call, by the telemetry
	ahead   normalizerstest.Figures            // the telemetry of the log, below zero if it is behind, where no call joins them
	spanned map[string]bool                    // spans
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
	if b.model == "" && normalizerstest.Member[string](v, "type") == "tool.execution_complete" {
		stated = normalizerstest.Member[string](d, "model")
	}
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
		b = &copilotBill{calls: make(map[string]normalizerstest.Figures), said: make(map[string]int64), seen: make(map[string]bool), sent: make(map[string]normalizerstest.Figures), spanned: make(map[string]bool)}
		l[session] = b
	}
	v := normalizerstest.Parse(record)
	if s := spanOf(v); s != nil {
		b.span(s)
		return
	}
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
	case "session.compaction_complete":
		if !b.recorded {
			spent := compactionOf(normalizerstest.Member[any](d, "compactionTokensUsed"))
			b.charge(b.logged("", normalizerstest.Figures{}, spent))
		}
	case "session.start", "session.resume":
		b.run = len(b.spendings)
	case "session.shutdown":
		b.shutdown(normalizerstest.Member[map[string]any](d, "modelMetrics"))
	}
}

// count returns a count that an object states, else 0.
func count(v any, name string) int64 { return normalizerstest.Count(v, name) }

// usageOf returns the parts of a usage.
func usageOf(v any) normalizerstest.Figures {
	f := normalizerstest.Figures{CacheRead: count(v, "cacheReadTokens"), CacheWrite: count(v, "cacheWriteTokens"), Output: count(v, "outputTokens"), Thinking: count(v, "reasoningTokens")}
	details := normalizerstest.Member[[]any](normalizerstest.Member[any](v, "copilotUsage"), "tokenDetails")
	if i := slices.IndexFunc(details, isCacheWrite); i >= 0 && f.CacheWrite == 0 {
		f.CacheWrite = count(details[i], "tokenCount")
	}
	f.UsageInput = count(v, "inputTokens") - f.CacheRead - f.CacheWrite
	return f
}

// isCacheWrite reports whether a part of a bill is the cache write, which the count of a compaction lacks.
func isCacheWrite(part any) bool {
	return normalizerstest.Member[string](part, "tokenType") == "cache_write"
}

// compactionOf returns the parts of the usage of a compaction. In 2025 it had names of its own.
func compactionOf(v any) normalizerstest.Figures {
	if input := count(v, "input"); input > 0 {
		cached := count(v, "cachedInput")
		return normalizerstest.Figures{UsageInput: input - cached, CacheRead: cached, Output: count(v, "output")}
	}
	return usageOf(v)
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
	b.spendings = append(b.spendings, spending{model, normalizerstest.Figures{Output: more}})
	fresh := b.logged(normalizerstest.Member[string](d, "apiCallId"), normalizerstest.Figures{Output: output - more}, normalizerstest.Figures{Output: more})
	b.sum.Output += fresh.Output
	b.sum.UsageOutput += fresh.Output
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
	b.grow(model, key, was, rest(now, was))
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
		b.grow(name, "", normalizerstest.Figures{}, more)
	}
}

// grow notes what the log states of a call beyond what it had stated, and charges what the telemetry has not.
func (b *copilotBill) grow(model, call string, was, more normalizerstest.Figures) {
	b.spendings = append(b.spendings, spending{model, more})
	b.charge(b.logged(call, was, more))
}

// joins reports whether the id of a call is the same in both channels.
func joins(call string) bool { return call != "" && len(call) <= 128 }

// logged returns what the telemetry has not charged of what the log states.
func (b *copilotBill) logged(call string, was, more normalizerstest.Figures) normalizerstest.Figures {
	matched := more
	if joins(call) {
		matched = least(more, rest(b.sent[call], was))
	}
	out := rest(more, matched)
	fresh := rest(matched, rest(b.ahead, normalizerstest.Figures{}))
	b.ahead = difference(b.ahead, matched)
	out.Add(fresh)
	return out
}

// span charges what a span states of a call to the model, and the log has not.
func (b *copilotBill) span(s *sentSpan) {
	id := s.trace + ":" + s.id
	if b.spanned[id] || s.text("gen_ai.operation.name") != "chat" {
		return
	}
	b.spanned[id] = true
	model := cmp.Or(s.text("gen_ai.response.model"), s.text("gen_ai.request.model"))
	if isModel(model) && s.text("github.copilot.initiator") != "sub-agent" {
		b.model = model
	}
	n := func(name string) int64 { return normalizerstest.ExportedNumber(s.attributes, "gen_ai.usage."+name) }
	now := normalizerstest.Figures{CacheRead: n("cache_read.input_tokens"), CacheWrite: n("cache_write.input_tokens"), Output: n("output_tokens"), Thinking: n("reasoning.output_tokens")}
	now.UsageInput = n("input_tokens") - now.CacheRead - now.CacheWrite
	call := cmp.Or(s.text("gen_ai.response.id"), id)
	was := b.sent[call]
	now = most(was, now)
	b.sent[call] = now
	var logged normalizerstest.Figures
	if joins(call) {
		logged = b.calls[call]
	}
	more := difference(rest(now, logged), rest(was, logged))
	fresh := rest(more, rest(difference(normalizerstest.Figures{}, b.ahead), normalizerstest.Figures{}))
	b.ahead = difference(b.ahead, difference(normalizerstest.Figures{}, more))
	b.charge(fresh)
}

// difference returns f without g, part by part.
func difference(f, g normalizerstest.Figures) normalizerstest.Figures {
	return normalizerstest.Figures{
		UsageInput: f.UsageInput - g.UsageInput, CacheRead: f.CacheRead - g.CacheRead, CacheWrite: f.CacheWrite - g.CacheWrite,
		Output: f.Output - g.Output, Thinking: f.Thinking - g.Thinking,
	}
}

// charge adds to the sum. An event cannot carry more reasoning than output: only tokens_thinking has the rest.
func (b *copilotBill) charge(more normalizerstest.Figures) {
	reasoning := min(more.Thinking, more.Output)
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
