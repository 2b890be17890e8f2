package envelopes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// plainToolResult is a valid event with most fields set.
func plainToolResult() AgentEventV1 {
	return AgentEventV1{
		SchemaVersion: SchemaVersion,
		Source:        Codex,
		ProjectHash:   strings.Repeat("0f", 32),
		ProjectRoot:   new("/home/ada/engine"),
		SessionID:     "0199a213-81c0-7800-8aa1-bbab2a035a53",
		EventID:       "call_7#result",
		ParentEventID: new("@12"),
		TS:            "2025-11-26T12:51:28.090Z",
		EventType:     ToolResult,
		Role:          new(RoleTool),
		Channel:       new(ChannelTerminal),
		Text:          new("ok <1 & 2>"),
		ToolName:      new("shell"),
		ToolCallID:    new("call_7"),
		ToolStatus:    new(StatusSuccess),
		ToolLatencyMS: new(int64(1200)),
		ToolExitCode:  new(int64(0)),
		FilePath:      new("main.go"),
		FileLanguage:  new("Go"),
		FileOp:        new(OpRead),
		Model:         new("gpt-5-codex"),
		TokensInput:   new(int64(10)),
		TokensOutput:  new(int64(5)),
		TokensTotal:   new(int64(15)),
		Raw:           jsontext.Value(`{"type":"response_item","payload":{"output":"ok \u003c1"}}`),
		Sequence:      13,
		Metadata: &Metadata{
			Model:      new("gpt-5-codex"),
			Extensions: map[string]jsontext.Value{"threadId": jsontext.Value(`"t"`), "approval": jsontext.Value(`{"mode":"never"}`)},
		},
		ToolMetadata:    jsontext.Value(`{"exit":0}`),
		ToolInput:       jsontext.Value(`{"command":["cat","main.go"]}`),
		ToolOutput:      &ToolOutput{Stdout: new("ok"), Stderr: new("")},
		Content:         &FileContent{Type: "text/x-go"},
		MessageMetadata: jsontext.Value(`[{"kind":"citation"}]`),
		Usage: &Usage{
			Input: 5, CacheRead: 2, CacheWrite: 3, Output: 5, Key: "turn-1",
			CacheWrite1h: 1, WebSearchRequests: 2, Prompt: 200_001, CostUSD: 0.0123456,
		},
		Files:         []File{{Path: "main.go", Op: OpRead}},
		Origin:        OriginInjected,
		IsInternal:    true,
		Supersedes:    "call_6",
		TextTruncated: true,
		Edge:          &Edge{Host: "anvil", User: "ada", Labels: map[string]string{"team": "payments", "env": "ci"}},
		VCS: &VCS{
			Repository: "github.com/acme/shop", Branch: "fix/total", Commit: "0f0e", PullRequest: "https://github.com/acme/shop/pull/7",
		},
	}
}

// plainUserMessage is a valid event with the required fields only.
func plainUserMessage() AgentEventV1 {
	return AgentEventV1{
		SchemaVersion: SchemaVersion,
		Source:        ClaudeCode,
		ProjectHash:   "p",
		SessionID:     "s",
		EventID:       "e",
		TS:            "2025-11-26T12:51:28Z",
		EventType:     UserMessage,
		Role:          new(RoleUser),
		Sequence:      1,
	}
}

// anyID draws an id: short or long, plain or with any character of Unicode.
func anyID() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[A-Za-z0-9_-]{1,70}`),
		rapid.StringN(1, -1, 200),
		rapid.StringN(1, -1, MaxIDBytes),
		rapid.SampledFrom([]string{" ", "a b", "%", "%41", "\n", "call_1\nfc_2", "~", "~~", ".", "..", "*", ">", "a.b", "\u00a0x\u2028", "\ufffe", "/", "?#", "ﬀ", "\""}),
	)
}

// orNil draws null or a value.
func orNil[T any](t *rapid.T, name string, g *rapid.Generator[T]) *T {
	return rapid.Ptr(g, true).Draw(t, name)
}

// anyJSON draws strict JSON on one line, in spellings of all kinds.
func anyJSON(depth int) *rapid.Generator[jsontext.Value] {
	return rapid.Custom(func(t *rapid.T) jsontext.Value {
		kinds := 3
		if depth == 0 {
			kinds = 1
		}
		switch rapid.IntRange(0, kinds).Draw(t, "kind") {
		case 0:
			return rapid.SampledFrom([]jsontext.Value{
				[]byte(`true`), []byte(`0`), []byte(`-0`), []byte(`1e400`), []byte(`123456789012345678901234567890`),
				[]byte(`0.10`), []byte(`"\u003c\/\ud83d\ude00"`), []byte(`"<&>"`), []byte(`""`),
			}).Draw(t, "scalar").Clone()
		case 1:
			quoted, _ := jsontext.AppendQuote(nil, rapid.String().Draw(t, "string"))
			return quoted
		case 2:
			b := []byte{'['}
			for i, v := range rapid.SliceOfN(anyJSON(depth-1), 0, 4).Draw(t, "array") {
				if i > 0 {
					b = append(b, ',')
				}
				b = append(b, v...)
			}
			return append(b, ']')
		default:
			return anyObject(depth-1).Draw(t, "object")
		}
	})
}

// anyObject draws a strict JSON object.
func anyObject(depth int) *rapid.Generator[jsontext.Value] {
	return rapid.Custom(func(t *rapid.T) jsontext.Value {
		b := []byte{'{'}
		for i, name := range rapid.SliceOfNDistinct(rapid.String(), 0, 4, rapid.ID[string]).Draw(t, "names") {
			if i > 0 {
				b = append(b, ',')
			}
			b, _ = jsontext.AppendQuote(b, name)
			b = append(append(b, ':'), anyJSON(depth).Draw(t, "value")...)
		}
		return append(b, '}')
	})
}

// anyTimestamp draws a ts in one of the precisions that sources have.
func anyTimestamp() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		at := time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "seconds"), 0).UTC()
		ts := at.Format("2006-01-02T15:04:05")
		if digits := rapid.IntRange(0, 9).Draw(t, "digits"); digits > 0 {
			ts += fmt.Sprintf(".%0*d", digits, rapid.IntRange(0, 9).Draw(t, "fraction"))
		}
		return ts + "Z"
	})
}

// anyEvent draws a valid event.
func anyEvent() *rapid.Generator[AgentEventV1] {
	return rapid.Custom(func(t *rapid.T) AgentEventV1 {
		text := rapid.String()
		e := AgentEventV1{
			SchemaVersion: SchemaVersion,
			Source:        rapid.SampledFrom(Sources).Draw(t, "source"),
			ProjectHash:   rapid.StringN(1, -1, -1).Draw(t, "project_hash"),
			ProjectRoot:   orNil(t, "project_root", text),
			SessionID:     anyID().Draw(t, "session_id"),
			EventID:       anyID().Draw(t, "event_id"),
			TS:            anyTimestamp().Draw(t, "ts"),
			EventType:     rapid.SampledFrom(EventTypes).Draw(t, "event_type"),
			Channel:       orNil(t, "channel", rapid.SampledFrom(channels)),
			Text:          orNil(t, "text", text),
			ToolName:      orNil(t, "tool_name", text),
			ToolCallID:    orNil(t, "tool_call_id", text),
			ToolStatus:    orNil(t, "tool_status", rapid.SampledFrom(toolStatuses)),
			ToolLatencyMS: orNil(t, "tool_latency_ms", rapid.Int64Range(0, maxCount)),
			ToolExitCode:  orNil(t, "tool_exit_code", rapid.Int64()),
			FilePath:      orNil(t, "file_path", text),
			FileLanguage:  orNil(t, "file_language", text),
			FileOp:        orNil(t, "file_op", rapid.SampledFrom(fileOps)),
			Model:         orNil(t, "model", text),
			AgentID:       orNil(t, "agent_id", text),
			Sequence:      rapid.Uint64Range(1, 1<<64-1).Draw(t, "sequence"),
			Origin:        rapid.SampledFrom(append([]Origin{""}, origins...)).Draw(t, "origin"),
			Via:           rapid.SampledFrom(append([]Via{""}, vias...)).Draw(t, "via"),
			IsInternal:    rapid.Bool().Draw(t, "is_internal"),
			TextTruncated: rapid.Bool().Draw(t, "text_truncated"),
		}
		e.Role = new(rapid.SampledFrom(RolesOf(e.EventType)).Draw(t, "role"))
		if e.EventType != UserMessage {
			e.ParentEventID = orNil(t, "parent_event_id", anyID())
		}
		if id := anyID().Draw(t, "supersedes"); id != e.EventID && rapid.Bool().Draw(t, "has supersedes") {
			e.Supersedes = id
		}
		if rapid.Bool().Draw(t, "has usage") {
			part := rapid.Int64Range(0, maxCount/5)
			e.Usage = &Usage{
				Input: part.Draw(t, "input"), CacheRead: part.Draw(t, "cache_read"), CacheWrite: part.Draw(t, "cache_write"),
				Output: part.Draw(t, "output"), Reasoning: part.Draw(t, "reasoning"), Key: text.Draw(t, "key"),
				WebSearchRequests: part.Draw(t, "web_search_requests"), Prompt: part.Draw(t, "prompt"),
				CostUSD: rapid.Float64Range(0, MaxCostUSD).Draw(t, "cost_usd"),
			}
			e.Usage.CacheWrite1h = rapid.Int64Range(0, e.Usage.CacheWrite).Draw(t, "cache_write_1h")
			e.TokensTotal = new(e.Usage.Total())
			e.TokensInput = orNil(t, "tokens_input", part)
			e.TokensOutput = orNil(t, "tokens_output", part)
			e.TokensCached = orNil(t, "tokens_cached", part)
			e.TokensThinking = orNil(t, "tokens_thinking", part)
			e.TokensTool = orNil(t, "tokens_tool", part)
		}
		if rapid.Bool().Draw(t, "has native JSON") {
			e.Raw = anyJSON(3).Draw(t, "raw")
			e.ToolMetadata = anyObject(2).Draw(t, "tool_metadata")
			e.ToolInput = anyJSON(2).Draw(t, "tool_input")
			e.MessageMetadata = slices.Concat([]byte{'['}, anyObject(1).Draw(t, "message_metadata"), []byte{']'})
		}
		if rapid.Bool().Draw(t, "has tool_output") {
			e.ToolOutput = &ToolOutput{Stdout: orNil(t, "stdout", text), Stderr: orNil(t, "stderr", text), Diff: orNil(t, "diff", text)}
		}
		if rapid.Bool().Draw(t, "has content") {
			e.Content = &FileContent{Type: text.Draw(t, "content.type"), Data: orNil(t, "data", text), URL: orNil(t, "url", text)}
		}
		if rapid.Bool().Draw(t, "has metadata") {
			e.Metadata = &Metadata{SessionID: orNil(t, "metadata.sessionId", text), Model: orNil(t, "metadata.model", text)}
			names := rapid.SliceOfNDistinct(text, 0, 3, rapid.ID[string]).Draw(t, "extensions")
			for i, name := range names {
				if e.Metadata.Extensions == nil {
					e.Metadata.Extensions = map[string]jsontext.Value{}
				}
				e.Metadata.Extensions["x"+name] = anyJSON(2).Draw(t, "extension "+strconv.Itoa(i))
			}
		}
		file := rapid.Custom(func(t *rapid.T) File {
			return File{Path: rapid.StringN(1, -1, -1).Draw(t, "path"), Op: rapid.SampledFrom(fileOps).Draw(t, "op")}
		})
		edge := Edge{Host: text.Draw(t, "host"), User: text.Draw(t, "user")}
		if labels := rapid.MapOfN(text, text, 0, 3).Draw(t, "labels"); len(labels) > 0 {
			edge.Labels = labels
		}
		edge.Verified = edge.User != "" && rapid.Bool().Draw(t, "verified")
		if !edge.IsZero() {
			e.Edge = &edge
		}
		vcs := VCS{
			Repository: text.Draw(t, "repository"), Branch: text.Draw(t, "branch"), Commit: text.Draw(t, "commit"),
			PullRequest: text.Draw(t, "pull_request"),
		}
		if !vcs.IsZero() {
			e.VCS = &vcs
		}
		if files := rapid.SliceOfN(file, 0, 3).Draw(t, "files"); len(files) > 0 {
			e.Files = files
		}
		return e
	})
}

// anyProvenance draws a provenance.
func anyProvenance() *rapid.Generator[Provenance] {
	return rapid.Custom(func(t *rapid.T) Provenance {
		p := Provenance{
			Generation:  rapid.StringMatching(`[a-z0-9-]{1,32}`).Filter(func(s string) bool { return s != "current" }).Draw(t, "generation"),
			Partition:   rapid.IntRange(-1, 1023).Draw(t, "partition"),
			RawStream:   rapid.SampledFrom([]string{"", "RAW"}).Draw(t, "rawstream"),
			RawSequence: rapid.Uint64().Draw(t, "rawsequence"),
			Traceparent: rapid.SampledFrom([]string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}).Draw(t, "traceparent"),
		}
		if p.Traceparent != "" {
			p.Tracestate = rapid.SampledFrom([]string{"", "vendor=a b,other=\"x%y\""}).Draw(t, "tracestate")
		}
		return p
	})
}
