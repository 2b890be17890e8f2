package geminitest

import (
	"fmt"

	"tributary/normalizers/normalizerstest"
)

// ledger has for every session the last figures of each message, the figures of runs of the stream, and figures in a
// rewritten history of messages that the session did not have (README.md, Tokens).
type ledger map[string]*geminiBill

type geminiBill struct {
	seen  map[string]bool
	last  map[string]normalizerstest.Figures
	other map[string]normalizerstest.Figures // of messages copied from other sessions
	runs  int

	stated   [2][5]int64 // by the log, and by the telemetry: input without cache, cache, output, thoughts, tools
	billed   [5]int64    // of each the higher one
	sum      normalizerstest.Figures
	exported bool
	cached   map[string]int64 // cache reads that are billed, by message
}

// Add implements [normalizerstest.Ledger].
func (l ledger) Add(session string, record []byte) {
	b := l[session]
	if b == nil {
		b = &geminiBill{seen: make(map[string]bool), last: make(map[string]normalizerstest.Figures), other: make(map[string]normalizerstest.Figures), cached: make(map[string]int64)}
		l[session] = b
	}
	v := normalizerstest.Parse(record)
	if a := normalizerstest.ExportedAttributes(v); a != nil {
		b.exportedTokens(session, a)
		return
	}
	messages, history := geminiMessages(v)
	for i, m := range messages {
		id := normalizerstest.Member[string](m, "id")
		copied := history && !b.seen[id]
		b.seen[id] = true
		if geminiKind(m) != "gemini" {
			continue
		}
		f := geminiFigures(m)
		if id == "" {
			id = fmt.Sprint("@", len(b.last), ".", i) // counts each time
		}
		b.raise(id, f, copied)
		if copied {
			b.other[id] = b.last[id]
		}
	}
	if kind := normalizerstest.Member[string](v, "type"); kind == "init" || kind == "" && normalizerstest.Member[any](v, "stats") != nil {
		b.runs++
	}
	if stats := normalizerstest.Member[any](v, "stats"); stats != nil {
		number := func(v any, name string) int64 { return normalizerstest.Count(v, name) }
		f := normalizerstest.Figures{Input: number(stats, "input_tokens"), Output: number(stats, "output_tokens"), Cached: number(stats, "cached")}
		f.Thinking = number(stats, "total_tokens") - f.Input - f.Output
		if models := normalizerstest.Member[map[string]any](stats, "models"); normalizerstest.Member[any](stats, "total_tokens") == nil {
			f = normalizerstest.Figures{}
			for _, m := range models {
				t := normalizerstest.Member[any](m, "tokens")
				f.Input += number(t, "prompt")
				f.Output += number(t, "candidates")
				f.Cached += number(t, "cached")
				f.Thinking += number(t, "thoughts")
				f.Tool += number(t, "tool")
			}
		}
		b.raise(fmt.Sprint("run ", b.runs), f, false)
	}
}

// raise keeps the highest figures.
func (b *geminiBill) raise(key string, f normalizerstest.Figures, copied bool) {
	was := b.last[key]
	defer func() {
		now := b.last[key]
		fromCache := min(now.Cached-b.cached[key], now.Input-was.Input)
		b.cached[key] += fromCache
		if !copied {
			b.bill(0, now.Cached-was.Cached, [5]int64{now.Input - was.Input - fromCache, fromCache, now.Output - was.Output, now.Thinking - was.Thinking, now.Tool - was.Tool})
		}
	}()
	b.last[key] = geminiParted(normalizerstest.Figures{
		Input: max(was.Input, f.Input), Output: max(was.Output, f.Output), Cached: max(was.Cached, f.Cached),
		Thinking: max(was.Thinking, f.Thinking), Tool: max(was.Tool, f.Tool),
	})
}

// exportedTokens counts the tokens of an answer that the telemetry states. Those of a helper are in no log; those of a
// subagent are billed in its own session.
func (b *geminiBill) exportedTokens(session string, a map[string]any) {
	role, own := normalizerstest.Member[string](a, "role"), normalizerstest.Member[string](a, "session.id") != session
	if a["event.name"] != "gemini_cli.api_response" || role == "subagent" && !own {
		return
	}
	b.exported = true
	n := func(name string) int64 { return normalizerstest.ExportedNumber(a, name+"_token_count") }
	cached := min(n("cached_content"), n("input"))
	parts := [5]int64{n("input") - cached, cached, n("output"), n("thoughts"), n("tool")}
	if role == "" || role == "main" || role == "subagent" {
		b.bill(1, cached, parts)
		return
	}
	b.add(cached, parts)
}

// bill counts tokens of a channel: the log, 0, or the telemetry, 1. Of each part the session bills the higher sum.
func (b *geminiBill) bill(channel int, cached int64, parts [5]int64) {
	var left [5]int64
	for i, n := range parts {
		b.stated[channel][i] += n
		now := max(b.stated[0][i], b.stated[1][i])
		left[i], b.billed[i] = now-b.billed[i], now
	}
	if left != parts {
		cached = left[1]
	}
	b.add(cached, left)
}

func (b *geminiBill) add(cached int64, parts [5]int64) {
	b.sum.Add(normalizerstest.Figures{
		Input: parts[0] + parts[1], Cached: cached, Output: parts[2], Thinking: parts[3], Tool: parts[4],
		UsageInput: parts[0] + parts[4], CacheRead: parts[1], UsageOutput: parts[2], UsageReasoning: parts[3],
		Total: parts[0] + parts[1] + parts[2] + parts[3] + parts[4],
	})
}

// Sums implements [normalizerstest.Ledger].
func (l ledger) Sums(session string) normalizerstest.Figures {
	var sum normalizerstest.Figures
	if l[session] == nil {
		return sum
	}
	if l[session].exported {
		return l[session].sum
	}
	for id, f := range l[session].last {
		o := l[session].other[id]
		sum.Add(geminiParted(normalizerstest.Figures{
			Input: f.Input - o.Input, Output: f.Output - o.Output, Cached: f.Cached - o.Cached,
			Thinking: f.Thinking - o.Thinking, Tool: f.Tool - o.Tool,
		}))
	}
	return sum
}
