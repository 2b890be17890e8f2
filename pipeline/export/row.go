package export

import (
	stdjson "encoding/json"
	"math"
	"time"

	"github.com/go-json-experiment/json"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// Row is an event as a row of a file. README.md, Columns, describes each column. A null is a nil pointer or an empty
// optional string.
type Row struct {
	StreamSequence int64     `parquet:"stream_sequence,delta" json:"stream_sequence"`
	StoredAt       time.Time `parquet:"stored_at,timestamp(microsecond)" json:"stored_at"`
	Generation     string    `parquet:"generation,dict" json:"generation"`
	RawSequence    int64     `parquet:"raw_sequence" json:"raw_sequence"`

	Date      day        `parquet:"date,date" json:"date"`
	Source    string     `parquet:"source,dict" json:"source"`
	SessionID string     `parquet:"session_id,dict" json:"session_id"`
	Sequence  int64      `parquet:"sequence" json:"sequence"`
	TS        *time.Time `parquet:"ts,optional,timestamp(microsecond)" json:"ts"`
	EventID   string     `parquet:"event_id" json:"event_id"`
	ParentID  *string    `parquet:"parent_event_id,optional,dict" json:"parent_event_id"`
	EventType string     `parquet:"event_type,dict" json:"event_type"`
	Role      *string    `parquet:"role,optional,dict" json:"role"`
	Channel   *string    `parquet:"channel,optional,dict" json:"channel"`
	Origin    *string    `parquet:"origin,optional,dict" json:"origin"`
	Via       *string    `parquet:"via,optional,dict" json:"via"`
	Internal  bool       `parquet:"is_internal" json:"is_internal"`
	AgentID   *string    `parquet:"agent_id,optional,dict" json:"agent_id"`

	ProjectRoot *string `parquet:"project_root,optional,dict" json:"project_root"`
	ProjectHash string  `parquet:"project_hash,dict" json:"project_hash"`
	Supersedes  *string `parquet:"supersedes,optional" json:"supersedes"`

	Text          *string `parquet:"text,optional" json:"text"`
	TextTruncated bool    `parquet:"text_truncated" json:"text_truncated"`

	ToolName      *string `parquet:"tool_name,optional,dict" json:"tool_name"`
	ToolCallID    *string `parquet:"tool_call_id,optional" json:"tool_call_id"`
	ToolStatus    *string `parquet:"tool_status,optional,dict" json:"tool_status"`
	ToolLatencyMS *int64  `parquet:"tool_latency_ms,optional" json:"tool_latency_ms"`
	ToolExitCode  *int64  `parquet:"tool_exit_code,optional" json:"tool_exit_code"`

	FilePath     *string  `parquet:"file_path,optional,dict" json:"file_path"`
	FileLanguage *string  `parquet:"file_language,optional,dict" json:"file_language"`
	FileOp       *string  `parquet:"file_op,optional,dict" json:"file_op"`
	Files        jsonText `parquet:"files,json,optional" json:"files"`

	Model          *string `parquet:"model,optional,dict" json:"model"`
	TokensInput    *int64  `parquet:"tokens_input,optional" json:"tokens_input"`
	TokensOutput   *int64  `parquet:"tokens_output,optional" json:"tokens_output"`
	TokensTotal    *int64  `parquet:"tokens_total,optional" json:"tokens_total"`
	TokensCached   *int64  `parquet:"tokens_cached,optional" json:"tokens_cached"`
	TokensThinking *int64  `parquet:"tokens_thinking,optional" json:"tokens_thinking"`
	TokensTool     *int64  `parquet:"tokens_tool,optional" json:"tokens_tool"`

	UsageInput      *int64   `parquet:"usage_input,optional" json:"usage_input"`
	UsageCacheRead  *int64   `parquet:"usage_cache_read,optional" json:"usage_cache_read"`
	UsageCacheWrite *int64   `parquet:"usage_cache_write,optional" json:"usage_cache_write"`
	UsageOutput     *int64   `parquet:"usage_output,optional" json:"usage_output"`
	UsageReasoning  *int64   `parquet:"usage_reasoning,optional" json:"usage_reasoning"`
	UsageKey        *string  `parquet:"usage_key,optional" json:"usage_key"`
	UsageWrite1h    *int64   `parquet:"usage_cache_write_1h,optional" json:"usage_cache_write_1h"`
	UsageSearches   *int64   `parquet:"usage_web_search_requests,optional" json:"usage_web_search_requests"`
	UsagePrompt     *int64   `parquet:"usage_prompt,optional" json:"usage_prompt"`
	VendorCost      *float64 `parquet:"usage_cost_usd,optional" json:"usage_cost_usd"`
	UsageKeyUnique  bool     `parquet:"usage_key_unique" json:"usage_key_unique"`

	ErrorCode    *string `parquet:"error_code,optional,dict" json:"error_code"`
	ErrorMessage *string `parquet:"error_message,optional" json:"error_message"`
	ResumeID     *string `parquet:"resume_id,optional,dict" json:"resume_id"`
	AgentVersion *string `parquet:"agent_version,optional,dict" json:"agent_version"`

	Repository  *string  `parquet:"repository,optional,dict" json:"repository"`
	Branch      *string  `parquet:"branch,optional,dict" json:"branch"`
	Commit      *string  `parquet:"commit,optional,dict" json:"commit"`
	PullRequest *string  `parquet:"pull_request,optional,dict" json:"pull_request"`
	Host        *string  `parquet:"host,optional,dict" json:"host"`
	UserName    *string  `parquet:"user_name,optional,dict" json:"user_name"`
	Verified    *bool    `parquet:"user_verified,optional" json:"user_verified"`
	Labels      jsonText `parquet:"labels,json,optional,dict" json:"labels"`

	Metadata        jsonText `parquet:"metadata,json,optional" json:"metadata"`
	ToolMetadata    jsonText `parquet:"tool_metadata,json,optional" json:"tool_metadata"`
	ToolInput       jsonText `parquet:"tool_input,json,optional" json:"tool_input"`
	ToolOutput      jsonText `parquet:"tool_output,json,optional" json:"tool_output"`
	Content         jsonText `parquet:"content,json,optional" json:"content"`
	MessageMetadata jsonText `parquet:"message_metadata,json,optional" json:"message_metadata"`
	Raw             jsonText `parquet:"raw,json,optional" json:"raw"`
}

// jsonText is a JSON value, nil for null. It is no string, because the library of Parquet writes the definition level of an
// optional string in a column of type JSON twice.
type jsonText = stdjson.RawMessage

// newRow returns the row of an event; with raw, including its raw record.
func newRow(generation string, e *events.Event, raw bool) Row {
	r := Row{
		StreamSequence: int64(streams.PlaceOf(e.Cell, e.Position)), StoredAt: e.Stored, Generation: generation, RawSequence: int64(e.Provenance.RawSequence),
		Source: string(e.Source), SessionID: e.SessionID, Sequence: int64(e.Sequence), EventID: e.EventID, ParentID: e.ParentEventID,
		EventType: string(e.EventType), Role: asString(e.Role), Channel: asString(e.Channel), Origin: stated(string(e.Origin)), Via: stated(string(e.Via)),
		Internal: e.IsInternal, AgentID: e.AgentID, ProjectRoot: e.ProjectRoot, ProjectHash: e.ProjectHash, Supersedes: stated(e.Supersedes),
		Text: e.Text, TextTruncated: e.TextTruncated,
		ToolName: e.ToolName, ToolCallID: e.ToolCallID, ToolStatus: asString(e.ToolStatus), ToolLatencyMS: e.ToolLatencyMS, ToolExitCode: e.ToolExitCode,
		FilePath: e.FilePath, FileLanguage: e.FileLanguage, FileOp: asString(e.FileOp), Model: e.Model,
		TokensInput: e.TokensInput, TokensOutput: e.TokensOutput, TokensTotal: e.TokensTotal,
		TokensCached: e.TokensCached, TokensThinking: e.TokensThinking, TokensTool: e.TokensTool,
		ToolMetadata: jsonText(e.ToolMetadata), ToolInput: jsonText(e.ToolInput), MessageMetadata: jsonText(e.MessageMetadata),
	}
	if t, err := e.Timestamp(); err == nil {
		r.TS = &t
	}
	r.Date = r.date()
	if len(e.Files) > 0 {
		r.Files = encode(e.Files)
	}
	if u := e.Usage; u != nil {
		r.UsageInput, r.UsageCacheRead, r.UsageCacheWrite, r.UsageOutput, r.UsageReasoning = &u.Input, &u.CacheRead, &u.CacheWrite, &u.Output, &u.Reasoning
		r.UsageWrite1h, r.UsageSearches = &u.CacheWrite1h, &u.WebSearchRequests
		if u.Prompt != 0 {
			r.UsagePrompt = &u.Prompt
		}
		if u.CostUSD != 0 {
			r.VendorCost = &u.CostUSD
		}
		r.UsageKey, r.UsageKeyUnique = stated(u.Key), u.KeyIsUnique(e.Source)
	}
	if v := e.VCS; v != nil {
		r.Repository, r.Branch, r.Commit, r.PullRequest = stated(v.Repository), stated(v.Branch), stated(v.Commit), stated(v.PullRequest)
	}
	if g := e.Edge; g != nil {
		r.Host, r.UserName = stated(g.Host), stated(g.User)
		if g.User != "" {
			r.Verified = &g.Verified
		}
		if len(g.Labels) > 0 {
			r.Labels = encode(g.Labels)
		}
	}
	if e.Metadata != nil {
		r.Metadata = encode(e.Metadata)
		r.ErrorCode, r.ErrorMessage = problem(e.Metadata)
		r.ResumeID, r.AgentVersion = e.Metadata.SessionID, agentVersion(e.Metadata)
	}
	if e.ToolOutput != nil {
		r.ToolOutput = encode(e.ToolOutput)
	}
	if e.Content != nil {
		r.Content = encode(e.Content)
	}
	if raw {
		r.Raw = jsonText(e.Raw)
	}
	return r
}

// problem returns the error stated in the metadata of an event; nil for none.
func problem(m *envelopes.Metadata) (code, message *string) {
	var e struct {
		Code    *string `json:"code"`
		Message *string `json:"message"`
	}
	if v := m.Extensions["error"]; v == nil || json.Unmarshal(v, &e) != nil {
		return nil, nil
	}
	if e.Code == nil && e.Message == nil {
		e.Message = new("")
	}
	return e.Code, e.Message
}

// agentVersion returns the agent version stated in the metadata of an event; nil for none.
func agentVersion(m *envelopes.Metadata) *string {
	for _, name := range []string{"version", "claudeCodeVersion"} {
		var version string
		if v := m.Extensions[name]; v != nil && json.Unmarshal(v, &version) == nil {
			return stated(version)
		}
	}
	return nil
}

// encode encodes a part of an event as JSON. It was decoded from JSON, so this cannot fail.
func encode(v any) jsonText {
	b, _ := json.Marshal(v, json.Deterministic(true)) // see above
	return b
}

// asString returns the value of an enum.
func asString[T ~string](v *T) *string {
	if v == nil {
		return nil
	}
	return new(string(*v))
}

// stated returns nil for an empty value.
func stated(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// size returns the approximate memory of a row, in bytes.
func (r *Row) size() int {
	n := 1024 + len(r.SessionID) + len(r.EventID) + len(r.Files) + len(r.Metadata) + len(r.ToolMetadata) +
		len(r.ToolInput) + len(r.ToolOutput) + len(r.Content) + len(r.MessageMetadata) + len(r.Raw)
	if r.Text != nil {
		n += len(*r.Text)
	}
	return n
}

// date returns the date of an event in UTC; for an event without a time, the date on which it was stored.
func (r *Row) date() day {
	t := r.StoredAt
	if r.TS != nil {
		t = *r.TS
	}
	return day(math.Floor(float64(t.Unix()) / secondsOfDay))
}

// day is a date as the number of days since 1970.
type day int32

const secondsOfDay = 24 * 60 * 60

// String returns the date as 2006-01-02.
func (d day) String() string { return time.Unix(int64(d)*secondsOfDay, 0).UTC().Format(time.DateOnly) }

// MarshalText implements [encoding.TextMarshaler].
func (d day) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
