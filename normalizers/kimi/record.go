package kimi

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/chat"
	"tributary/normalizers/lenient"
)

// record has the members of a line.
type record struct {
	Type    lenient.Text            `json:"type"`
	Time    lenient.Number          `json:"time"`       // milliseconds
	Created lenient.Number          `json:"created_at"` // of the first line
	Agent   lenient.Text            `json:"agentId"`
	Input   jsontext.Value          `json:"input"` // of a prompt
	Origin  lenient.Object[origin]  `json:"origin"`
	Message lenient.Object[message] `json:"message"`
	Event   lenient.Object[step]    `json:"event"`
	Usage   lenient.Object[usage]   `json:"usage"`
	Scope   lenient.Text            `json:"usageScope"`

	// Of the input of a turn: the message that repeats it, which has the id of the prompt, or one of its own.
	PromptID  lenient.Text               `json:"promptId"`
	MessageID lenient.Text               `json:"messageId"`
	PromptIDs lenient.List[lenient.Text] `json:"promptIds"`

	Model    lenient.Text                 `json:"model"`
	Alias    lenient.Text                 `json:"modelAlias"`
	Provider lenient.Text                 `json:"provider"`
	Effort   lenient.Text                 `json:"thinkingEffort"`
	Cwd      lenient.Text                 `json:"cwd"`
	Place    lenient.Object[place]        `json:"environmentDisclosure"`
	Summary  jsontext.Value               `json:"summary"` // a text or a message
	Context  lenient.Text                 `json:"contextSummary"`
	Content  lenient.Text                 `json:"content"` // of a plugin
	Reason   lenient.Text                 `json:"reason"`
	Error    lenient.Object[chat.Problem] `json:"error"`
	Failure  lenient.Text                 `json:"errorName"` // of a step that is tried again
	Problem  lenient.Text                 `json:"errorMessage"`

	// Of kimi-cli.
	Seconds lenient.Number `json:"timestamp"`
	Role    lenient.Text   `json:"role"`
}

// messageID returns the id of the message that repeats the input of a turn; empty if it is not stated.
func (r *record) messageID() lenient.Text {
	switch {
	case r.Type == "turn.prompt":
		return r.PromptID
	case r.MessageID == "" && len(r.PromptIDs) == 1:
		return r.PromptIDs[0]
	default: // prompts that were joined have a message with an id of its own
		return r.MessageID
	}
}

// place is where the agent runs.
type place struct {
	lenient.Data

	Cwd lenient.Text `json:"cwd"`
}

// origin is who wrote a message under the user's name.
type origin struct {
	Kind      lenient.Text                 `json:"kind"`
	Name      lenient.Text                 `json:"name"`
	Trigger   lenient.Text                 `json:"trigger"`
	Skill     lenient.Text                 `json:"skillName"`
	SkillArgs lenient.Text                 `json:"skillArgs"`
	Plugin    lenient.Text                 `json:"pluginId"`
	Command   lenient.Text                 `json:"commandName"`
	Arguments lenient.Text                 `json:"commandArgs"`
	Skills    lenient.List[jsontext.Value] `json:"skillActivations"` // each has a part before the prompt
}

// author returns who wrote the message: a human, if it does not state it.
func (o *origin) author() lenient.Text { return cmp.Or(o.Kind, "user") }

// message is a message of any role in the context. That of kimi-cli has a type and a payload.
type message struct {
	Role    lenient.Text           `json:"role"`
	ID      lenient.Text           `json:"id"`
	Content jsontext.Value         `json:"content"`
	Calls   lenient.List[toolCall] `json:"toolCalls"`
	CallID  lenient.Text           `json:"toolCallId"`
	IsError lenient.Flag           `json:"isError"`
	Origin  lenient.Object[origin] `json:"origin"`

	Type    lenient.Text   `json:"type"`
	Payload jsontext.Value `json:"payload"`
}

// toolCall is a call within a message.
type toolCall struct {
	ID        lenient.Text             `json:"id"`
	Name      lenient.Text             `json:"name"`
	Arguments jsontext.Value           `json:"arguments"`
	Function  lenient.Object[function] `json:"function"` // in old versions
}

type function struct {
	Name      lenient.Text   `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
}

// step is an event of the loop that calls the model.
type step struct {
	Type      lenient.Text            `json:"type"`
	UUID      lenient.Text            `json:"uuid"`
	Part      lenient.Object[part]    `json:"part"`
	CallID    lenient.Text            `json:"toolCallId"`
	Name      lenient.Text            `json:"name"`
	Arguments jsontext.Value          `json:"args"`
	Display   lenient.Object[place]   `json:"display"`
	Result    lenient.Object[outcome] `json:"result"`
	Usage     lenient.Object[usage]   `json:"usage"`
	MessageID lenient.Text            `json:"messageId"`
}

// outcome is what a tool returned.
type outcome struct {
	Output   jsontext.Value `json:"output"` // a text or parts
	IsError  lenient.Flag   `json:"isError"`
	Duration lenient.Number `json:"durationMs"`
}

// usage has the tokens of an API call. The input is without the cache, the output with the thoughts.
type usage struct {
	Input      lenient.Number `json:"inputOther"`
	Output     lenient.Number `json:"output"`
	CacheRead  lenient.Number `json:"inputCacheRead"`
	CacheWrite lenient.Number `json:"inputCacheCreation"`
}

// part is a part of the content of a message.
type part struct {
	Type  lenient.Text `json:"type"`
	Text  lenient.Text `json:"text"`
	Think lenient.Text `json:"think"`
}

// joined returns the texts of parts, line by line.
func joined(list []part) string {
	var texts []string
	for _, p := range list {
		if p.Type == "text" {
			texts = append(texts, string(p.Text))
		}
	}
	return strings.Join(texts, "\n")
}

// isMedia reports whether a part is an image, a sound or a film.
func isMedia(p part) bool {
	return p.Type == "image_url" || p.Type == "audio_url" || p.Type == "video_url"
}
