package normalizers

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// What Gemini CLI writes to standard output when it is run by a program: a stream of
// lines (--output-format stream-json), or one document (--output-format json).

// geminiStream are the members of both.
type geminiStream struct {
	Delta      flag                      `json:"delta"`
	ToolName   text                      `json:"tool_name"`
	ToolID     text                      `json:"tool_id"`
	Parameters jsontext.Value            `json:"parameters"`
	Status     text                      `json:"status"`
	Output     jsontext.Value            `json:"output"`
	Error      jsontext.Value            `json:"error"`
	Severity   text                      `json:"severity"`
	Stats      object[geminiStreamStats] `json:"stats"`
	Response   text                      `json:"response"`
}

// geminiStreamStats are the figures of a run: of the stream, where reasoning is what the
// total has above the rest, or by model.
type geminiStreamStats struct {
	Total  number                                    `json:"total_tokens"`
	Input  number                                    `json:"input_tokens"`
	Output number                                    `json:"output_tokens"`
	Cached number                                    `json:"cached"`
	Models object[map[string]object[geminiModelUse]] `json:"models"`
}

type geminiModelUse struct {
	Tokens object[geminiModelTokens] `json:"tokens"`
}

type geminiModelTokens struct {
	Prompt     number `json:"prompt"`
	Candidates number `json:"candidates"`
	Cached     number `json:"cached"`
	Thoughts   number `json:"thoughts"`
	Tool       number `json:"tool"`
}

// tokens are the figures in the form of a message's.
func (s *geminiStreamStats) tokens() *geminiTokens {
	t := &geminiTokens{Input: s.Input, Output: s.Output, Cached: s.Cached}
	if s.Total.ok {
		t.Thoughts = number{value: max(0, s.Total.value-s.Input.value-s.Output.value), ok: true}
		return t
	}
	for _, m := range s.Models.value {
		v := &m.value.Tokens.value
		for _, f := range []struct {
			to *number
			of number
		}{{&t.Input, v.Prompt}, {&t.Output, v.Candidates}, {&t.Cached, v.Cached}, {&t.Thoughts, v.Thoughts}, {&t.Tool, v.Tool}} {
			*f.to = number{value: f.to.value + f.of.value, ok: f.to.ok || f.of.ok}
		}
	}
	return t
}

// geminiRun is the slot of the bill for a run as a whole.
var geminiRun = fingerprintOf("run")

// isStream reports whether the record is of one of the outputs.
func (r *geminiRecord) isStream() bool {
	switch r.Type {
	case "init":
		return true
	case "message":
		return r.ID == "" && r.Role != ""
	case "tool_use", "tool_result":
		return r.ToolID != ""
	case "error":
		return r.ID == "" && (r.Severity != "" || !r.Content.present)
	case "result":
		return r.ID == ""
	case "":
		return r.ID == "" && r.Role == "" && (r.Stats.ok || r.Response != "")
	default:
		return false
	}
}

// stream maps a line of the stream, or the one document.
func (g *geminiFold) stream() SkipReason {
	if g.Type == "message" && g.Role != "user" {
		return g.speak()
	}
	g.flush()
	switch g.Type {
	case "init":
		g.s.setModel(string(g.Model))
		g.s.apiCalls.put(geminiRun, consumption{})
		g.runtime("", envelopes.Meta, "")
	case "message":
		kind, words := geminiSpeechOf(g.Content.prompt())
		if strings.TrimSpace(words) == "" {
			return SkipEmpty
		}
		g.put("", draftOf(kind, words))
	case "tool_use":
		g.made(g.ToolID, g.ToolName, g.Parameters, "", text(g.s.Model))
	case "tool_result":
		g.outcome()
	case "error":
		if g.Severity == "warning" {
			g.runtime("", envelopes.SystemMessage, g.Message)
			break
		}
		code, _ := problemOf(g.Error)
		g.fail("", string(g.Message), code, string(g.Message))
	case "result":
		g.runtime("", envelopes.SessionSummary, "")
		g.ended()
	default:
		g.s.apiCalls.put(geminiRun, consumption{})
		if strings.TrimSpace(string(g.Response)) != "" {
			g.say(string(g.Response))
		} else {
			g.runtime("", envelopes.Meta, "")
		}
		g.ended()
	}
	return SkipDuplicate
}

// speak joins what the model says in pieces: the text takes the id and the time of its
// last piece. What it says at once stands alone.
func (g *geminiFold) speak() SkipReason {
	words := g.Content.text()
	if !g.Delta {
		if g.s.Gemini.Delta.Words == words {
			g.s.Gemini.Delta = geminiDelta{} // the pieces, told as a whole
		}
		g.flush()
		if strings.TrimSpace(words) == "" {
			return SkipEmpty
		}
		g.say(words)
		return SkipDuplicate
	}
	if joined := g.s.Gemini.Delta.Words + words; fitsDelta(joined) {
		g.s.Gemini.Delta = geminiDelta{From: g.hold(), Words: joined}
		return SkipProgress
	}
	g.flush()
	if fitsDelta(words) {
		g.s.Gemini.Delta = geminiDelta{From: g.hold(), Words: words}
		return SkipProgress
	}
	g.say(words) // too long to be kept
	return SkipDuplicate
}

// fitsDelta reports whether a session may keep a text: in JSON a byte takes at most six.
func fitsDelta(s string) bool {
	return 6*len(s) <= maxGeminiDelta || len(s) <= maxGeminiDelta && len(appendQuote(nil, s)) <= maxGeminiDelta
}

// say emits what the model said at once.
func (g *geminiFold) say(words string) {
	d := draft{on: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = envelopes.AssistantMessage, &words, text(g.s.Model).ptr()
	g.put("", d)
}

// flush tells the text that was joined.
func (g *geminiFold) flush() {
	is := g.s.Gemini.Delta
	g.s.Gemini.Delta = geminiDelta{}
	if strings.TrimSpace(is.Words) == "" {
		return
	}
	d := draft{on: envelopes.ChannelChat, from: &is.From}
	d.EventType, d.Text, d.Model = envelopes.AssistantMessage, &is.Words, text(g.s.Model).ptr()
	g.put("", d)
}

// outcome emits the result of a tool in the stream.
func (g *geminiFold) outcome() {
	r := geminiResult{status: g.Status, failed: isValue(g.Error), data: isValue(g.Output) || isValue(g.Error)}
	code, message := problemOf(g.Error)
	switch {
	case g.Output.Kind() == '"':
		r.output = unquote(g.Output)
	case isValue(g.Output):
		r.output = compactText(g.Output)
	}
	if r.output == "" {
		if message == "" {
			message = code
		}
		r.output = message
	}
	r.display = r.output
	g.result(g.ToolID+"#result", g.ToolID, r)
}

// ended emits the failure of a run, and what the run used.
func (g *geminiFold) ended() {
	bill, set := g.increment(geminiRun, "", g.Stats.value.tokens())
	if bill != nil && g.first < 0 {
		// The event of the run was told under the same number, by a document.
		g.runtime(text("@"+strconv.FormatUint(g.s.Records, 10)+"#usage"), envelopes.Meta, "")
	}
	if bill != nil {
		g.bill(bill, set)
	}
	if isValue(g.Error) {
		code, message := problemOf(g.Error)
		if message == "" {
			code, message = "", code
		}
		g.fail("", message, code, message)
	}
}
