// Package qwentest reads and generates logs of Qwen Code for the tests.
//
// [Suite] is what the tests of all vendors use.
//
// The invariant: the reader and the generator share no code and no table with the normalizer, so that a mistake in
// one of them shows as a difference.
package qwentest

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Qwen Code to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"type":"of_tomorrow","uuid":"t1","parentUuid":null,"sessionId":"$SESSION","timestamp":"$TIME","systemPayload":{}}`,
		`{"type":"system","subtype":"of_tomorrow","uuid":"t2","sessionId":"$SESSION","timestamp":"$TIME","systemPayload":{"text":"x"}}`,
		`42`,
		`{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"qwen-code"}}]},"scopeLogs":[{"logRecords":[{"attributes":[{"key":"event.name","value":{"stringValue":"qwen-code.of_tomorrow"}},{"key":"session.id","value":{"stringValue":"$SESSION"}}]}]}]}]}`,
	},
	Source:    envelopes.Qwen,
	Room:      "qwen",
	Folders:   []string{"qwen"},
	Others:    []string{"meta.json"},
	Lines:     lines,
	Read:      normalizerstest.ReadLines,
	Bad:       normalizerstest.Malformed,
	Ledger:    newLedger,
	Interpret: interpret,
	VCS: normalizerstest.LastVCS(func(record any, v *envelopes.VCS) {
		if branch := text(record, "gitBranch"); branch != "" {
			v.Branch = normalizerstest.StatedBranch(branch)
		}
	}),
}

var (
	text   = normalizerstest.Member[string]
	flag   = normalizerstest.Member[bool]
	list   = normalizerstest.Member[[]any]
	member = normalizerstest.Member[any]
)

// read notes what a record of the log states, to c, too.
func read(r *normalizerstest.Reader, v any, c *channels) {
	id, subtype := text(v, "uuid"), text(v, "subtype")
	r.Agent = text(v, "agentId")
	r.Copied = member(v, "forkedFrom") != nil
	parts := list(v, "message", "parts")
	switch text(v, "type") {
	case "user":
		readPrompt(r, v, id, subtype, c)
	case "assistant":
		var whole strings.Builder
		for i, p := range parts {
			if body := text(p, "text"); body != "" && !flag(p, "thought") {
				r.Say("assistant", fmt.Sprint(id, parts, i), body)
				whole.WriteString(body)
			}
			if f := member(p, "functionCall"); f != nil {
				c.call(r, text(f, "id"), text(f, "name"), member(f, "args"))
			}
		}
		c.answer(r, fmt.Sprint(id, parts), text(v, "parentUuid"), whole.String())
		if u := member(v, "usageMetadata"); u != nil {
			use(r, "message", id, text(v, "parentUuid"), counts(u, "promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount"), true)
		}
	case "tool_result":
		for _, p := range parts {
			if f := member(p, "functionResponse"); f != nil && r.Noted("replaces "+text(f, "id")) == "" {
				readResult(r, text(f, "id"), text(f, "name"), text(f, "response", "output")+"\n"+text(f, "response", "error"))
			}
		}
	case "system":
		readSystem(r, member(v, "systemPayload"), id, subtype, c)
	}
}

// files matches the contents of the files that a prompt names.
var files = regexp.MustCompile(`(?s)(^|\n)--- Content from referenced files ---.*`)

// readPrompt notes a prompt.
func readPrompt(r *normalizerstest.Reader, v any, id, subtype string, c *channels) {
	prompt, sent, whole := prompts(v)
	switch subtype {
	case "", "mid_turn_user_message", "realtime_message":
	case "notification", "cron", "goal_runtime":
		c.state(r, id, "human", cmp.Or(strings.TrimSpace(whole), text(v, "systemPayload", "displayText")))
		return
	default:
		return
	}
	from := text(v, "provenance")
	attached := slices.ContainsFunc(list(v, "message", "parts"), func(p any) bool { return member(p, "inlineData") != nil })
	switch isBlank := strings.TrimSpace(prompt) == ""; {
	case text(v, "externalInputKind") != "" || from == "system" || strings.HasPrefix(from, "goal_"):
	case r.Agent != "":
		r.Say("agent", id, whole)
	case prompt != "" && prompt == r.Noted("slash"):
	case isBlank && strings.TrimSpace(whole) == "" && attached:
		r.Attach(id)
		c.prompt(r, id, "")
	case isBlank:
		c.state(r, id, "human", sent)
	default:
		r.Say("human", id, prompt)
		r.Note("slash", "")
		c.prompt(r, id, sent)
	}
}

// prompts returns a prompt as it is shown, as it is sent, and with what machines add.
func prompts(v any) (prompt, sent, whole string) {
	var all, human []string
	for _, p := range list(v, "message", "parts") {
		if body, ok := member(p, "text").(string); ok {
			all = append(all, body)
			if !strings.HasPrefix(strings.TrimSpace(body), "<qwen:user-prompt-submit-context>") && !strings.HasPrefix(strings.TrimSpace(body), "<system-reminder>") {
				human = append(human, body)
			}
		}
	}
	prompt = text(v, "systemPayload", "displayText")
	sent = files.ReplaceAllString(strings.Join(human, "\n"), "")
	if strings.TrimSpace(prompt) == "" {
		prompt = sent
	}
	if strings.TrimSpace(sent) == "" {
		sent = files.ReplaceAllString(prompt, "")
	}
	return prompt, sent, strings.Join(all, "\n")
}

var exitLine = regexp.MustCompile(`(?m)^Exit Code: (-?[0-9]+|\(none\))`)

// readResult notes the result of a call: its output, or the message of the telemetry that ends it.
func readResult(r *normalizerstest.Reader, id, tool, output string) {
	var code *int64
	if cmp.Or(r.Tool(id), tool) == "run_shell_command" {
		code = normalizerstest.CodeIn(exitLine, output)
	}
	r.Result(id, code, "Exit Code:")
}

// readSystem notes what a record of the program states.
func readSystem(r *normalizerstest.Reader, p any, id, subtype string, c *channels) {
	switch subtype {
	case "slash_command":
		if command := text(p, "rawCommand"); text(p, "phase") == "invocation" && !flag(p, "hiddenInvocation") {
			r.Say("human", id, command)
			c.prompt(r, id, command)
			if flag(p, "sentToModel") {
				r.Note("slash", command)
			}
		}
	case "ui_telemetry":
		e := member(p, "uiEvent")
		r.Agent = cmp.Or(r.Agent, text(e, "subagent_id"))
		if prompt := strings.Split(text(e, "prompt_id"), "#"); len(prompt) == 3 {
			r.Agent = cmp.Or(r.Agent, prompt[1])
		}
		r.Agent = cmp.Or(r.Agent, text(e, "subagent_name"))
		switch text(e, "event.name") {
		case "qwen-code.tool_call":
			c.forget(r, text(e, "call_id"))
		case "qwen-code.api_response":
			r.Note("exported "+id, strings.TrimSpace(text(e, "response_text")))
			use(r, "telemetry", id, "", counts(e, "input_token_count", "cached_content_token_count", "output_token_count", "thoughts_token_count", "total_token_count"), strings.Contains("openai qwen-oauth", text(e, "auth_type")))
		}
	}
}

// counts reads the members of these names.
func counts(v any, names ...string) (n [5]int64) {
	for i, name := range names {
		n[i] = normalizerstest.Count(v, name)
	}
	return n
}

// use notes the tokens of an API call, which its telemetry and its message may both state. For each side and each set
// of counts the notes have the ids of the unmatched statements.
func use(r *normalizerstest.Reader, side, id, parent string, n [5]int64, inside bool) {
	if r.Copied {
		return
	}
	if n[4] > 0 {
		inside = n[4] != n[0]+n[2]+n[3]
	}
	same := fmt.Sprint(n[:4])
	other := map[string]string{"message": "telemetry", "telemetry": "message"}[side]
	take := func(same string) bool {
		left := strings.Fields(r.Noted(other + same))
		if len(left) > 0 {
			r.Note(other+same, strings.Join(left[1:], " "))
		}
		return len(left) > 0
	}
	switch {
	case r.Noted("is "+id) == "mirror":
		return
	case r.Noted("is "+id) == "call":
	case take(same):
		r.Note("is "+id, "mirror")
		return
	case side == "message" && strings.HasPrefix(r.Noted("response "+parent), fmt.Sprintf("[%d %d ", n[0], n[1])) && take(r.Noted("response "+parent)):
		r.Note("is "+id, "mirror")
		id = parent
	default:
		r.Note("is "+id, "call")
		r.Note(side+same, r.Noted(side+same)+" "+id)
		if side == "telemetry" && r.Agent == "" {
			r.Note("response "+id, same)
		}
	}
	r.Use(id, normalizerstest.Tokens{
		Input: n[0], CacheRead: min(n[1], n[0]), CacheInInput: true,
		Output: n[2], Reasoning: reasoning(n, inside), ReasoningInOutput: inside,
	})
}

// reasoning returns the thoughts, which are at most the output if that includes them.
func reasoning(n [5]int64, inside bool) int64 {
	if inside {
		return min(n[3], n[2])
	}
	return n[3]
}
