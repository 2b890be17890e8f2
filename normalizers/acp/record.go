package acp

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// recordKind is the kind of a record.
type recordKind int

const (
	kindUnknown          recordKind = iota // kept whole as meta; generic is one
	kindRun                                // an event run.*, or a run on its own
	kindMessageCreated                     // event: a message begins
	kindMessagePart                        // event: the next part of it
	kindMessageCompleted                   // event: the whole of it
	kindError                              // event
	kindMessage                            // a message on its own: the history of a session
	kindRequest                            // the request for a run
	kindResume                             // the answer to a run that awaits one
	kindArray                              // of records
)

// record is a record whose messages and parts are decoded and validated.
type record struct {
	kind     recordKind
	stated   lenient.Text           // type of a record of unknown kind, as stated
	value    jsontext.Value         // run of an event run.*; otherwise the record
	run      wireRun                // members of the run, or of the request for one
	messages []envelopes.ACPMessage // the output of a run, the input of a request, or the one message
	question *envelopes.ACPMessage  // message whose answer a run awaits
	part     envelopes.ACPPart
	elements []record // of an array
}

// message returns the message of a record of a kind with one message.
func (r *record) message() *envelopes.ACPMessage { return &r.messages[0] }

// wireRecord has the members of records of all kinds.
type wireRecord struct {
	Type        lenient.Text              `json:"type"`
	Run         jsontext.Value            `json:"run"`
	Message     jsontext.Value            `json:"message"`
	Part        jsontext.Value            `json:"part"`
	Parts       lenient.Kind              `json:"parts"`
	Input       jsontext.Value            `json:"input"`
	AwaitResume lenient.Object[wireAwait] `json:"await_resume"`
}

// wireRun has the members of a run, and of a request for one.
type wireRun struct {
	RunID        lenient.Text              `json:"run_id"`
	AgentName    lenient.Text              `json:"agent_name"`
	SessionID    lenient.Text              `json:"session_id"`
	Status       lenient.Text              `json:"status"`
	AwaitRequest lenient.Object[wireAwait] `json:"await_request"`
	Output       jsontext.Value            `json:"output"`
	CreatedAt    lenient.Text              `json:"created_at"`
	FinishedAt   lenient.Text              `json:"finished_at"`
}

type wireAwait struct {
	Message jsontext.Value `json:"message"`
}

// kind returns the kind of a record. run has the members of a run in the record itself.
func (w *wireRecord) kind(run *wireRun) recordKind {
	switch {
	case strings.HasPrefix(string(w.Type), "run.") && w.Run.Kind() == '{':
		return kindRun
	case w.Type == "message.created" && w.Message.Kind() == '{':
		return kindMessageCreated
	case w.Type == "message.completed" && w.Message.Kind() == '{':
		return kindMessageCompleted
	case w.Type == "message.part" && w.Part.Kind() == '{':
		return kindMessagePart
	case w.Type == "error":
		return kindError
	case w.Type != "":
		return kindUnknown
	case w.Parts == '[':
		return kindMessage
	case w.AwaitResume.OK && w.AwaitResume.Value.Message.Kind() == '{':
		return kindResume
	case w.Input.Kind() == '[' && run.AgentName != "":
		return kindRequest
	case (run.AgentName != "" || run.RunID != "") && (run.Status != "" || run.Output.Kind() == '['):
		return kindRun
	default:
		return kindUnknown
	}
}

// read decodes a record. An error is [core.ErrMalformed]: a message or a part in it breaks
// the protocol's model ([envelopes.DecodeACPMessage]).
func read(data jsontext.Value) (record, error) {
	if data.Kind() == '[' {
		return readArray(data)
	}
	var w wireRecord
	r := record{value: data}
	lenient.ReadObject(data, &w)
	lenient.ReadObject(data, &r.run)
	r.kind, r.stated = w.kind(&r.run), w.Type
	if err := r.readContent(&w); err != nil {
		return record{}, fmt.Errorf("%w: %w", core.ErrMalformed, err)
	}
	return r, nil
}

// readArray decodes an array of records. An element that is not an object is unknown.
func readArray(array jsontext.Value) (record, error) {
	elements := lenient.Elements(array)
	r := record{kind: kindArray, elements: make([]record, 0, len(elements))}
	for _, e := range elements {
		var element record
		if e.Kind() == '{' {
			var err error
			if element, err = read(e); err != nil {
				return record{}, err
			}
		}
		r.elements = append(r.elements, element)
	}
	return r, nil
}

// readContent decodes the content of a record of its kind.
func (r *record) readContent(w *wireRecord) (err error) {
	switch r.kind {
	case kindRun:
		if w.Type != "" {
			r.value, r.run = w.Run, wireRun{}
			lenient.ReadObject(w.Run, &r.run)
			r.run.Status = w.Type[len("run."):]
		}
		return r.readRun()
	case kindMessageCreated, kindMessageCompleted:
		return r.readMessages(w.Message)
	case kindMessagePart:
		r.part, err = envelopes.DecodeACPPart(strict(w.Part))
		return err
	case kindMessage:
		return r.readMessages(r.value)
	case kindResume:
		return r.readMessages(w.AwaitResume.Value.Message)
	case kindRequest:
		return r.readMessages(lenient.Elements(w.Input)...)
	default:
		return nil
	}
}

// readRun decodes the output of a run and the question that it asks.
func (r *record) readRun() error {
	if v := r.run.AwaitRequest.Value.Message; r.run.Status == "awaiting" && v.Kind() == '{' {
		question, err := envelopes.DecodeACPMessage(strict(v))
		if err != nil {
			return err
		}
		r.question = &question
	}
	if r.run.Output.Kind() != '[' {
		return nil
	}
	return r.readMessages(lenient.Elements(r.run.Output)...)
}

// readMessages decodes messages.
func (r *record) readMessages(messages ...jsontext.Value) error {
	for _, v := range messages {
		m, err := envelopes.DecodeACPMessage(strict(v))
		if err != nil {
			return err
		}
		r.messages = append(r.messages, m)
	}
	return nil
}

// strict returns a value in the strict JSON that the protocol's model is decoded from.
func strict(v jsontext.Value) jsontext.Value {
	if v.IsValid() {
		return v
	}
	return lenient.Strict(v)
}
