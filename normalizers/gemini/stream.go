package gemini

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What Gemini CLI writes to standard output when it is run by a program: a stream of
// lines (--output-format stream-json), or one document (--output-format json).

// stream are the members of both.
type stream struct {
	Delta      lenient.Flag                `json:"delta"`
	ToolName   lenient.Text                `json:"tool_name"`
	ToolID     lenient.Text                `json:"tool_id"`
	Parameters jsontext.Value              `json:"parameters"`
	Status     lenient.Text                `json:"status"`
	Output     jsontext.Value              `json:"output"`
	Error      jsontext.Value              `json:"error"`
	Severity   lenient.Text                `json:"severity"`
	Stats      lenient.Object[streamStats] `json:"stats"`
	Response   lenient.Text                `json:"response"`
}

// streamStats are the figures of a run: of the stream, where reasoning is what the
// total has above the rest, or by model.
type streamStats struct {
	Total  lenient.Number                                      `json:"total_tokens"`
	Input  lenient.Number                                      `json:"input_tokens"`
	Output lenient.Number                                      `json:"output_tokens"`
	Cached lenient.Number                                      `json:"cached"`
	Models lenient.Object[map[string]lenient.Object[modelUse]] `json:"models"`
}

type modelUse struct {
	Tokens lenient.Object[modelTokens] `json:"tokens"`
}

type modelTokens struct {
	Prompt     lenient.Number `json:"prompt"`
	Candidates lenient.Number `json:"candidates"`
	Cached     lenient.Number `json:"cached"`
	Thoughts   lenient.Number `json:"thoughts"`
	Tool       lenient.Number `json:"tool"`
}

// tokens are the figures in the form of a message's.
func (s *streamStats) tokens() *tokens {
	t := &tokens{Input: s.Input, Output: s.Output, Cached: s.Cached}
	if s.Total.OK {
		t.Thoughts = lenient.Number{Value: max(0, s.Total.Value-s.Input.Value-s.Output.Value), OK: true}
		return t
	}
	for _, m := range s.Models.Value {
		v := &m.Value.Tokens.Value
		for _, f := range []struct {
			to *lenient.Number
			of lenient.Number
		}{{&t.Input, v.Prompt}, {&t.Output, v.Candidates}, {&t.Cached, v.Cached}, {&t.Thoughts, v.Thoughts}, {&t.Tool, v.Tool}} {
			*f.to = lenient.Number{Value: f.to.Value + f.of.Value, OK: f.to.OK || f.of.OK}
		}
	}
	return t
}

// run is the slot of the bill for a run as a whole.
var run = core.FingerprintOf("run")

// isStream reports whether the record is of one of the outputs.
func (r *wireRecord) isStream() bool {
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
		return r.ID == "" && r.Role == "" && (r.Stats.OK || r.Response != "")
	default:
		return false
	}
}

// stream maps a line of the stream, or the one document.
func (g *mapper) stream() core.SkipReason {
	if g.Type == "message" && g.Role != "user" {
		return g.speak()
	}
	g.flush()
	switch g.Type {
	case "init":
		g.Session.SetModel(string(g.Model))
		g.Session.APICalls.Put(run, core.Consumption{})
		g.runtime("", envelopes.Meta, "")
	case "message":
		kind, words := speechOf(g.Content.prompt())
		if strings.TrimSpace(words) == "" {
			return core.SkipEmpty
		}
		g.put("", core.DraftOf(kind, words))
	case "tool_use":
		g.made(g.ToolID, g.ToolName, g.Parameters, "", lenient.Text(g.Session.Model))
	case "tool_result":
		g.outcome()
	case "error":
		if g.Severity == "warning" {
			g.runtime("", envelopes.SystemMessage, g.Message)
			break
		}
		code, _ := core.VendorError(g.Error)
		g.fail("", string(g.Message), code, string(g.Message))
	case "result":
		g.runtime("", envelopes.SessionSummary, "")
		g.ended()
	default:
		g.Session.APICalls.Put(run, core.Consumption{})
		if strings.TrimSpace(string(g.Response)) != "" {
			g.say(string(g.Response))
		} else {
			g.runtime("", envelopes.Meta, "")
		}
		g.ended()
	}
	return core.SkipDuplicate
}

// speak joins what the model says in pieces: the text takes the id and the time of its
// last piece. What it says at once stands alone.
func (g *mapper) speak() core.SkipReason {
	words := g.Content.text()
	if !g.Delta {
		if g.st.Delta.Words == words {
			g.st.Delta = delta{} // the pieces, told as a whole
		}
		g.flush()
		if strings.TrimSpace(words) == "" {
			return core.SkipEmpty
		}
		g.say(words)
		return core.SkipDuplicate
	}
	if joined := g.st.Delta.Words + words; core.FitsDelta(joined) {
		g.st.Delta = delta{From: g.PendingRecord(), Words: joined}
		return core.SkipProgress
	}
	g.flush()
	if core.FitsDelta(words) {
		g.st.Delta = delta{From: g.PendingRecord(), Words: words}
		return core.SkipProgress
	}
	g.say(words) // too long to be kept
	return core.SkipDuplicate
}

// say emits what the model said at once.
func (g *mapper) say(words string) {
	d := core.Draft{OnChannel: envelopes.ChannelChat}
	d.EventType, d.Text, d.Model = envelopes.AssistantMessage, &words, lenient.Text(g.Session.Model).Ptr()
	g.put("", d)
}

// flush tells the text that was joined.
func (g *mapper) flush() {
	is := g.st.Delta
	g.st.Delta = delta{}
	if strings.TrimSpace(is.Words) == "" {
		return
	}
	d := core.Draft{OnChannel: envelopes.ChannelChat, From: &is.From}
	d.EventType, d.Text, d.Model = envelopes.AssistantMessage, &is.Words, lenient.Text(g.Session.Model).Ptr()
	g.put("", d)
}

// outcome emits the result of a tool in the stream.
func (g *mapper) outcome() {
	r := result{status: g.Status, failed: lenient.IsValue(g.Error), data: lenient.IsValue(g.Output) || lenient.IsValue(g.Error)}
	code, message := core.VendorError(g.Error)
	switch {
	case g.Output.Kind() == '"':
		r.output = lenient.Unquote(g.Output)
	case lenient.IsValue(g.Output):
		r.output = lenient.CompactText(g.Output)
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
func (g *mapper) ended() {
	bill, set := g.increment(run, "", g.Stats.Value.tokens())
	if bill != nil && g.First < 0 {
		// The event of the run was told under the same number, by a document.
		g.runtime(lenient.Text("@"+strconv.FormatUint(g.Session.Records, 10)+"#usage"), envelopes.Meta, "")
	}
	if bill != nil {
		g.AddUsage(bill, set)
	}
	if lenient.IsValue(g.Error) {
		code, message := core.VendorError(g.Error)
		if message == "" {
			code, message = "", code
		}
		g.fail("", message, code, message)
	}
}
