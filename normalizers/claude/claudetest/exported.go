package claudetest

import (
	"encoding/json"
	"strconv"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// ExportedLog returns what Claude Code would have exported of a session of a file: each prompt, request, answer and
// result. Requests without an id or tokens, prompts without an id of their own or with a text that was queued, messages
// that the program itself wrote, and history of another session are not exported.
func ExportedLog(session string, lines []normalizerstest.Line, a normalizerstest.Account) [][]byte {
	w := &exporter{details: true, free: true, requests: map[string]*apiRequest{}, session: session}
	prompts, queued := make(map[int]string), make(map[string]bool) // by line, by text
	for _, u := range a.Talk {
		if u.Session == session && u.Who == "human" {
			prompts[u.Line] = u.Text
		}
	}
	results := make(map[string]bool)
	last := make(map[string]int) // index of the last record of a request
	records := make([]any, len(lines))
	times := make(map[string]int) // how many records have an id
	for i, line := range lines {
		if v := normalizerstest.Parse(line.Data); a.Sessions[i] == session && !line.Bad && isOfTranscript(v) {
			records[i] = v
			times[normalizerstest.Member[string](v, "uuid")]++
			queued[strings.TrimSpace(normalizerstest.Member[string](v, "content"))] = true
			if id := requestOf(v); id != "" {
				last[id] = i
			}
		}
	}
	for i, v := range records {
		if v == nil {
			continue
		}
		w.prompt = normalizerstest.Member[string](v, "promptId")
		uuid := normalizerstest.Member[string](v, "uuid")
		if text, is := prompts[lines[i].Number]; is && times[uuid] == 1 && !queued[text] {
			w.export("user_prompt", "", map[string]any{
				"prompt": text, "prompt_length": strconv.FormatInt(units(text), 10), "message.uuid": uuid,
			})
		}
		for _, b := range normalizerstest.Member[[]any](v, "message", "content") {
			switch normalizerstest.Member[string](b, "type") {
			case "text":
				if text := normalizerstest.Member[string](b, "text"); strings.TrimSpace(text) != "" {
					w.request(v).texts = append(w.request(v).texts, text)
				}
			case "tool_use":
				w.request(v).calls = append(w.request(v).calls, b)
			case "tool_result":
				if id := normalizerstest.Member[string](b, "tool_use_id"); !results[id] && id != "" {
					results[id] = true
					w.outcome(v, b)
				}
			}
		}
		if id := requestOf(v); id != "" && last[id] == i {
			w.endRequest(v)
		}
	}
	return w.exports
}

// isOfTranscript reports whether a record is a line of a transcript that states its own session.
func isOfTranscript(v any) bool {
	return normalizerstest.Member[any](v, "forkedFrom") == nil && normalizerstest.Member[string](v, "sessionId") != ""
}

// requestOf returns the id of the request of a record; empty for one that states no tokens.
func requestOf(v any) string {
	if normalizerstest.Member[string](v, "message", "model") == "<synthetic>" || normalizerstest.Member[any](v, "message", "usage") == nil {
		return ""
	}
	return normalizerstest.Member[string](v, "requestId")
}

// outcome exports a result whose call the transcript has.
func (w *exporter) outcome(v, result any) {
	id := normalizerstest.Member[string](result, "tool_use_id")
	var call any
	for _, r := range w.requests {
		for _, b := range r.calls {
			if normalizerstest.Member[string](b, "id") == id {
				call = b
			}
		}
	}
	if call == nil {
		return
	}
	input, err := json.Marshal(normalizerstest.Member[any](call, "input"))
	if err != nil {
		panic(err)
	}
	outcome := map[string]any{
		"tool_name": normalizerstest.Member[string](call, "name"), "tool_use_id": id, "success": "true", "duration_ms": "51", "tool_input": string(input),
	}
	if normalizerstest.Member[bool](result, "is_error") {
		outcome["success"], outcome["error_type"] = "false", "ShellError"
	}
	w.export("tool_result", strings.TrimSpace(normalizerstest.Member[string](v, "agentId")), outcome)
}
