package kiro

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// record has the members of a line of a session, of the state of a session, of a conversation of Amazon Q, and of an event
// of Kiro IDE and what lies beside it.
type record struct {
	// Of an event; a summary has an id, too.
	ID        lenient.Text          `json:"id"`
	Timestamp lenient.Text          `json:"timestamp"`
	Payload   lenient.Object[event] `json:"payload"`
	summary   `json:",embed"`

	// Of a line.
	Kind lenient.Text         `json:"kind"`
	Data lenient.Object[line] `json:"data"`

	// Of the state of a session.
	SessionID lenient.Text          `json:"session_id"`
	Cwd       lenient.Text          `json:"cwd"`
	Title     lenient.Text          `json:"title"`
	ParentID  lenient.Text          `json:"parent_session_id"`
	CreatedAt lenient.Text          `json:"created_at"`
	UpdatedAt lenient.Text          `json:"updated_at"`
	State     lenient.Object[state] `json:"session_state"`

	// Of a conversation.
	ConversationID lenient.Text            `json:"conversation_id"`
	History        jsontext.Value          `json:"history"`
	LatestSummary  jsontext.Value          `json:"latest_summary"` // a text and its request
	ModelInfo      lenient.Object[model]   `json:"model_info"`
	OldModel       lenient.Text            `json:"model"`
	Tangent        lenient.Object[tangent] `json:"tangent_state"`
}

// line is the data of a line of any kind.
type line struct {
	MessageID lenient.Text   `json:"message_id"`
	Content   jsontext.Value `json:"content"` // blocks
	Summary   lenient.Text   `json:"summary"` // of a Compaction
	Meta      lenient.Object[struct {
		Timestamp lenient.Number `json:"timestamp"` // in seconds
	}] `json:"meta"` // of a Prompt
}

// block is an element of the content of a line, or of a result.
type block struct {
	Kind lenient.Text   `json:"kind"`
	Data jsontext.Value `json:"data"` // a text, or an object by the kind
}

// blockData is the data of a block that is no text.
type blockData struct {
	Text      lenient.Text   `json:"text"` // of a thought
	ModelID   lenient.Text   `json:"modelId"`
	ToolUseID lenient.Text   `json:"toolUseId"`
	Name      lenient.Text   `json:"name"`
	Input     jsontext.Value `json:"input"`
	Content   jsontext.Value `json:"content"` // of a result: blocks of kind text or json
	Status    lenient.Text   `json:"status"`
}

// input has the members of the input of a tool that are Kiro's own.
type input struct {
	lenient.Data

	Command    lenient.Text `json:"command"`    // of write: what it does
	Target     lenient.Text `json:"targetFile"` // of delete_file
	Operations lenient.List[struct {
		Path lenient.Text `json:"path"`
	}] `json:"operations"` // of read
}

// output is a result as JSON, of a shell or of a tool of a server.
type output struct {
	lenient.Data

	ExitStatus lenient.Text     `json:"exit_status"`
	Stdout     lenient.NullText `json:"stdout"`
	Stderr     lenient.NullText `json:"stderr"`
	Content    lenient.List[struct {
		Text lenient.Text `json:"text"`
	}] `json:"content"`
}

// state is what Kiro keeps beside the lines of a session.
type state struct {
	Agent        lenient.Text `json:"agent_name"`
	Conversation lenient.Object[struct {
		Turns jsontext.Value `json:"user_turn_metadatas"`
	}] `json:"conversation_metadata"`
	Model lenient.Object[struct {
		Info lenient.Object[model] `json:"model_info"`
	}] `json:"rts_model_state"`
}

type model struct {
	ID lenient.Text `json:"model_id"`
}

// turn is a turn that ended, in the state of a session. Its counts of tokens are 0 where there are none.
type turn struct {
	Messages     lenient.List[lenient.NullText] `json:"message_ids"`
	Model        lenient.Text                   `json:"model"`
	EndReason    lenient.Text                   `json:"end_reason"`
	EndTimestamp lenient.Text                   `json:"end_timestamp"`
	Loop         lenient.Object[struct {
		Rand lenient.Number `json:"rand"`
	}] `json:"loop_id"`
	Duration lenient.Object[struct {
		Secs  lenient.Number `json:"secs"`
		Nanos lenient.Number `json:"nanos"`
	}] `json:"turn_duration"`
	Result lenient.Object[struct {
		Err jsontext.Value `json:"Err"`
	}] `json:"result"`
	Metering lenient.List[struct {
		Value lenient.Number `json:"value"`
		Unit  lenient.Text   `json:"unit"`
	}] `json:"metering_usage"`

	Input      lenient.Number `json:"input_token_count"` // without the cache
	Output     lenient.Number `json:"output_token_count"`
	CacheRead  lenient.Number `json:"cache_read_input_token_count"`
	CacheWrite lenient.Number `json:"cache_write_input_token_count"`
}

// tangent has the main conversation while another one was begun in it.
type tangent struct {
	Main jsontext.Value `json:"main_history"`
}

// entry is an element of a history: what was sent, and the answer.
type entry struct {
	User      lenient.Object[user] `json:"user"`
	Assistant lenient.Object[struct {
		Response lenient.Object[answer] `json:"Response"`
		ToolUse  lenient.Object[answer] `json:"ToolUse"`
	}] `json:"assistant"`
	Request lenient.Object[struct {
		MessageID lenient.Text   `json:"message_id"`
		Started   lenient.Number `json:"request_start_timestamp_ms"`
		Ended     lenient.Number `json:"stream_end_timestamp_ms"`
		ModelID   lenient.Text   `json:"model_id"`
	}] `json:"request_metadata"`
}

type user struct {
	Context lenient.Text `json:"additional_context"`
	Env     lenient.Object[struct {
		State lenient.Object[struct {
			Cwd lenient.Text `json:"current_working_directory"`
		}] `json:"env_state"`
	}] `json:"env_context"`
	Content   jsontext.Value `json:"content"` // an object with one member, named after what it is
	Timestamp lenient.Text   `json:"timestamp"`
	Images    jsontext.Value `json:"images"`
}

// sent is the content of any kind of user message.
type sent struct {
	Prompt  lenient.Text `json:"prompt"`
	Results lenient.List[struct {
		ID      lenient.Text   `json:"tool_use_id"`
		Content jsontext.Value `json:"content"` // objects with one member, Text or Json
		Status  lenient.Text   `json:"status"`
	}] `json:"tool_use_results"`
}

type answer struct {
	MessageID lenient.Text `json:"message_id"`
	Content   lenient.Text `json:"content"`
	Uses      lenient.List[struct {
		ID   lenient.Text   `json:"id"`
		Name lenient.Text   `json:"name"`
		Args jsontext.Value `json:"args"`
	}] `json:"tool_uses"`
}

// tools are the tools that other agents lack or use with another meaning.
var tools = map[string]core.Tool{
	"execute_bash": core.ToolShell,
	"execute_cmd":  core.ToolShell,
	"execute_pwsh": core.ToolShell,
	"fs_append":    core.ToolModify,
	"fs_read":      core.ToolRead,
	"fs_write":     core.ToolModify,
	"str_replace":  core.ToolModify,
	"write":        core.ToolModify,
}
