package qwen

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/chat"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// record has the members of a record: the envelope, and what its type adds.
type record struct {
	otlp.Export `json:",embed"`

	UUID       lenient.Text            `json:"uuid"`
	ParentUUID lenient.Text            `json:"parentUuid"`
	SessionID  lenient.Text            `json:"sessionId"`
	Timestamp  lenient.Text            `json:"timestamp"`
	Type       lenient.Text            `json:"type"`
	Subtype    lenient.Text            `json:"subtype"`
	Provenance lenient.Text            `json:"provenance"`
	Cwd        lenient.Text            `json:"cwd"`
	Version    lenient.Text            `json:"version"`
	Branch     lenient.Text            `json:"gitBranch"`
	Model      lenient.Text            `json:"model"`
	AgentID    lenient.Text            `json:"agentId"`
	External   lenient.Text            `json:"externalInputKind"` // of a text that a subagent gets while it runs
	ForkedFrom lenient.Present         `json:"forkedFrom"`
	Message    lenient.Object[message] `json:"message"`
	Usage      lenient.Object[usage]   `json:"usageMetadata"`
	Result     lenient.Object[result]  `json:"toolCallResult"`
	Payload    lenient.Object[payload] `json:"systemPayload"`
}

// message is a message to the model or of it, in the form of the API of Gemini.
type message struct {
	Parts lenient.List[part] `json:"parts"`
}

// texts returns the texts of the parts, without the thoughts.
func (m *message) texts() (list []string) {
	for _, p := range m.Parts {
		if p.Text.OK && !bool(p.Thought) {
			list = append(list, p.Text.Value)
		}
	}
	return list
}

type part struct {
	Text     lenient.NullText         `json:"text"`
	Thought  lenient.Flag             `json:"thought"`
	Call     lenient.Object[call]     `json:"functionCall"`
	Response lenient.Object[response] `json:"functionResponse"`
	Inline   lenient.Present          `json:"inlineData"`
	File     lenient.Present          `json:"fileData"`
	Others   jsontext.Value           `json:",embed"`
}

// isFile reports whether a part is an image or another file.
func (p part) isFile() bool { return bool(p.Inline) || bool(p.File) }

type call struct {
	ID   lenient.Text   `json:"id"`
	Name lenient.Text   `json:"name"`
	Args jsontext.Value `json:"args"`
}

type response struct {
	ID       lenient.Text           `json:"id"`
	Name     lenient.Text           `json:"name"`
	Response lenient.Object[output] `json:"response"`
}

// output is what a tool returned.
type output struct {
	Output jsontext.Value `json:"output"`
	Error  jsontext.Value `json:"error"`
	Others jsontext.Value `json:",embed"`
}

// text returns the output and the error, else all that the tool returned; nil for nothing.
func (o *output) text() *string {
	var texts []string
	for _, v := range []jsontext.Value{o.Output, o.Error} {
		if lenient.IsValue(v) {
			texts = append(texts, lenient.TextOrJSON(v))
		}
	}
	switch {
	case texts != nil:
		return new(strings.Join(texts, "\n"))
	case len(o.Others) > 0:
		return new(lenient.CompactText(o.Others))
	default:
		return nil
	}
}

// result is what the interface shows of the result of a call.
type result struct {
	CallID    lenient.Text   `json:"callId"`
	Status    lenient.Text   `json:"status"`
	Display   lenient.Text   `json:"resultDisplay"`
	ErrorType lenient.Text   `json:"errorType"`
	Duration  lenient.Number `json:"durationMs"`
}

// usage has the tokens of an API call, with the cache in the prompt.
type usage struct {
	Prompt     lenient.Number `json:"promptTokenCount"`
	Candidates lenient.Number `json:"candidatesTokenCount"`
	Thoughts   lenient.Number `json:"thoughtsTokenCount"`
	Cached     lenient.Number `json:"cachedContentTokenCount"`
	Total      lenient.Number `json:"totalTokenCount"`
}

// payload has the members of the payload of each subtype.
type payload struct {
	DisplayText lenient.Text                 `json:"displayText"`
	Title       lenient.Text                 `json:"customTitle"`
	Event       lenient.Object[telemetry]    `json:"uiEvent"`
	Compressed  lenient.List[message]        `json:"compressedHistory"`
	ModelID     lenient.Text                 `json:"modelId"`
	Error       lenient.Object[chat.Problem] `json:"error"` // of a turn
	Phase       lenient.Text                 `json:"phase"` // of a slash command, as what follows
	Command     lenient.Text                 `json:"rawCommand"`
	Sent        lenient.Flag                 `json:"sentToModel"`
	Hidden      lenient.Flag                 `json:"hiddenInvocation"`
	Printed     lenient.List[printed]        `json:"outputHistoryItems"`
}

// printed is an element that the interface shows.
type printed struct {
	Text lenient.Text `json:"text"`
}
