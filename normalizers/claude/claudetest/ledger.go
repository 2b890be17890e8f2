package claudetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"tributary/normalizers/normalizerstest"
)

// claudeUsage returns the figures of one assistant record, unchanged.
func claudeUsage(v any) normalizerstest.Figures {
	f := claudeUsageOf(normalizerstest.Member[any](v, "message", "usage"))
	cost, _ := normalizerstest.Member[json.Number](v, "costUSD").Float64()
	f.Cost = normalizerstest.CostOf(cost)
	return f
}

func claudeUsageOf(v any) normalizerstest.Figures {
	number := func(names ...string) int64 { return normalizerstest.Count(v, names...) }
	f := normalizerstest.Figures{
		Input: number("input_tokens"), Output: number("output_tokens"), Cached: number("cache_read_input_tokens"),
		Thinking:   number("output_tokens_details", "thinking_tokens"),
		CacheWrite: number("cache_creation_input_tokens"),
	}
	if normalizerstest.Member[any](v, "cache_creation_input_tokens") == nil {
		f.CacheWrite = number("cache_creation", "ephemeral_5m_input_tokens") + number("cache_creation", "ephemeral_1h_input_tokens")
	}
	f.CacheWrite1h = min(number("cache_creation", "ephemeral_1h_input_tokens"), f.CacheWrite)
	f.WebSearches = number("server_tool_use", "web_search_requests")
	f.UsageInput, f.CacheRead, f.UsageReasoning = f.Input, f.Cached, f.Thinking
	f.UsageOutput = f.Output - f.Thinking
	f.Total = f.Input + f.CacheWrite + f.CacheRead + f.Output
	return f
}

// ledger has for every session the highest figures of each message.id in any thread, and what the result of each SDK
// run has above the calls of the run. Copied history is billed elsewhere. It assigns a call of a stream to the
// current run. If the call states more figures after the result of its run, the result already has them. The same
// applies to calls of a transcript and runs of which only the result is known. A call that a subagent or copied
// history states first belongs to no run.
type ledger map[string]*claudeBook

type claudeBook struct {
	calls   map[string]*claudeCall
	seen    map[string]bool
	run     int                     // the current one
	named   bool                    // a stream has calls of it
	used    normalizerstest.Figures // by its calls
	results normalizerstest.Figures // what results have above the calls
	ahead   normalizerstest.Figures // the part that calls of their runs may still state
	unseen  normalizerstest.Figures // of results alone
	whole   normalizerstest.Figures // the part of used from messages that state why they ended
	models  [4]int64                // what the last modelUsage has counted
	alone   normalizerstest.Figures // of calls without a run
	settled normalizerstest.Figures // of calls, already in a result or another session
}

// claudeCall is one call of the API.
type claudeCall struct {
	figures normalizerstest.Figures
	hour    int64  // its share of increments of cache writes
	request string // the first one stated
	run     int    // the run in which a stream named it
	outside bool   // in no run

	advice map[int]*claudeCall // what an advisor did within the call, by its place among the steps
}

// call returns the call of a record. A second request id makes it another call.
func (b *claudeBook) call(v any, apart bool) *claudeCall {
	request := normalizerstest.Member[string](v, "requestId")
	id := normalizerstest.Member[string](v, "message", "id")
	if id == "" && request != "" {
		for known, c := range b.calls { // the log has stated the request
			if c.request == request {
				id = known
			}
		}
	}
	if id == "" {
		id, request = cmp.Or(request, normalizerstest.Member[string](v, "uuid"), fmt.Sprint("@", len(b.calls))), ""
	}
	if c := b.calls[id]; c != nil && c.request != "" && request != "" && c.request != request {
		id += "\x00" + request
	}
	c := b.calls[id]
	if exported := b.calls[request]; c == nil && exported != nil && request != "" { // telemetry has stated the request
		c = exported
		delete(b.calls, request)
		b.calls[id] = c
	}
	if c == nil {
		c = &claudeCall{outside: apart}
		b.calls[id] = c
	}
	c.request = cmp.Or(c.request, request)
	return c
}

// atMost limits f to limit, field by field; text of the output comes first.
func atMost(f, limit normalizerstest.Figures) normalizerstest.Figures {
	output, written := min(f.Output, limit.Output), min(f.CacheWrite, limit.CacheWrite)
	return normalizerstest.Figures{
		CacheWrite1h: max(min(f.CacheWrite1h, limit.CacheWrite1h), f.CacheWrite1h-(f.CacheWrite-written)),
		WebSearches:  min(f.WebSearches, limit.WebSearches),
		Input:        min(f.Input, limit.Input), Cached: min(f.Cached, limit.Cached), CacheWrite: min(f.CacheWrite, limit.CacheWrite),
		Output: output, Thinking: max(0, output-(f.Output-f.Thinking)),
	}
}

// above returns what f has above of.
func above(f, of normalizerstest.Figures) normalizerstest.Figures {
	output, written := max(0, f.Output-of.Output), max(0, f.CacheWrite-of.CacheWrite)
	return normalizerstest.Figures{
		CacheWrite1h: min(max(0, f.CacheWrite1h-of.CacheWrite1h), written),
		WebSearches:  max(0, f.WebSearches-of.WebSearches), Cost: max(0, f.Cost-of.Cost),
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
	if export := billed(session, v); export != nil {
		v = export
	}
	is := normalizerstest.Member[string](v, "type")
	if (is == "system" || is == "result") && b.repeats(v, record) {
		return
	}
	switch {
	case is == "system" && normalizerstest.Member[string](v, "subtype") == "init":
		b.next()
	case is == "result" && normalizerstest.Member[string](v, "key") == "":
		b.result(b.allOf(v))
	case is == "stream_event":
		b.start(session, v)
	case is == "assistant", normalizerstest.Member[string](v, "message", "role") == "assistant":
		b.message(session, v)
	}
}

// repeats reports whether a record with this id came before.
func (b *claudeBook) repeats(v any, record []byte) bool {
	id := normalizerstest.Member[string](v, "uuid")
	if id == "" {
		return false
	}
	again := id + string(record)
	seen := b.seen[again]
	b.seen[again] = true
	return seen
}

// next begins the next run.
func (b *claudeBook) next() {
	b.run++
	b.used, b.whole, b.named = normalizerstest.Figures{}, normalizerstest.Figures{}, false
}

// allOf returns the usage of a result, together with the messages that came whole where both are all that modelUsage
// counts, since the last result or at all.
func (b *claudeBook) allOf(v any) normalizerstest.Figures {
	usage := claudeUsageOf(normalizerstest.Member[any](v, "usage"))
	var counted, since [4]int64
	for _, model := range normalizerstest.Member[map[string]any](v, "modelUsage") {
		for i, name := range []string{"inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens", "outputTokens"} {
			counted[i] += normalizerstest.Count(model, name)
		}
	}
	for i, n := range counted {
		since[i] = max(0, n-b.models[i])
	}
	if counted != [4]int64{} {
		b.models = counted
	}
	all := usage
	all.Add(b.whole)
	if sum := [4]int64{all.Input, all.Cached, all.CacheWrite, all.Output}; sum == counted || sum == since {
		return all
	}
	return usage
}

// result counts what the result of the run has above its calls.
func (b *claudeBook) result(now normalizerstest.Figures) {
	stated, pool := b.used, &b.ahead
	if !b.named {
		stated, pool = b.alone, &b.unseen
		b.alone = above(b.alone, now)
	}
	more := above(now, stated)
	b.results.Add(more)
	pool.Add(more)
	b.next()
}

// start counts the start of a message, which names its call. The message has the figures.
func (b *claudeBook) start(session string, v any) {
	id := normalizerstest.Member[string](v, "event", "message", "id")
	if id == "" {
		return
	}
	start := maps.Clone(v.(map[string]any))
	start["message"] = map[string]any{"id": id, "usage": map[string]any{}}
	b.message(session, start)
}

// message counts what a message states about its call beyond earlier statements.
func (b *claudeBook) message(session string, v any) {
	if _, ok := normalizerstest.Member[any](v, "message", "usage").(map[string]any); !ok {
		return
	}
	copied := normalizerstest.Member[string](v, "forkedFrom", "sessionId")
	elsewhere := copied != "" && copied != session
	main := normalizerstest.Member[string](v, "agentId") == "" && normalizerstest.Member[string](v, "parent_tool_use_id") == "" && !normalizerstest.Member[bool](v, "isSidechain")
	call := b.call(v, elsewhere || !main)
	b.advised(call, v, elsewhere)
	before := call.figures
	call.figures = highest(before, claudeUsage(v))
	more := above(call.figures, before)
	ended := normalizerstest.Member[any](v, "message", "stop_reason") != nil
	call.hour += more.CacheWrite1h
	switch stream := normalizerstest.Member[string](v, "sessionId") == ""; {
	case elsewhere:
		b.settled.Add(more)
	case call.outside:
	case call.run == 0 && stream && main:
		call.run, b.named = b.run, true
		b.alone = above(b.alone, before)
		b.used.Add(call.figures)
		if ended {
			b.whole.Add(call.figures)
		}
	case call.run == b.run:
		b.used.Add(more)
		if ended && stream && main {
			b.whole.Add(more)
		}
	case call.run == 0:
		b.alone.Add(above(more, b.settle(more, &b.unseen)))
	default:
		b.settle(more, &b.ahead)
	}
}

// advised counts the steps of an advisor, which the figures of the message are without.
func (b *claudeBook) advised(call *claudeCall, v any, elsewhere bool) {
	for i, step := range normalizerstest.Member[[]any](v, "message", "usage", "iterations") {
		if normalizerstest.Member[string](step, "type") != "advisor_message" {
			continue
		}
		if call.advice == nil {
			call.advice = make(map[int]*claudeCall)
		}
		if call.advice[i] == nil {
			call.advice[i] = &claudeCall{}
		}
		is := call.advice[i]
		now := highest(is.figures, claudeUsageOf(step))
		more := above(now, is.figures)
		is.figures = now
		is.hour += more.CacheWrite1h
		if elsewhere {
			b.settled.Add(more)
		}
	}
}

// settle returns which figures of a call a result has already stated, and removes them from the pool of the result.
func (b *claudeBook) settle(more normalizerstest.Figures, pool *normalizerstest.Figures) normalizerstest.Figures {
	stated := atMost(more, *pool)
	*pool = above(*pool, stated)
	b.settled.Add(stated)
	return stated
}

// highest returns the higher of two figures, field by field.
func highest(f, g normalizerstest.Figures) normalizerstest.Figures {
	return normalizerstest.Figures{
		Input: max(f.Input, g.Input), Output: max(f.Output, g.Output), Cached: max(f.Cached, g.Cached),
		Thinking: max(f.Thinking, g.Thinking), CacheWrite: max(f.CacheWrite, g.CacheWrite),
		CacheWrite1h: max(f.CacheWrite1h, g.CacheWrite1h), WebSearches: max(f.WebSearches, g.WebSearches), Cost: max(f.Cost, g.Cost),
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
		for _, of := range append(slices.Collect(maps.Values(c.advice)), c) {
			stated := of.figures
			stated.CacheWrite1h = of.hour
			sum.Add(stated)
		}
	}
	sum.Input -= b.settled.Input
	sum.Output -= b.settled.Output
	sum.Cached -= b.settled.Cached
	sum.CacheWrite -= b.settled.CacheWrite
	sum.Thinking -= b.settled.Thinking
	sum.CacheWrite1h -= b.settled.CacheWrite1h
	sum.WebSearches -= b.settled.WebSearches
	sum.Cost -= b.settled.Cost
	sum.UsageInput, sum.CacheRead, sum.UsageReasoning = sum.Input, sum.Cached, sum.Thinking
	sum.UsageOutput = sum.Output - sum.Thinking
	sum.Total = sum.Input + sum.CacheWrite + sum.CacheRead + sum.Output
	return sum
}
