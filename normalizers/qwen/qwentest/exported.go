package qwentest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"tributary/normalizers/normalizerstest"
)

// Exported returns what Qwen Code would have exported of a session of a file, as the reader of this package understands
// its log: prompts, answers, ends of calls and tokens. A version that states ids of calls in the log exports them: without
// ids it returns nil for such a log.
func Exported(session string, lines []normalizerstest.Line, a normalizerstest.Account, ids bool) (out [][]byte) {
	add := func(name, agent string, attributes object) {
		attributes["event.name"], attributes["event.timestamp"] = "qwen-code."+name, time.Unix(int64(len(out)), 0).UTC().Format(time.RFC3339)
		attributes["session.id"], attributes["response_id"], attributes["prompt_id"] = session, fmt.Sprint("r", len(out)), session+"########0"
		if agent != "" {
			attributes["prompt_id"] = session + "#" + agent + "#0"
		}
		out = append(out, normalizerstest.ExportedLog("qwen-code", "qwen-code", time.Time{}, attributes))
	}
	log := reading(nil).Ledger()
	records, agents, answered := make(map[int]any), make(map[int]string), make(map[string]string)
	args, failed := make(map[string]json.RawMessage), make(map[string]bool)
	for i, line := range lines {
		v := normalizerstest.Parse(line.Data)
		if a.Sessions[i] != session || line.Bad || normalizerstest.ExportedAttributes(v) != nil {
			continue
		}
		if !ids && text(v, "systemPayload", "uiEvent", "call_id") != "" {
			return nil
		}
		records[line.Number], agents[line.Number] = v, a.Threads[i].Agent
		answered[text(v, "uuid")] = text(v, "systemPayload", "uiEvent", "response_text")
		noteCalls(line.Data, args, failed)
		before := log.Sums(session)
		log.Add(session, line.Data)
		more := log.Sums(session)
		more.Add(before.Negative())
		if more == (normalizerstest.Figures{}) {
			continue
		}
		response := object{
			"input_token_count": more.UsageInput + more.CacheRead, "cached_content_token_count": more.CacheRead, "auth_type": "openai",
			"output_token_count": more.Output, "thoughts_token_count": more.UsageReasoning, "model": modelOf(v),
		}
		if more.UsageReasoning > 0 && more.Output == more.UsageOutput { // the thoughts are beside the output
			response["total_token_count"] = more.UsageInput + more.CacheRead + more.Output + more.UsageReasoning
		}
		add("api_response", agents[line.Number], response)
	}
	answers := make(map[string]string) // of messages in pieces
	for _, u := range a.Talk {
		if v := records[u.Line]; u.Session == session && u.Who == "assistant" {
			answers[text(v, "uuid")] += u.Text
		}
	}
	for _, u := range a.Talk {
		v := records[u.Line]
		switch {
		case u.Session != session:
		case u.Who == "human" && u.Text != "":
			prompt := u.Text
			if text(v, "type") == "user" {
				_, prompt, _ = prompts(v)
			}
			add("user_prompt", "", object{"prompt": prompt})
		case u.Who == "assistant" && answers[text(v, "uuid")] != "":
			answer := answered[text(v, "parentUuid")]
			if strings.TrimSpace(answer) == "" {
				answer = answers[text(v, "uuid")]
			}
			add("api_response", agents[u.Line], object{"response_text": answer, "model": text(v, "model")})
			answers[text(v, "uuid")] = ""
		}
	}
	ended := make(map[string]bool)
	for _, r := range a.Results {
		ended[r.ID] = ended[r.ID] || r.Session == session
	}
	open := make(map[string]bool) // calls without an end, by what alone shows the call of an end without its id
	for _, c := range a.Calls {
		open[c.Name+string(args[c.ID])] = open[c.Name+string(args[c.ID])] || c.Session == session && !ended[c.ID] && !ids
	}
	for _, r := range a.Results {
		at := slices.IndexFunc(a.Calls, func(c normalizerstest.ToolUse) bool { return c.Session == session && c.ID == r.ID })
		if r.Session != session || at < 0 || open[a.Calls[at].Name+string(args[r.ID])] {
			continue
		}
		end := object{
			"function_name": a.Calls[at].Name, "function_args": string(args[r.ID]), "success": !failed[r.ID], "decision": "accept", "duration_ms": int64(12),
		}
		if ids {
			end["call_id"] = r.ID
		}
		add("tool_call", "", end)
	}
	return out
}

// noteCalls notes the arguments of the calls of a record, and which results are errors.
func noteCalls(data []byte, args map[string]json.RawMessage, failed map[string]bool) {
	var is struct {
		Message struct {
			Parts []struct {
				FunctionCall struct {
					ID   string
					Args json.RawMessage
				}
				FunctionResponse struct {
					ID       string
					Response struct{ Error any }
				}
			}
		}
	}
	if json.Unmarshal(data, &is) != nil {
		return // a record of another form
	}
	for _, p := range is.Message.Parts {
		if c := p.FunctionCall; c.ID != "" {
			args[c.ID] = c.Args
		}
		if r := p.FunctionResponse; r.ID != "" {
			failed[r.ID] = r.Response.Error != nil
		}
	}
}

// modelOf returns the model that a record states.
func modelOf(v any) string {
	if model := text(v, "systemPayload", "uiEvent", "model"); model != "" {
		return model
	}
	return strings.TrimSpace(text(v, "model"))
}

// export writes what Qwen Code exports.
func (s *script) export() {
	a := normalizerstest.Attributes{
		"session.id": s.Session, "event.timestamp": s.Stamp(), "model": "coder", "response_id": fmt.Sprint("r", len(s.Lines)),
		"prompt_id": s.OneOf(s.Session+"########0", s.Session+"########0", s.Session+"#helper-1#0", "side-query:recall"),
	}
	name := s.OneOf("user_prompt", "api_request", "api_response", "api_response", "tool_call", "tool_call", "api_error", "session.start")
	a["event.name"] = "qwen-code." + name
	switch name {
	case "user_prompt":
		a["prompt_id"] = s.Session + "########0"
		if s.Chance(80) {
			a["prompt"] = s.word()
		}
	case "api_response":
		for _, of := range []string{"input", "output", "cached_content", "thoughts"} {
			a[of+"_token_count"] = int64(s.Figure())
		}
		a["auth_type"] = s.OneOf("openai", "gemini")
		if a["prompt_id"] != "side-query:recall" {
			a["response_text"] = s.OneOf("", "yes", s.word())
		}
		s.Maybe(10, a, object{"subagent_name": "helper"})
	case "tool_call":
		a["function_name"], a["function_args"] = s.OneOf("read_file", "edit", "run_shell_command"), "{\n  \"file_path\": \"a.go\"\n}"
		a["success"], a["decision"], a["duration_ms"] = s.Chance(50), s.OneOf("accept", "reject", "auto_accept"), int64(s.Figure())
		s.Maybe(50, a, object{"call_id": s.AnyCall()})
		s.Maybe(20, a, object{"error.message": "Exit Code: 3"})
	case "api_error":
		a["error.type"], a["error.message"], a["duration_ms"] = "rate_limit", "it broke", int64(s.Figure())
	case "session.start":
		a["event.name"] = name
	}
	s.Lines = append(s.Lines, normalizerstest.ExportedLog("qwen-code", "qwen-code", time.Time{}, a))
}
