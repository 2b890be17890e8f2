package vibe

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/lenient"
)

// record has the members of a message, of the state of a session, and of a session of older versions.
type record struct {
	message `json:",embed"`
	meta    `json:",embed"`

	// Of older versions: the state, and all messages.
	Metadata lenient.Object[meta] `json:"metadata"`
	Messages jsontext.Value       `json:"messages"`
}

// message is a message of any role.
type message struct {
	Role        lenient.Text       `json:"role"`
	Content     lenient.Text       `json:"content"`
	Injected    lenient.Flag       `json:"injected"`
	MessageID   lenient.Text       `json:"message_id"`
	Images      jsontext.Value     `json:"images"`
	Reasoning   lenient.Text       `json:"reasoning_content"`
	ReasoningID lenient.Text       `json:"reasoning_message_id"`
	Calls       lenient.List[call] `json:"tool_calls"`

	// Of a result.
	Name       lenient.Text `json:"name"`
	ToolCallID lenient.Text `json:"tool_call_id"`
}

// call is a call of a tool.
type call struct {
	ID       lenient.Text `json:"id"`
	Function lenient.Object[struct {
		Name      lenient.Text   `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
	}] `json:"function"`
}

// meta is the state of a session. It has more members, of which some are secrets: the configuration and the
// environment.
type meta struct {
	SessionID   lenient.Text `json:"session_id"`
	ParentID    lenient.Text `json:"parent_session_id"`
	StartTime   lenient.Text `json:"start_time"`
	EndTime     lenient.Text `json:"end_time"`
	GitCommit   lenient.Text `json:"git_commit"`
	GitBranch   lenient.Text `json:"git_branch"`
	Title       lenient.Text `json:"title"`
	Environment lenient.Object[struct {
		Folder lenient.Text `json:"working_directory"`
	}] `json:"environment"`
	Profile lenient.Object[struct {
		Name lenient.Text `json:"name"`
	}] `json:"agent_profile"`
	Config lenient.Object[struct {
		lenient.Data
		Model lenient.Text `json:"active_model"`
	}] `json:"config"`
	Stats lenient.Object[stats] `json:"stats"`
}

// stats counts since the program was started. The prompts include the cache.
type stats struct {
	Prompt     lenient.Number `json:"session_prompt_tokens"`
	Completion lenient.Number `json:"session_completion_tokens"`
	Cached     lenient.Number `json:"session_cached_tokens"`
}
