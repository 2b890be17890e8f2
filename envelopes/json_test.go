package envelopes

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// keys returns the names of a JSON object in their order.
func keys(t *testing.T, object []byte) []string {
	t.Helper()
	var names []string
	decoder := jsontext.NewDecoder(bytes.NewReader(object))
	if _, err := decoder.ReadToken(); err != nil {
		t.Fatal(err)
	}
	for decoder.PeekKind() == jsontext.KindString {
		name, err := decoder.ReadToken()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name.String())
		if err := decoder.SkipValue(); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// specFields are the 29 fields of the schema in their order.
var specFields = strings.Fields(`
	schema_version source project_hash project_root session_id event_id parent_event_id ts
	event_type role channel text
	tool_name tool_call_id tool_status tool_latency_ms tool_exit_code
	file_path file_language file_op
	model tokens_input tokens_output tokens_total tokens_cached tokens_thinking tokens_tool
	agent_id raw`)

var additiveFields = strings.Fields(`
	sequence metadata tool_metadata tool_input tool_output content message_metadata usage files origin is_internal supersedes text_truncated edge vcs`)

func TestFieldsAreInTheOrderOfTheSchema(t *testing.T) {
	t.Parallel()
	if len(specFields) != 29 {
		t.Fatalf("%d fields", len(specFields))
	}
	for name, test := range map[string]struct {
		event AgentEventV1
		want  []string
	}{
		"zero": {AgentEventV1{Files: []File{}, Edge: &Edge{}, VCS: &VCS{}}, specFields},
		"full": {plainToolResult(), append(append([]string{}, specFields...), additiveFields...)},
	} {
		b, err := test.event.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, keys(t, b)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestEventInJSON(t *testing.T) {
	t.Parallel()
	const want = `{"schema_version":"agtrace.event.v1","source":"codex",` +
		`"project_hash":"0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f","project_root":"/home/ada/engine",` +
		`"session_id":"0199a213-81c0-7800-8aa1-bbab2a035a53","event_id":"call_7#result","parent_event_id":"@12",` +
		`"ts":"2025-11-26T12:51:28.090Z","event_type":"tool_result","role":"tool","channel":"terminal","text":"ok <1 & 2>",` +
		`"tool_name":"shell","tool_call_id":"call_7","tool_status":"success","tool_latency_ms":1200,"tool_exit_code":0,` +
		`"file_path":"main.go","file_language":"Go","file_op":"read","model":"gpt-5-codex",` +
		`"tokens_input":10,"tokens_output":5,"tokens_total":15,"tokens_cached":null,"tokens_thinking":null,"tokens_tool":null,` +
		`"agent_id":null,"raw":{"type":"response_item","payload":{"output":"ok \u003c1"}},` +
		`"sequence":13,"metadata":{"sessionId":null,"model":"gpt-5-codex","approval":{"mode":"never"},"threadId":"t"},` +
		`"tool_metadata":{"exit":0},"tool_input":{"command":["cat","main.go"]},"tool_output":{"stdout":"ok","stderr":""},` +
		`"content":{"type":"text/x-go"},"message_metadata":[{"kind":"citation"}],` +
		`"usage":{"input":5,"cache_read":2,"cache_write":3,"output":5,"reasoning":0,"key":"turn-1",` +
		`"cache_write_1h":1,"web_search_requests":2,"prompt":200001,"cost_usd":0.0123456},` +
		`"files":[{"path":"main.go","op":"read"}],"origin":"injected","is_internal":true,"supersedes":"call_6","text_truncated":true,` +
		`"edge":{"host":"anvil","user":"ada","labels":{"env":"ci","team":"payments"}},` +
		`"vcs":{"repository":"github.com/acme/shop","branch":"fix/total","commit":"0f0e","pull_request":"https://github.com/acme/shop/pull/7"}}`
	e := plainToolResult()
	got, err := e.AppendJSON([]byte("before "))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("before "+want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAppendJSONKeepsNativeSpelling(t *testing.T) {
	t.Parallel()
	e := plainUserMessage()
	e.Raw = jsontext.Value("{ \"a\\/b\" :\n\t[ 1e400, -0, 1.50, \"\\u003c\\ud83d\\ude00<&>\" ] }\n")
	got, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = `"raw":{"a\/b":[1e400,-0,1.50,"\u003c\ud83d\ude00<&>"]}`
	if !strings.Contains(string(got), want) {
		t.Errorf("got %s", got)
	}
}

func TestAppendJSONRejectsWhatIsNotStrictJSON(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		field string
		raw   string
	}{
		"invalid UTF-8":   {"raw", "{\"s3cr3t\":\"\xff\"}"},
		"lone surrogate":  {"raw", `{"s3cr3t":"\ud800"}`},
		"duplicate name":  {"raw", `{"s3cr3t":1,"s3cr3t":2}`},
		"same name twice": {"raw", `{"s3cr3t":1,"s3cr3\u0074":2}`},
		"cut off":         {"raw", `{"s3cr3t":1`},
		"two values":      {"raw", `{"s3cr3t":1}{}`},
		"too deep":        {"raw", strings.Repeat(`{"s3cr3t":`, 129) + "1" + strings.Repeat("}", 129)},
	} {
		e := plainUserMessage()
		e.Raw = jsontext.Value(test.raw)
		if err := e.Validate(); err != nil {
			t.Errorf("%s: Validate leaves this to the encoder, and returned %v", name, err)
		}
		got, err := e.AppendJSON([]byte("kept"))
		if !errors.Is(err, ErrInvalidEvent) || !strings.Contains(err.Error(), test.field) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
		if string(got) != "kept" {
			t.Errorf("%s: dst became %q", name, got)
		}
	}
	e := plainUserMessage()
	e.Text = new("\xff")
	if _, err := e.AppendJSON(nil); !errors.Is(err, ErrInvalidEvent) || !strings.Contains(err.Error(), "text") {
		t.Errorf("text: %v", err)
	}
	e.Text = nil
	e.Raw = jsontext.Value(strings.Repeat(`[`, 128) + strings.Repeat("]", 128))
	if _, err := e.AppendJSON(nil); err != nil {
		t.Errorf("the deepest valid record: %v", err)
	}
}

func TestDecodeAgentEventIsStrictAndIgnoresUnknownFields(t *testing.T) {
	t.Parallel()
	got, err := DecodeAgentEvent([]byte(` {"event_id":"e","Source":"not ours","future":[1],"role":"robot","raw":null,"tool_metadata":null,"files":[]} `))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(AgentEventV1{EventID: "e", Role: new(Role("robot")), Files: []File{}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, data := range map[string]string{
		"nothing":         "",
		"null":            "null",
		"array":           "[]",
		"cut off":         `{"text":"s3cr3t`,
		"trailing":        `{} {"s3cr3t":1}`,
		"wrong type":      `{"text":{"s3cr3t":1}}`,
		"fraction":        `{"tokens_input":1.5}`,
		"overflow":        `{"tokens_input":99999999999999999999}`,
		"negative":        `{"sequence":-1}`,
		"duplicate":       `{"s3cr3t":1,"s3cr3t":2}`,
		"invalid UTF-8":   "{\"text\":\"s3cr3t\xff\"}",
		"lone surrogate":  `{"text":"s3cr3t\ud800"}`,
		"too deep":        `{"raw":` + strings.Repeat("[", 129) + strings.Repeat("]", 129) + `}`,
		"byte order mark": "\ufeff{}",
	} {
		_, err := DecodeAgentEvent([]byte(data))
		if !errors.Is(err, ErrInvalidEvent) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecodedEventSharesNoMemory(t *testing.T) {
	t.Parallel()
	e := plainToolResult()
	data, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeAgentEvent(data)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	if diff := cmp.Diff(e, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEncodingJSONGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	e := plainToolResult()
	e.Text, e.Raw = new("plain"), jsontext.Value(`{}`) // encoding/json escapes HTML
	want, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := stdjson.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var back struct{ A, B AgentEventV1 }
	if err := stdjson.Unmarshal([]byte(`{"A":`+string(got)+`,"B":null}`), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, back.A); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestValidEventSurvivesJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent().Draw(t, "event")
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
		data, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsAny(data, "\n\r") {
			t.Fatal("more than one line")
		}
		if library, err := e.appendAny(nil); err != nil || !bytes.Equal(library, data) {
			t.Fatalf("the library writes (%v)\n%s\nbut the fast path\n%s", err, library, data)
		}
		got, err := DecodeAgentEvent(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestEventOfEveryFieldTakesTheFastPath(t *testing.T) {
	t.Parallel()
	all := plainToolResult()
	all.TokensCached, all.TokensThinking, all.TokensTool, all.AgentID, all.Via = new(int64(2)), new(int64(3)), new(int64(4)), new("agent"), ViaTelemetry
	for i := range reflect.TypeFor[AgentEventV1]().NumField() {
		if reflect.ValueOf(all).Field(i).IsZero() {
			t.Errorf("%s is not set: the fast path could forget it", reflect.TypeFor[AgentEventV1]().Field(i).Name)
		}
	}
	for name, e := range map[string]AgentEventV1{"all": all, "required": plainUserMessage()} {
		got, ok := e.appendPlain(nil, Checked{})
		want, err := e.appendAny(nil)
		if !ok || err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s fields: %v, %v\n%s\n%s", name, ok, err, got, want)
		}
	}
}

func TestDeeperCountsBracketsOutsideOfStrings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		json string
		want int
	}{
		{`1`, 0},
		{`{}`, 1},
		{`[[],[[]],{}]`, 3},
		{`["[[[[","\"[[[[","\\",[]]`, 2},
		{`{"{{{":[1,{"\\\"[":2}]}`, 3},
	} {
		for limit := range 5 {
			if got := deeper([]byte(test.json), limit); got != (test.want > limit) {
				t.Errorf("%s deeper than %d: %v", test.json, limit, got)
			}
		}
	}
}
