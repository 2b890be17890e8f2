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
	// Unwrap returns the entry in a record, and the session that is stated beside it; empty for none.
	Unwrap func(record any) (entry any, session string)
	// Entry notes what a record states that Pi does not write; false for another record.
	Entry func(r *normalizerstest.Reader, v any) bool
	// Typed returns who wrote a text under the user's name, as [normalizerstest.Reader.Say] has it, and the text.
	Typed func(message any, body string) (who, prompt string)
	// Code returns the exit code that a result states beside its text.
	Code func(message any, tool string) *int64
	// Lines adds a line to a generated log.
	Lines func(s *normalizerstest.Script, put func(kind string, members map[string]any))
}

// SuiteOf describes an agent that writes the log of Pi; room is its folder.
func SuiteOf(source envelopes.Source, room string, d Dialect) normalizerstest.Suite {
	if d.Unwrap == nil {
		d.Unwrap = func(record any) (any, string) { return record, "" }
	}
	reading := normalizerstest.Reading{
		Session: func(record any) string {
			entry, session := d.Unwrap(record)
			return cmp.Or(session, sessionOf(entry))
		},
		Read: func(r *normalizerstest.Reader, record any) {
			entry, _ := d.Unwrap(record)
			d.read(r, entry)
		},
	}
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
	if text(record, "type") != "session" {
		return ""
	}
	return text(record, "id")
}

var exitLine = regexp.MustCompile(`^Command exited with code (-?[0-9]+)$`)

var (
	text   = normalizerstest.Member[string]
	flag   = normalizerstest.Member[bool]
	list   = normalizerstest.Member[[]any]
	member = normalizerstest.Member[any]
)

// read notes what a record states.
func (d Dialect) read(r *normalizerstest.Reader, v any) {
	if forked, err := time.Parse(time.RFC3339, r.Noted("forked")); err == nil {
		at, err := time.Parse(time.RFC3339, text(v, "timestamp"))
		r.Copied = err == nil && at.Before(forked) // what a run prints has no time, and is of the run itself
	}
	if d.Entry != nil && d.Entry(r, v) {
		return
	}
	switch text(v, "type") {
	case "session":
		if text(v, "parentSession") != "" {
			r.Note("forked", text(v, "timestamp"))
		}
		return
	case "entry_appended": // the entry is in the log, too
		if text(v, "entry", "type") != "entry_appended" {
			d.read(r, member(v, "entry"))
		}
		return
	case "compaction":
		compaction(r, "log", text(v, "id"), v)
		return
	case "compaction_end":
		compaction(r, "run", "", member(v, "result"))
		return
	case "branch_summary", "usage":
		use(r, text(v, "id"), member(v, "usage"))
		return
	case "message", "message_end":
	default:
		return
	}
	id, m := text(v, "id"), member(v, "message")
	switch text(m, "role") {
	case "user":
		body := textOf(m)
		who, prompt := "human", body
		if d.Typed != nil {
			who, prompt = d.Typed(m, body)
		}
		r.Say(who, id, typed(prompt))
		if body == "" && strings.Contains(fmt.Sprint(list(m, "content")), "type:image") {
			r.Attach(id)
		}
	case "assistant":
		for i, b := range list(m, "content") {
			switch text(b, "type") {
			case "text":
				r.Say("assistant", fmt.Sprint(id, " ", i), text(b, "text"))
			case "toolCall", "toolUse":
				r.Call(text(b, "id"), text(b, "name"))
			}
		}
		use(r, id, member(m, "usage"))
	case "toolResult":
		call := text(m, "toolCallId")
		tool := cmp.Or(r.Tool(call), text(m, "toolName"))
		parts := strings.Split(strings.TrimRight(textOf(m), " \t\r\n"), "\n")
		var code *int64
		if (tool == "bash" || tool == "exec") && flag(m, "isError") {
			code = normalizerstest.CodeIn(exitLine, parts[len(parts)-1])
		}
		if d.Code != nil {
			if stated := d.Code(m, tool); stated != nil {
				code = stated
			}
		}
		r.Result(call, code, "Command exited with code")
		use(r, id, member(m, "usage"))
	}
}

// compaction notes the tokens of a compaction, which the log and a run may state: the first that does counts. A run
// states no id.
func compaction(r *normalizerstest.Reader, by, id string, v any) {
	is := fmt.Sprint("compaction ", normalizerstest.Count(v, "tokensBefore"), " ", text(v, "summary"))
	if !r.Copied {
		if first := r.Noted(is); first == "" {
			r.Note(is, by)
		} else if first != by {
			return
		}
	}
	if by == "run" {
		id = is
	}
	use(r, id, member(v, "usage"))
}

// typed returns a prompt without the skills and files before it; a command, if Pi has put its skill in its place.
func typed(body string) string {
	if named, ok := strings.CutPrefix(body, `<skill name="`); ok {
		name, placed, _ := strings.Cut(named, `" location="`)
		_, text, whole := strings.Cut(placed, "\">\n")
		for end := "\n</skill>"; whole; {
			_, text, whole = strings.Cut(text, end)
			if args := strings.TrimPrefix(text, "\n\n"); whole && (text == "" || args != text && args != "") {
				return strings.TrimSpace("/skill:" + name + " " + args)
			}
		}
	}
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
func textOf(m any) string { return normalizerstest.Texts(member(m, "content")) }

// use notes the tokens of a message.
func use(r *normalizerstest.Reader, id string, u any) {
	count := func(name string) int64 { return normalizerstest.Count(u, name) }
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
