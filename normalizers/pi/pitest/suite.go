// Package pitest reads and generates logs of Pi for the tests.
//
// [Suite] is what the tests of all vendors use.
//
// The invariant: the reader and the generator share no code and no table with the normalizer, so that a mistake in
// one of them shows as a difference.
package pitest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Pi to the tests of all vendors.
var Suite = SuiteOf(envelopes.Pi, "pi", Dialect{})

// Dialect is how an agent writes the log of Pi in its own way. Each function may be nil.
type Dialect struct {
	// Entry notes what a record states that Pi does not write; false for another record.
	Entry func(r *normalizerstest.Reader, v any) bool
	// Typed returns who wrote a text under the user's name, as [normalizerstest.Reader.Say] has it, and the text.
	Typed func(message any, body string) (who, said string)
	// Code returns the exit code that a result states beside its text.
	Code func(message any, tool string) *int64
	// Lines adds a line to a generated log.
	Lines func(s *normalizerstest.Script, put func(kind string, members map[string]any))
}

// SuiteOf describes an agent that writes the log of Pi; room is its folder.
func SuiteOf(source envelopes.Source, room string, d Dialect) normalizerstest.Suite {
	reading := normalizerstest.Reading{Session: sessionOf, Read: d.read}
	return normalizerstest.Suite{
		Unknown: []string{
			`{"type":"of_tomorrow","id":"t1","parentId":null,"timestamp":"$TIME","x":1}`,
			`{"type":"message","id":"t2","parentId":"t1","timestamp":"$TIME","message":{"role":"of_tomorrow","content":"x"}}`,
			`42`,
		},
		Source:     source,
		Room:       room,
		Folders:    []string{room},
		Apart:      true,
		StatedOnce: true,
		Lines:      func(t *rapid.T, session string) [][]byte { return lines(t, session, room, d.Lines) },
		Read:       normalizerstest.ReadLines,
		Bad:        normalizerstest.Malformed,
		Ledger:     reading.Ledger,
		Interpret:  reading.Interpret,
	}
}

func sessionOf(record any) string {
	if normalizerstest.Member[string](record, "type") != "session" {
		return ""
	}
	return normalizerstest.Member[string](record, "id")
}

var exitLine = regexp.MustCompile(`^Command exited with code (-?[0-9]+)$`)

// read notes what a record states.
func (d Dialect) read(r *normalizerstest.Reader, v any) {
	at, _ := time.Parse(time.RFC3339, normalizerstest.Member[string](v, "timestamp"))
	if forked, err := time.Parse(time.RFC3339, r.Noted("forked")); err == nil {
		r.Copied = at.Before(forked)
	}
	if d.Entry != nil && d.Entry(r, v) {
		return
	}
	switch normalizerstest.Member[string](v, "type") {
	case "session":
		if normalizerstest.Member[string](v, "parentSession") != "" {
			r.Note("forked", normalizerstest.Member[string](v, "timestamp"))
		}
		return
	case "compaction", "branch_summary":
		use(r, normalizerstest.Member[string](v, "id"), normalizerstest.Member[any](v, "usage"))
		return
	case "message", "message_end":
	default:
		return
	}
	id, m := normalizerstest.Member[string](v, "id"), normalizerstest.Member[any](v, "message")
	switch normalizerstest.Member[string](m, "role") {
	case "user":
		body := textOf(m)
		who, said := "human", body
		if d.Typed != nil {
			who, said = d.Typed(m, body)
		}
		r.Say(who, id, typed(said))
		if list := normalizerstest.Member[[]any](m, "content"); body == "" && strings.Contains(fmt.Sprint(list), "type:image") {
			r.Attach(id)
		}
	case "assistant":
		for i, b := range normalizerstest.Member[[]any](m, "content") {
			switch normalizerstest.Member[string](b, "type") {
			case "text":
				r.Say("assistant", fmt.Sprint(id, " ", i), normalizerstest.Member[string](b, "text"))
			case "toolCall", "toolUse":
				r.Call(normalizerstest.Member[string](b, "id"), normalizerstest.Member[string](b, "name"))
			}
		}
		use(r, id, normalizerstest.Member[any](m, "usage"))
	case "toolResult":
		call := normalizerstest.Member[string](m, "toolCallId")
		tool := cmp.Or(r.Tool(call), normalizerstest.Member[string](m, "toolName"))
		parts := strings.Split(strings.TrimRight(textOf(m), " \t\r\n"), "\n")
		var code *int64
		if found := exitLine.FindStringSubmatch(parts[len(parts)-1]); found != nil && (tool == "bash" || tool == "exec") && normalizerstest.Member[bool](m, "isError") {
			n, _ := strconv.ParseInt(found[1], 10, 64)
			code = &n
		}
		if d.Code != nil {
			if stated := d.Code(m, tool); stated != nil {
				code = stated
			}
		}
		r.Result(call, code, "Command exited with code")
		use(r, id, normalizerstest.Member[any](m, "usage"))
	}
}

// typed cuts a skill or a file before a prompt; what has no rest was not typed.
func typed(body string) string {
	for _, name := range []string{"skill", "file"} {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(body), "<"+name+" name="); ok {
			if _, after, ok := strings.Cut(rest, "</"+name+">"); ok {
				return typed(after)
			}
		}
	}
	return body
}

// textOf returns the texts of a message.
func textOf(m any) string {
	if s := normalizerstest.Member[string](m, "content"); s != "" {
		return s
	}
	var texts []string
	for _, b := range normalizerstest.Member[[]any](m, "content") {
		if normalizerstest.Member[string](b, "type") == "text" {
			texts = append(texts, normalizerstest.Member[string](b, "text"))
		}
	}
	return strings.Join(texts, "\n")
}

// use notes the tokens of a message.
func use(r *normalizerstest.Reader, id string, u any) {
	count := func(name string) int64 {
		n, _ := normalizerstest.Member[json.Number](u, name).Int64()
		return n
	}
	dollars, err := normalizerstest.Member[json.Number](u, "cost", "total").Float64()
	if err != nil {
		dollars, _ = normalizerstest.Member[json.Number](u, "costUSD").Float64()
	}
	r.Use(id, normalizerstest.Tokens{
		Input: count("input"), CacheRead: count("cacheRead"), CacheWrite: count("cacheWrite"), Output: count("output"),
		Reasoning: min(count("reasoning"), count("output")), ReasoningInOutput: true, CacheWrite1h: min(count("cacheWrite1h"), count("cacheWrite")),
		Cost: normalizerstest.CostOf(dollars),
	})
}
