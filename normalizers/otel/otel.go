// Package otel normalizes spans and log records by OpenTelemetry's conventions for generative AI, from any program.
//
// Start with [Vendor]. A record is read by read, a span by its operation. README.md has the rules.
//
// The invariant: spans repeat messages, and each is emitted once. A span may have the whole conversation so far: a
// message is then known by its role, its content, and how many equal ones precede it. Or it has only what is new in
// its turn: then by the turn, too.
package otel

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/genai"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// reader writes the events of one record.
type reader struct {
	*chat.Writer
	genai.Record

	said  map[core.Fingerprint]int // messages of the record so far
	whole bool                     // the record has the whole conversation, not only what is new in its turn
	// answering means that the messages are the answer, not what precedes it.
	answering bool
	answer    int // index of the first event of the model's answer; -1 for none
}

// read writes what a record states.
func read(w *chat.Writer, _ *record) {
	w.Via = envelopes.ViaTelemetry
	is, ok := otlp.Read(w.Record.Data)
	if !ok {
		w.UnknownRecord("export")
		return
	}
	r := &reader{Writer: w, Record: genai.Record{Record: is}, said: make(map[core.Fingerprint]int), answer: -1}
	r.at(is.Time)
	w.Session.SetResumeID(r.Attribute("gen_ai.conversation.id"))
	w.Session.SetTextExtension("version", lenient.Text(r.Resource.Text("service.version")))
	w.Session.SetTextExtension("service", lenient.Text(r.Service()))
	w.Model = r.Record.Model()
	switch is.Kind {
	case otlp.Span:
		r.span()
	case otlp.Log:
		r.event()
	default:
		w.Skip = core.SkipMirror // metrics repeat what spans state
	}
}

// at sets the time of the next events.
func (r *reader) at(t time.Time) { r.At(genai.EventTime(t)) }

// span writes a span by its operation.
func (r *reader) span() {
	switch operation := r.Operation(); operation {
	case "chat", "generate_content", "text_completion", "embeddings":
		r.call()
	case "execute_tool":
		r.tool()
	case "invoke_agent", "invoke_workflow":
		r.agent()
	case "create_agent", "retrieval", "plan":
		r.Meta()
		r.problem()
	default:
		r.UnknownRecord("span", lenient.Text(operation))
	}
}

// event writes a log record by its name.
func (r *reader) event() {
	name := cmp.Or(r.Name, r.Text("event.name"))
	switch name {
	case "gen_ai.client.inference.operation.details":
		r.call()
	case "gen_ai.evaluation.result":
		r.Meta()
	case "gen_ai.system.message", "gen_ai.user.message", "gen_ai.assistant.message", "gen_ai.tool.message":
		var m genai.Message
		lenient.ReadObject(r.Body, &m)
		m.Role = lenient.Text(strings.TrimSuffix(strings.TrimPrefix(name, "gen_ai."), ".message"))
		r.message(&m)
	case "gen_ai.choice":
		var c genai.Choice
		lenient.ReadObject(r.Body, &c)
		c.Message.Role = "assistant"
		r.message(&c.Message)
	default:
		r.UnknownRecord("event", lenient.Text(name))
	}
}

// call writes a call to a model: what is new in the conversation, the answer, and the tokens. Its span and its event
// state the same call.
func (r *reader) call() {
	r.Session.SetModel(string(r.Writer.Model))
	r.at(r.Start)
	r.conversation()
	r.problem()
	if r.First < 0 {
		r.Meta()
	}
	first := r.First
	if r.answer >= 0 {
		r.First = r.answer
	}
	r.Use(lenient.Text(r.CallID()), r.Tokens())
	r.First = first
}

// conversation writes what precedes an answer, and the answer. A conversation that has an earlier answer is whole.
func (r *reader) conversation() {
	r.message(&genai.Message{Role: "system", Parts: r.Instructions()})
	input, output := r.Input(), r.Output()
	r.whole = slices.ContainsFunc(input, func(m genai.Message) bool { return m.Role == "assistant" })
	for i := range input {
		r.message(&input[i])
	}
	r.at(r.Time)
	r.answering = true
	n := len(r.Builder.Events)
	for i := range output {
		r.message(&output[i])
	}
	if len(r.Builder.Events) > n {
		r.answer = n
	}
}

// message writes the parts of a message that the session does not have.
func (r *reader) message(m *genai.Message) {
	if text := lenient.TextOrJSON(m.Content); text != "" {
		if m.Role == "tool" {
			r.result(m.ID, text)
			return
		}
		r.say(m.Role, "text", text)
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		switch p.Type {
		case "text", "reasoning":
			r.say(m.Role, p.Type, string(p.Content))
		case "tool_call":
			r.request(p.ID, p.Name, p.Arguments)
		case "tool_call_response":
			r.result(p.ID, cmp.Or(lenient.TextOrJSON(p.Response), lenient.TextOrJSON(p.Result)))
		case "blob", "file", "uri", "server_tool_call", "server_tool_call_response":
		default:
			r.Unknown(core.UnknownBlock, m.Role, p.Type)
		}
	}
	for i := range m.Calls {
		c := &m.Calls[i]
		r.request(c.ID, c.Function.Name, c.Function.Arguments)
	}
}

// say writes a text of a message.
func (r *reader) say(role, kind lenient.Text, text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	id := r.messageID(core.FingerprintOf(string(role), string(kind), text))
	if r.Session.HasEvent(string(id)) {
		r.Duplicate = true
		return
	}
	r.SetID(id)
	switch {
	case role == "assistant" && kind == "reasoning":
		r.Think(lenient.Text(text))
	case role == "assistant":
		r.Answer(lenient.Text(text))
	case role == "user":
		r.Say(core.SpeechHuman, lenient.Text(text))
	default:
		r.Say(core.SpeechInjected, lenient.Text(text))
	}
	r.SetID("")
}

// messageID returns the id of the event of a text: its number among the equal ones of the session. A whole conversation
// shows the number. Else it is the one that the call has given its answer, or that the turn has given the text, and
// otherwise the next one.
func (r *reader) messageID(text core.Fingerprint) lenient.Text {
	r.said[text]++
	n := r.said[text]
	if r.whole {
		return idOfMessage(text, n)
	}
	inTurn := core.FingerprintOf("turn", r.TraceID, text.String(), strconv.Itoa(n))
	inCall := core.FingerprintOf("call", r.CallID(), text.String(), strconv.Itoa(n))
	isAnswer := r.answering && r.Text("gen_ai.operation.name") != "invoke_agent"
	at, known := r.Session.IDs.Get(inTurn)
	if isAnswer {
		known = known && at[4] == ofAgent
		if number, ok := r.Session.IDs.Get(inCall); ok {
			at, known = number, true
		}
	}
	if !known {
		for n = 1; r.Session.HasEvent(string(idOfMessage(text, n))); n++ {
		}
		at = core.Fingerprint{}
		binary.BigEndian.PutUint32(at[:], uint32(n)) //nolint:gosec // bounded by the ids of a session
		if r.answering && !isAnswer {
			at[4] = ofAgent
		}
	}
	n = int(binary.BigEndian.Uint32(at[:]))
	if isAnswer {
		at[4] = 0
		r.Session.IDs.Put(inCall, at)
	}
	r.Session.IDs.Put(inTurn, at)
	return idOfMessage(text, n)
}

// ofAgent marks the answer of an agent until a call to the model states it: an agent repeats the last one.
const ofAgent = 1

func idOfMessage(text core.Fingerprint, n int) lenient.Text {
	return lenient.Text("message:" + text.String() + "." + strconv.Itoa(n))
}

// request writes the call of a tool, unless the session has it.
func (r *reader) request(id, name lenient.Text, arguments jsontext.Value) {
	if r.Session.HasEvent(string(id)) {
		r.Duplicate = true
		return
	}
	r.Call(chat.Call{ID: id, Name: name, Arguments: arguments})
}

// result writes what a tool returned, unless the session has it.
func (r *reader) result(id lenient.Text, text string) {
	bare := bareKey(id)
	if _, is := r.Session.IDs.Get(bare); !is && r.Session.HasEvent(string(core.PartID(id, "result"))) {
		r.Duplicate = true
		return
	}
	r.Result(chat.Result{ID: id, Text: &text})
}

// bareKey is the key of a call whose result has no text yet.
func bareKey(id lenient.Text) core.Fingerprint { return core.FingerprintOf("without text", string(id)) }

// tool writes the run of a tool: its call and its result with the time that it took, as far as no message has stated
// them. A run without contents gets the text of a later message.
func (r *reader) tool() {
	is := r.Tool()
	id := is.ID
	r.at(r.Start)
	r.request(id, is.Name, is.Arguments)
	r.at(r.Time)
	if r.Session.HasEvent(string(core.PartID(id, "result"))) {
		if r.First < 0 {
			r.Meta() // it has the time that the tool took
		}
		return
	}
	text := is.Result
	out := chat.Result{ID: id, Name: is.Name, Text: &text, Latency: r.Duration(), Exit: is.Exit}
	if code, message, failed := r.Problem(); failed {
		out.Failed, out.Code, out.Message = true, lenient.Text(code), lenient.Text(message)
	}
	if text == "" {
		r.Session.IDs.Put(bareKey(id), core.Fingerprint{})
	}
	r.Result(out)
}

// agent writes the run of an agent. Its tokens are the sum of those of its calls, so they bill nothing.
func (r *reader) agent() {
	r.at(r.Start)
	r.conversation()
	r.problem()
	type turn struct {
		Duration *int64 `json:"durationMs,omitzero"`
	}
	r.Facts(map[string]any{"turn": turn{core.CountOf(r.Duration())}})
}

// problem writes the error that ended the span.
func (r *reader) problem() {
	if code, message, failed := r.Problem(); failed {
		r.Error(lenient.Text(code), lenient.Text(cmp.Or(message, r.Text("error.message"))))
	}
}
