package geminitest

import (
	"encoding/json"
	"fmt"

	"tributary/normalizers/normalizerstest"
)

// ledger has for every session the last figures of each message, the figures of runs of the stream, and figures in a
// rewritten history of messages that the session did not have (README.md, Tokens and Speech).
type ledger map[string]*geminiBill

type geminiBill struct {
	seen  map[string]bool
	last  map[string]normalizerstest.Figures
	other map[string]normalizerstest.Figures // of messages copied from other sessions
	runs  int
}

// Add implements [normalizerstest.Ledger].
func (l ledger) Add(session string, record []byte) {
	b := l[session]
	if b == nil {
		b = &geminiBill{seen: make(map[string]bool), last: make(map[string]normalizerstest.Figures), other: make(map[string]normalizerstest.Figures)}
		l[session] = b
	}
	v := normalizerstest.Parse(record)
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
		b.raise(id, f)
		if copied {
			b.other[id] = b.last[id]
		}
	}
	if kind := normalizerstest.Member[string](v, "type"); kind == "init" || kind == "" && normalizerstest.Member[any](v, "stats") != nil {
		b.runs++
	}
	if stats := normalizerstest.Member[any](v, "stats"); stats != nil {
		number := func(v any, name string) int64 {
			n, _ := normalizerstest.Member[json.Number](v, name).Int64()
			return n
		}
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
		b.raise(fmt.Sprint("run ", b.runs), f)
	}
}

// raise keeps the highest figures.
func (b *geminiBill) raise(key string, f normalizerstest.Figures) {
	was := b.last[key]
	b.last[key] = geminiParted(normalizerstest.Figures{
		Input: max(was.Input, f.Input), Output: max(was.Output, f.Output), Cached: max(was.Cached, f.Cached),
		Thinking: max(was.Thinking, f.Thinking), Tool: max(was.Tool, f.Tool),
	})
}

// Sums implements [normalizerstest.Ledger].
func (l ledger) Sums(session string) normalizerstest.Figures {
	var sum normalizerstest.Figures
	if l[session] == nil {
		return sum
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
