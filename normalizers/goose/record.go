package goose

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/lenient"
)

// record has the members of a record of any form.
type record struct {
	// A row of the database.
	Table lenient.Text        `json:"table"`
	Row   lenient.Object[row] `json:"row"`

	session `json:",embed"`
	message `json:",embed"`
}

// row has the columns of both tables that are read. A session and a message have the same name for their id, with
// another meaning.
type row struct {
	ID lenient.Text `json:"id"` // empty for a message, whose id is a number

	Name     lenient.Text                `json:"name"`
	Type     lenient.Text                `json:"session_type"`
	Dir      lenient.Text                `json:"working_dir"`
	Created  lenient.Text                `json:"created_at"`
	Provider lenient.Text                `json:"provider_name"`
	Model    lenient.Object[modelConfig] `json:"model_config_json"`
	sums     `json:",embed"`

	SessionID lenient.Text             `json:"session_id"`
	MessageID lenient.Text             `json:"message_id"`
	Role      lenient.Text             `json:"role"`
	Content   jsontext.Value           `json:"content_json"`
	At        lenient.Number           `json:"created_timestamp"`
	Metadata  lenient.Object[metadata] `json:"metadata_json"`
}

// session is what is stated about a session.
type session struct {
	ID          lenient.Text                `json:"id"` // also of a message
	Name        lenient.Text                `json:"name"`
	Description lenient.Text                `json:"description"`
	Type        lenient.Text                `json:"session_type"`
	Dir         lenient.Text                `json:"working_dir"`
	CreatedAt   lenient.Text                `json:"created_at"`
	Provider    lenient.Text                `json:"provider_name"`
	Model       lenient.Object[modelConfig] `json:"model_config"`
	sums        `json:",embed"`
}

// sums are the tokens of all API calls of a session. Versions whose messages state theirs have one of the cache, too.
type sums struct {
	Input     lenient.Number `json:"accumulated_input_tokens"`
	Output    lenient.Number `json:"accumulated_output_tokens"`
	CacheRead lenient.Number `json:"accumulated_cache_read_tokens"`
}

type modelConfig struct {
	Name lenient.Text `json:"model_name"`
}

// message is a message without its id.
type message struct {
	Role     lenient.Text             `json:"role"`
	Created  lenient.Number           `json:"created"`
	Content  jsontext.Value           `json:"content"`
	Metadata lenient.Object[metadata] `json:"metadata"`
}

type metadata struct {
	UserVisible jsontext.Value           `json:"userVisible"` // true if it is missing
	Inference   lenient.Object[infer]    `json:"inference"`
	Usage       lenient.Object[allUsage] `json:"usage"`
}

type infer struct {
	Requested lenient.Text `json:"requestedModel"`
	Resolved  lenient.Text `json:"resolvedModel"`
}

// allUsage has the tokens of the API call that made a message.
type allUsage struct {
	Input      lenient.Number `json:"inputTokens"`
	Output     lenient.Number `json:"outputTokens"`
	Total      lenient.Number `json:"totalTokens"`
	CacheRead  lenient.Number `json:"cacheReadTokens"`
	CacheWrite lenient.Number `json:"cacheWriteTokens"`
	Cost       lenient.Number `json:"cost"`
}

// block is an element of the content of a message.
type block struct {
	Type        lenient.Text                `json:"type"`
	Text        lenient.Text                `json:"text"`
	Annotations lenient.Object[annotations] `json:"annotations"`
	Thinking    lenient.Text                `json:"thinking"`
	ID          lenient.Text                `json:"id"`
	Call        lenient.Object[outcome]     `json:"toolCall"`
	Result      lenient.Object[outcome]     `json:"toolResult"`
	Kind        lenient.Text                `json:"kind"`
	Message     lenient.Text                `json:"message"`
	Msg         lenient.Text                `json:"msg"`
}

type annotations struct {
	Audience lenient.List[lenient.Text] `json:"audience"`
}

// outcome is a value or an error.
type outcome struct {
	Status lenient.Text   `json:"status"`
	Value  jsontext.Value `json:"value"`
	Error  lenient.Text   `json:"error"`
}

// call is the value of a toolCall.
type call struct {
	Name      lenient.Text   `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
}

// result is the value of a toolResult.
type result struct {
	Content    jsontext.Value             `json:"content"`
	Structured lenient.Object[structured] `json:"structuredContent"`
	IsError    lenient.Flag               `json:"isError"`
}

type structured struct {
	ExitCode lenient.Number `json:"exit_code"`
}

// stampOf returns a time of the database, which is in UTC, in the form of RFC 3339.
func stampOf(t string) string {
	if date, clock, ok := strings.Cut(t, " "); ok && !strings.ContainsAny(clock, "Z+ ") {
		return date + "T" + clock + "Z"
	}
	return t
}

// millisOf converts a number of seconds; some versions wrote milliseconds.
func millisOf(n lenient.Number) lenient.Number {
	if n.OK && n.Value < 1e10 {
		n.Value *= 1000
	}
	return n
}
