// Package goosetest reads and generates records of Goose for the tests.
//
// [Suite] is what the tests of all vendors use.
//
// The invariant: the reader and the generator share no code and no table with the normalizer, so that a mistake in
// one of them shows as a difference.
package goosetest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Goose to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"table":"messages","row":{"id":900,"session_id":"$SESSION","role":"of_tomorrow","content_json":[],"created_timestamp":"$MILLIS"}}`,
		`{"table":"messages","row":{"id":901,"message_id":"msg_t","session_id":"$SESSION","role":"user","content_json":[{"type":"of_tomorrow"}],"created_timestamp":"$MILLIS"}}`,
		`42`,
	},
	Source:     envelopes.Goose,
	Room:       "goose",
	StatedOnce: true,
	Lines:      lines,
	Read:       normalizerstest.ReadLines,
	Bad:        normalizerstest.Malformed,
	Ledger:     reading.Ledger,
	Interpret:  reading.Interpret,
}

var reading = normalizerstest.Reading{Session: sessionOf, Read: read}

func text(v any, names ...string) string { return normalizerstest.Member[string](v, names...) }

func number(v any, names ...string) int64 { return normalizerstest.Count(v, names...) }

// sessionOf returns the session that a row states.
func sessionOf(v any) string {
	switch {
	case text(v, "table") == "sessions":
		return text(v, "row", "id")
	case text(v, "table") == "messages":
		return text(v, "row", "session_id")
	default:
		return ""
	}
}

// read notes what a record states.
func read(r *normalizerstest.Reader, v any) {
	row := normalizerstest.Member[map[string]any](v, "row")
	switch {
	case text(v, "table") == "sessions":
		session(r, row)
	case row != nil:
		readMessage(r, text(row, "message_id"), text(row, "role"), number(row, "created_timestamp"), row["content_json"], row["metadata_json"])
	case text(v, "working_dir") != "":
		session(r, v)
	default:
		line(r, v)
	}
}

// line reads a message of a log.
func line(r *normalizerstest.Reader, v any) {
	readMessage(r, text(v, "id"), text(v, "role"), number(v, "created"), normalizerstest.Member[any](v, "content"), normalizerstest.Member[any](v, "metadata"))
}

func session(r *normalizerstest.Reader, v any) {
	if at, err := time.Parse("2006-01-02 15:04:05", text(v, "created_at")); err == nil {
		r.Note("begun", strconv.FormatInt(at.Unix(), 10))
	}
	if text(v, "session_type") == "sub_agent" {
		r.Note("child", "yes")
	}
	if r.Noted("child") != "" {
		r.Agent = r.Session
	}
	total(r, v)
}

// total notes the tokens of a session, if no message has its own: a version that states those has a sum of the cache.
func total(r *normalizerstest.Reader, v any) {
	has := func(name string) bool { return normalizerstest.Member[json.Number](v, name) != "" }
	isTotal := (has("accumulated_input_tokens") || has("accumulated_output_tokens")) && !has("accumulated_cache_read_tokens")
	r.Note("total", strconv.FormatBool(isTotal))
	if isTotal {
		r.Use("the session", normalizerstest.Tokens{Input: number(v, "accumulated_input_tokens"), Output: number(v, "accumulated_output_tokens")})
	}
}

// readMessage notes the blocks of a message.
func readMessage(r *normalizerstest.Reader, id, role string, at int64, content, meta any) {
	if at > 1e10 {
		at /= 1000
	}
	if begun, err := strconv.ParseInt(r.Noted("begun"), 10, 64); err == nil {
		r.Copied = at < begun
	}
	if r.Noted("child") != "" {
		r.Agent = r.Session
	}
	if role != "user" && role != "assistant" {
		return
	}
	if id != "" && !strings.HasPrefix(id, "msg_") {
		id = fmt.Sprint(id, "-", at)
	}
	visible, stated := normalizerstest.Member[any](meta, "userVisible").(bool)
	hidden := stated && !visible
	list, _ := content.([]any)
	hasEvent, attached := false, false
	for i, b := range list {
		switch text(b, "type") {
		case "text":
			audience := normalizerstest.Member[[]any](b, "annotations", "audience")
			forModel := len(audience) > 0
			for _, a := range audience {
				forModel = forModel && a != "user"
			}
			hasEvent = hasEvent || strings.TrimSpace(text(b, "text")) != ""
			key := ""
			if id != "" {
				key = fmt.Sprint(id, " ", i)
			}
			switch {
			case hidden, role == "user" && forModel:
			case role == "assistant":
				r.Say("assistant", key, text(b, "text"))
			case r.Agent != "":
				r.Say("agent", key, text(b, "text"))
			default:
				r.Say("human", key, text(b, "text"))
			}
		case "image", "document":
			attached = attached || role == "user"
		case "toolRequest":
			r.Call(text(b, "id"), text(b, "toolCall", "value", "name"))
			hasEvent = true
		case "toolResponse":
			var code *int64
			exit, ok := normalizerstest.Member[any](b, "toolResult", "value", "structuredContent", "exit_code").(json.Number)
			if tool := r.Tool(text(b, "id")); ok && (tool == "shell" || tool == "developer__shell") {
				n, _ := exit.Int64()
				code = &n
			}
			r.Result(text(b, "id"), code, "exit_code")
			hasEvent = true
		default:
			hasEvent = hasEvent || role == "user"
		}
	}
	if attached && !hasEvent {
		r.Attach(id)
	}
	if r.Noted("total") != "true" {
		use(r, id, normalizerstest.Member[any](meta, "usage"))
	}
}

// use notes the tokens of a message. Where the total has no part for the cache, the input includes it.
func use(r *normalizerstest.Reader, id string, u any) {
	t := normalizerstest.Tokens{
		Input: number(u, "inputTokens"), Output: number(u, "outputTokens"),
		CacheRead: number(u, "cacheReadTokens"), CacheWrite: number(u, "cacheWriteTokens"),
	}
	dollars, _ := normalizerstest.Member[json.Number](u, "cost").Float64()
	t.Cost = normalizerstest.CostOf(dollars)
	t.CacheInInput = number(u, "totalTokens") == t.Input+t.Output && t.CacheRead+t.CacheWrite <= t.Input
	r.Use(id, t)
}
