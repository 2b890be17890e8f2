package envelopes

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

func TestValidateAcceptsValidEvents(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*AgentEventV1){
		"full":                         func(*AgentEventV1) {},
		"least":                        func(e *AgentEventV1) { *e = plainUserMessage() },
		"no parent before the prompt":  func(e *AgentEventV1) { e.ParentEventID = nil },
		"negative exit code":           func(e *AgentEventV1) { e.ToolExitCode = new(int64(-1)) },
		"nanoseconds":                  func(e *AgentEventV1) { e.TS = "2025-11-26T12:51:28.123456789Z" },
		"leap day":                     func(e *AgentEventV1) { e.TS = "2024-02-29T00:00:00Z" },
		"both ids of metadata unknown": func(e *AgentEventV1) { e.Metadata.Model = nil },
		"longest ids": func(e *AgentEventV1) {
			e.SessionID, e.EventID = strings.Repeat("s", MaxIDBytes), strings.Repeat("e", MaxIDBytes)
		},
		"raw is a string": func(e *AgentEventV1) { e.Raw = jsontext.Value(`"a line"`) },
		"largest count": func(e *AgentEventV1) {
			e.Usage, e.TokensTotal = &Usage{Reasoning: maxCount}, new(int64(maxCount))
		},
	} {
		e := plainToolResult()
		change(&e)
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateNamesTheInvalidField(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t" // part of every invalid value, and of no error
	for name, test := range map[string]struct {
		field  string
		change func(*AgentEventV1)
	}{
		"other version":          {"schema_version", func(e *AgentEventV1) { e.SchemaVersion = secret }},
		"unknown source":         {"source", func(e *AgentEventV1) { e.Source = secret }},
		"no project":             {"project_hash", func(e *AgentEventV1) { e.ProjectHash = "" }},
		"no session":             {"session_id", func(e *AgentEventV1) { e.SessionID = "" }},
		"long session":           {"session_id", func(e *AgentEventV1) { e.SessionID = strings.Repeat(secret, 200) }},
		"session not UTF-8":      {"session_id", func(e *AgentEventV1) { e.SessionID = secret + "\xff" }},
		"no id":                  {"event_id", func(e *AgentEventV1) { e.EventID = "" }},
		"long id":                {"event_id", func(e *AgentEventV1) { e.EventID = strings.Repeat(secret, 200) }},
		"empty parent":           {"parent_event_id", func(e *AgentEventV1) { e.ParentEventID = new("") }},
		"parent of user message": {"parent_event_id", func(e *AgentEventV1) { e.EventType, e.Role = UserMessage, new(RoleUser) }},
		"supersedes itself":      {"supersedes", func(e *AgentEventV1) { e.Supersedes = e.EventID }},
		"unknown type":           {"event_type", func(e *AgentEventV1) { e.EventType = secret }},
		"no role":                {"role", func(e *AgentEventV1) { e.Role = nil }},
		"role of another type":   {"role", func(e *AgentEventV1) { e.Role = new(RoleAssistant) }},
		"unknown channel":        {"channel", func(e *AgentEventV1) { e.Channel = new(Channel(secret)) }},
		"unknown status":         {"tool_status", func(e *AgentEventV1) { e.ToolStatus = new(ToolStatus(secret)) }},
		"unknown file op":        {"file_op", func(e *AgentEventV1) { e.FileOp = new(FileOp(secret)) }},
		"unknown via":            {"via", func(e *AgentEventV1) { e.Via = secret }},
		"unknown origin":         {"origin", func(e *AgentEventV1) { e.Origin = secret }},
		"negative latency":       {"tool_latency_ms", func(e *AgentEventV1) { e.ToolLatencyMS = new(int64(-1)) }},
		"negative tokens":        {"tokens_cached", func(e *AgentEventV1) { e.TokensCached = new(int64(-1)) }},
		"absurd tokens":          {"tokens_input", func(e *AgentEventV1) { e.TokensInput = new(int64(maxCount + 1)) }},
		"negative usage":         {"usage", func(e *AgentEventV1) { e.Usage.Reasoning, e.Usage.Output = -1, 6 }},
		"overflowing usage":      {"usage", func(e *AgentEventV1) { e.Usage.Input, e.Usage.Output = 1<<62, 1<<62 }},
		"total is not the sum":   {"tokens_total", func(e *AgentEventV1) { e.TokensTotal = new(int64(16)) }},
		"tokens without total":   {"tokens_total", func(e *AgentEventV1) { e.TokensTotal = nil }},
		"tokens without usage":   {"usage", func(e *AgentEventV1) { e.Usage = nil }},
		"negative searches":      {"usage", func(e *AgentEventV1) { e.Usage.WebSearchRequests = -1 }},
		"absurd prompt":          {"usage", func(e *AgentEventV1) { e.Usage.Prompt = maxCount + 1 }},
		"more of an hour":        {"usage", func(e *AgentEventV1) { e.Usage.CacheWrite1h = e.Usage.CacheWrite + 1 }},
		"negative cost":          {"usage", func(e *AgentEventV1) { e.Usage.CostUSD = -0.5 }},
		"cost is no number":      {"usage", func(e *AgentEventV1) { e.Usage.CostUSD = math.NaN() }},
		"absurd cost":            {"usage", func(e *AgentEventV1) { e.Usage.CostUSD = MaxCostUSD + 1 }},
		"usage key not UTF-8":    {"usage", func(e *AgentEventV1) { e.Usage.Key = secret + "\xff" }},
		"sequence zero":          {"sequence", func(e *AgentEventV1) { e.Sequence = 0 }},
		"file without path":      {"files", func(e *AgentEventV1) { e.Files[0].Path = "" }},
		"file with unknown op":   {"files", func(e *AgentEventV1) { e.Files[0].Op = secret }},
		"text not UTF-8":         {"text", func(e *AgentEventV1) { e.Text = new(secret + "\xc0\xa0") }},
		"raw is no JSON":         {"raw", func(e *AgentEventV1) { e.Raw = jsontext.Value(secret) }},
		"raw is empty":           {"raw", func(e *AgentEventV1) { e.Raw = jsontext.Value{} }},
		"tool metadata is array": {"tool_metadata", func(e *AgentEventV1) { e.ToolMetadata = jsontext.Value(`["s3cr3t"]`) }},
		"tool input is no JSON":  {"tool_input", func(e *AgentEventV1) { e.ToolInput = jsontext.Value(secret) }},
		"tool output not UTF-8":  {"tool_output", func(e *AgentEventV1) { e.ToolOutput.Stderr = new(secret + "\xff") }},
		"verified nobody":        {"edge", func(e *AgentEventV1) { e.Edge.User, e.Edge.Verified = "", true }},
		"user not UTF-8":         {"edge", func(e *AgentEventV1) { e.Edge.User = secret + "\xff" }},
		"label not UTF-8":        {"edge", func(e *AgentEventV1) { e.Edge.Labels["team"] = secret + "\xff" }},
		"branch not UTF-8":       {"vcs", func(e *AgentEventV1) { e.VCS.Branch = secret + "\xff" }},
		"content not UTF-8":      {"content", func(e *AgentEventV1) { e.Content.Data = new(secret + "\xff") }},
		"message metadata is object": {"message_metadata", func(e *AgentEventV1) {
			e.MessageMetadata = jsontext.Value(`{"s3cr3t":1}`)
		}},
		"extension named as standard": {"metadata", func(e *AgentEventV1) {
			e.Metadata.Extensions["model"] = jsontext.Value(`"s3cr3t"`)
		}},
		"extension is no JSON": {"metadata", func(e *AgentEventV1) { e.Metadata.Extensions[secret] = nil }},
		"extension not UTF-8": {"metadata", func(e *AgentEventV1) {
			e.Metadata.Extensions[secret+"\xff"] = jsontext.Value(`1`)
		}},
		"metadata id not UTF-8": {"metadata", func(e *AgentEventV1) { e.Metadata.SessionID = new(secret + "\xff") }},
	} {
		e := plainToolResult()
		test.change(&e)
		err := e.Validate()
		if !errors.Is(err, ErrInvalidEvent) || !strings.Contains(err.Error(), " "+test.field+" ") {
			t.Errorf("%s: got %v, want ErrInvalidEvent on %s", name, err, test.field)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error repeats the value: %v", name, err)
		}
	}
}

func TestValidateRejectsInvalidUTF8(t *testing.T) {
	t.Parallel()
	const bad = "s3cr3t\xff"
	full := plainToolResult()
	full.AgentID = new("agent")
	for i := range reflect.TypeFor[AgentEventV1]().NumField() {
		e := full
		field := reflect.ValueOf(&e).Elem().Field(i)
		name, _, _ := strings.Cut(reflect.TypeFor[AgentEventV1]().Field(i).Tag.Get("json"), ",")
		switch {
		case field.Kind() == reflect.String:
			field.SetString(bad)
		case field.Kind() == reflect.Pointer && field.Type().Elem().Kind() == reflect.String:
			field.Set(reflect.New(field.Type().Elem()))
			field.Elem().SetString(bad)
		default:
			continue
		}
		err := e.Validate()
		if !errors.Is(err, ErrInvalidEvent) || !strings.Contains(err.Error(), " "+name+" ") || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateEnforcesTheRoleTable(t *testing.T) {
	t.Parallel()
	for _, eventType := range EventTypes {
		allowed := map[Role]bool{}
		for _, role := range RolesOf(eventType) {
			allowed[role] = true
		}
		if len(allowed) == 0 {
			t.Errorf("%s: no role", eventType)
		}
		for _, role := range roles {
			e := plainUserMessage()
			e.EventType, e.Role = eventType, &role
			if err := e.Validate(); (err == nil) != allowed[role] {
				t.Errorf("%s with role %s: %v", eventType, role, err)
			}
		}
	}
}

func TestTimestampsAreUTCWithZ(t *testing.T) {
	t.Parallel()
	for _, ts := range []string{
		"", "Z", "2025-11-26", "2025-11-26T12:51:28", "2025-11-26T12:51:28+00:00", "2025-11-26T12:51:28z",
		"2025-11-26t12:51:28Z", "2025-11-26 12:51:28Z", "2025-11-26T12:51:28.Z", "2025-11-26T12:51:28,5Z",
		"2025-11-26T12:51:60Z", "2025-11-26T24:00:00Z", "2025-11-26T12:60:00Z", "2025-13-01T00:00:00Z",
		"2025-00-01T00:00:00Z", "2025-01-00T00:00:00Z", "2025-02-29T00:00:00Z", "1900-02-29T00:00:00Z",
		"2025-04-31T00:00:00Z", "20251-1-26T12:51:28Z", "2025-11-26T12:51:28.5aZ", "2025-11-26T12:51:28Z ", "２025-11-26T12:51:28Z",
	} {
		if validTimestamp(ts) {
			t.Errorf("%q is accepted", ts)
		}
	}
	// Every accepted timestamp is a time, and every time without a comma is accepted.
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(anyTimestamp().Draw(t, "ts"))
		if !validTimestamp(string(b)) {
			t.Fatalf("%s is rejected", b)
		}
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = byte(rapid.SampledFrom([]rune("0123456789Z.:-T,")).Draw(t, "byte"))
		_, err := time.Parse(time.RFC3339Nano, string(b))
		if valid := validTimestamp(string(b)); valid && err != nil {
			t.Fatalf("%s is accepted and is not a time: %v", b, err)
		} else if !valid && err == nil && !strings.Contains(string(b), ",") {
			t.Fatalf("%s is rejected and is a time", b)
		}
	})
}
