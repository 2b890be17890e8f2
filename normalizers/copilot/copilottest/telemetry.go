package copilottest

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// This file reads what Copilot's runtime exports by OpenTelemetry a second time.

// sentSession matches an export request, with its session.
var sentSession = regexp.MustCompile(`^\s*\{"resource(?:Spans|Metrics)":.*?"key":"gen_ai.conversation.id","value":\{"stringValue":"([^"]*)"`)

// sentSpan is a span.
type sentSpan struct {
	attributes    map[string]any
	name          string
	trace, id     string
	failed        bool
	message       string
	events        []any
	input, output []any
	interaction   string
}

// exportedSpan returns the span of a line; nil for any other line.
func exportedSpan(l normalizerstest.Line) *sentSpan {
	if l.Bad {
		return nil
	}
	return spanOf(normalizerstest.Parse(l.Data))
}

func spanOf(record any) *sentSpan {
	is := record
	for _, name := range []string{"resourceSpans", "scopeSpans", "spans"} {
		list := normalizerstest.Member[[]any](is, name)
		if len(list) != 1 {
			return nil
		}
		is = list[0]
	}
	s := &sentSpan{
		attributes: normalizerstest.ExportedAttributes(record), name: normalizerstest.Member[string](is, "name"),
		trace: normalizerstest.Member[string](is, "traceId"), id: normalizerstest.Member[string](is, "spanId"),
		failed: fmt.Sprint(normalizerstest.Member[any](is, "status", "code")) == "2", message: normalizerstest.Member[string](is, "status", "message"),
		events: normalizerstest.Member[[]any](is, "events"),
	}
	s.input, s.output = s.messages("gen_ai.input.messages"), s.messages("gen_ai.output.messages")
	s.interaction = s.text("github.copilot.interaction_id")
	return s
}

func (s *sentSpan) text(name string) string {
	return normalizerstest.Member[string](s.attributes, name)
}

func (s *sentSpan) messages(name string) []any {
	list, _ := normalizerstest.Parse([]byte(s.text(name))).([]any)
	return list
}

// sentText is a text that the telemetry states.
type sentText struct {
	normalizerstest.Utterance

	interaction string
}

// sent returns what the telemetry says more often than the log, as far as the id of an interaction shows it.
func (r *copilotReader) sent() (out []normalizerstest.Utterance) {
	for _, t := range r.said {
		if t.interaction != "" && t.Who != "assistant" {
			if r.prompts[t.interaction]--; r.prompts[t.interaction] >= 0 {
				continue
			}
			r.out.Talk = insert(r.out.Talk, t.Utterance)
			continue
		}
		out = append(out, t.Utterance)
	}
	return out
}

// insert adds an utterance in the order of lines.
func insert(talk []normalizerstest.Utterance, u normalizerstest.Utterance) []normalizerstest.Utterance {
	at := len(talk)
	for i := range talk {
		if talk[i].Line > u.Line {
			at = i
			break
		}
	}
	return append(talk[:at:at], append([]normalizerstest.Utterance{u}, talk[at:]...)...)
}

// span reads a span and returns its thread.
func (r *copilotReader) span(n int, s *sentSpan) (thread normalizerstest.RawThread) {
	if r.emitted["span "+s.trace+s.id] != "" {
		return thread
	}
	r.emitted["span "+s.trace+s.id] = "yes"
	switch cmp.Or(s.text("gen_ai.operation.name"), s.name) {
	case "chat":
		thread.Internal = s.text("github.copilot.initiator") == "sub-agent"
		r.asked(n, s)
		if s.attributes["gen_ai.input.messages"] == nil && s.text("github.copilot.initiator") == "user" {
			r.sentPrompt(n, s, "", 1)
		}
		r.answered(n, s)
	case "execute_tool":
		id := cmp.Or(s.text("gen_ai.tool.call.id"), s.trace+":"+s.id)
		r.callOnce(n, id, s.text("gen_ai.tool.name"))
		w := normalizerstest.ToolOutcome{Session: r.session, ID: id, Line: n}
		if s.attributes["process.exit.code"] != nil {
			code := normalizerstest.ExportedNumber(s.attributes, "process.exit.code")
			w.Code, w.Form = &code, "process.exit.code"
		}
		r.resultOnce(id, s.text("gen_ai.tool.call.result"), w)
	case "invoke_agent":
		r.asked(n, s)
		if s.attributes["gen_ai.input.messages"] == nil {
			k := 0
			for _, e := range s.events {
				a := map[string]any{}
				for _, is := range normalizerstest.Member[[]any](e, "attributes") {
					a[normalizerstest.Member[string](is, "key")] = normalizerstest.Member[any](is, "value", "stringValue")
				}
				if normalizerstest.Member[string](e, "name") == "github.copilot.user.message" && a["github.copilot.user.message.source"] == "user" {
					k++
					s.interaction, _ = a["github.copilot.user.message.interaction_id"].(string)
					r.sentPrompt(n, s, "", k)
				}
			}
		}
	}
	return thread
}

var sentAround = regexp.MustCompile(`(?s)^<current_datetime>.*?</current_datetime>\s*|\s*<system_reminder>.*$`)

// asked reads the messages to the model.
func (r *copilotReader) asked(n int, s *sentSpan) {
	for _, e := range s.events {
		for _, is := range normalizerstest.Member[[]any](e, "attributes") {
			if normalizerstest.Member[string](is, "key") == "github.copilot.user.message.interaction_id" {
				s.interaction = cmp.Or(s.interaction, normalizerstest.Member[string](is, "value", "stringValue"))
			}
		}
	}
	same := make(map[string]int)
	for _, m := range s.input {
		for _, p := range normalizerstest.Member[[]any](m, "parts") {
			switch kind, content := normalizerstest.Member[string](p, "type"), sentAround.ReplaceAllString(normalizerstest.Member[string](p, "content"), ""); {
			case kind == "tool_call_response":
				id, response := normalizerstest.Member[string](p, "id"), normalizerstest.Member[string](p, "response")
				r.resultOnce(id, response, normalizerstest.ToolOutcome{Session: r.session, ID: id, Line: n})
			case kind != "text" || normalizerstest.Member[string](m, "role") != "user" || strings.TrimSpace(content) == "":
			case strings.HasPrefix(strings.TrimSpace(content), "<system_notification>") || skillContext.MatchString(content):
			default:
				same[content]++
				r.sentPrompt(n, s, content, same[content])
			}
		}
	}
}

func (r *copilotReader) sentPrompt(n int, s *sentSpan, content string, k int) {
	key := fmt.Sprintf("prompt %q %q %q %d", s.trace, s.interaction, content, k)
	if r.emitted[key] == "" {
		r.emitted[key] = "yes"
		who := "human"
		if s.text("github.copilot.initiator") == "sub-agent" {
			who = "agent"
		}
		r.said = append(r.said, sentText{normalizerstest.Utterance{Session: r.session, Who: who, Text: strings.TrimSpace(content), Line: n}, s.interaction})
	}
}

// answered reads the answer of the model.
func (r *copilotReader) answered(n int, s *sentSpan) {
	for _, m := range s.output {
		for _, p := range normalizerstest.Member[[]any](m, "parts") {
			switch content := normalizerstest.Member[string](p, "content"); normalizerstest.Member[string](p, "type") {
			case "tool_call":
				r.callOnce(n, normalizerstest.Member[string](p, "id"), normalizerstest.Member[string](p, "name"))
			case "text":
				if strings.TrimSpace(content) != "" {
					r.said = append(r.said, sentText{Utterance: normalizerstest.Utterance{Session: r.session, Who: "assistant", Text: content, Line: n}})
				}
			}
		}
	}
}

func (r *copilotReader) callOnce(n int, id, name string) {
	if _, ok := r.names[id]; !ok {
		r.call(n, id, name, nil)
	}
}

// resultOnce notes a result that nothing has stated. The last line of a shell's output has its exit code.
func (r *copilotReader) resultOnce(id, body string, w normalizerstest.ToolOutcome) {
	if _, ok := r.emitted["result "+id]; ok {
		return
	}
	r.emitted["result "+id] = "sent"
	lines := strings.Split(strings.TrimRight(body, " \t\r\n"), "\n")
	if m := copilotExitLine.FindStringSubmatch(lines[len(lines)-1]); w.Code == nil && m != nil && (r.names[id] == "" || strings.Contains(r.names[id], "bash")) {
		w.Code = number(m[3])
		w.Form = m[2]
	}
	r.out.Results = append(r.out.Results, w)
}
