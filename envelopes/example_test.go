package envelopes_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"tributary/envelopes"
)

// prompt returns an event with the required fields and a text.
func prompt() envelopes.AgentEventV1 {
	return envelopes.AgentEventV1{
		SchemaVersion: envelopes.SchemaVersion,
		Source:        envelopes.ClaudeCode,
		ProjectHash:   "9126eddec7f67e038794657b4d517dd9cb5226468f30b5ee7296c27d65e84fde",
		SessionID:     "run 42",
		EventID:       "0f9c1c7e",
		TS:            "2025-11-26T12:51:28.093Z",
		EventType:     envelopes.UserMessage,
		Role:          new(envelopes.RoleUser),
		Text:          new("Why is the build <red>?"),
		Sequence:      1,
	}
}

// A consumer reads one event from a NATS message: pass msg.Header and msg.Data of any NATS
// client. Headers and payload below are those of a binary message, which the pipeline
// publishes by default.
func ExampleDecodeEvent() {
	header := map[string][]string{ // msg.Header
		"ce-specversion":     {"1.0"},
		"ce-id":              {"toolu_01Ab#result"},
		"ce-source":          {"/v1/claude_code/run%252042"},
		"ce-type":            {"agtrace.event.v1.tool_result"},
		"ce-subject":         {"run%2042"},
		"ce-sequence":        {"00000000000000000007"},
		"ce-generation":      {"v1"},
		"ce-rawstream":       {"RAW"},
		"ce-rawsequence":     {"1207"},
		"ce-datacontenttype": {"application/json"},
	}
	data := []byte(`{"schema_version":"agtrace.event.v1","source":"claude_code","session_id":"run 42",` +
		`"event_id":"toolu_01Ab#result","ts":"2025-11-26T12:51:28.093Z","event_type":"tool_result","role":"tool",` +
		`"text":"FAIL","tool_name":"Bash","tool_status":"error","tool_exit_code":1,"sequence":7,"future_field":true}`) // msg.Data

	event, provenance, err := envelopes.DecodeEvent(header, data)
	if errors.Is(err, envelopes.ErrInvalidCloudEvent) || errors.Is(err, envelopes.ErrInvalidEvent) {
		fmt.Println(err) // permanent: another attempt fails again
		return
	}
	fmt.Println(event.Source, event.SessionID, event.Sequence, event.EventType)
	if event.ToolName != nil && event.ToolExitCode != nil { // nil is null
		fmt.Println(*event.ToolName, "exit code", *event.ToolExitCode)
	}
	fmt.Println("raw record", provenance.RawSequence, "of", provenance.RawStream)
	// Output:
	// claude_code run 42 7 tool_result
	// Bash exit code 1
	// raw record 1207 of RAW
}

// The JSON of an event alone, such as a line of "tributary normalize".
func ExampleDecodeAgentEvent() {
	line := []byte(`{"source":"codex","session_id":"s","event_id":"@9","event_type":"meta","sequence":12,` +
		`"tokens_total":120,"usage":{"input":20,"cache_read":90,"cache_write":0,"output":6,"reasoning":4,"key":"turn-1"}}`)
	event, err := envelopes.DecodeAgentEvent(line)
	if err != nil {
		fmt.Println(err)
		return
	}
	// Token counts are increments: add the parts over all events of a session.
	var sum envelopes.Usage
	if u := event.Usage; u != nil {
		sum.Input += u.Input
		sum.CacheRead += u.CacheRead
		sum.CacheWrite += u.CacheWrite
		sum.Output += u.Output
		sum.Reasoning += u.Reasoning
	}
	fmt.Println(sum.Input, sum.CacheRead, sum.Output, sum.Total())
	// Output:
	// 20 90 6 120
}

// A producer writes an event as a message and publishes it under its subject. The header can
// be assigned to a nats.Header.
func ExampleEncodeEvent() {
	e := prompt()
	header, data, err := envelopes.EncodeEvent(&e, envelopes.Provenance{
		Generation: "v1", Partition: 3, RawStream: "RAW", RawSequence: 1207,
	}, envelopes.Binary)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(envelopes.EventSubject("v1", &e))
	for _, name := range slices.Sorted(maps.Keys(header)) {
		fmt.Println(name+":", header[name][0])
	}

	got, provenance, err := envelopes.DecodeEvent(header, data)
	fmt.Println(*got.Text, provenance.RawSequence, err)
	// Output:
	// events.v1.claude_code.~cnVuIDQy.user_message
	// Content-Type: application/json
	// ce-datacontenttype: application/json
	// ce-dataschema: urn:agtrace:event:v1
	// ce-generation: v1
	// ce-id: 0f9c1c7e
	// ce-partition: 3
	// ce-partitionkey: run%2042
	// ce-rawsequence: 1207
	// ce-rawstream: RAW
	// ce-sequence: 00000000000000000001
	// ce-sessionid: run%2042
	// ce-source: /v1/claude_code/run%252042
	// ce-specversion: 1.0
	// ce-subject: run%2042
	// ce-time: 2025-11-26T12:51:28.093Z
	// ce-type: agtrace.event.v1.user_message
	// Why is the build <red>? 1207 <nil>
}

func ExampleAgentEventV1_Validate() {
	e := prompt()
	fmt.Println(e.Validate())

	e.Role = new(envelopes.RoleAssistant)
	err := e.Validate()
	fmt.Println(err, errors.Is(err, envelopes.ErrInvalidEvent))
	// Output:
	// <nil>
	// invalid event: role is not one that event_type allows true
}

func ExampleToken() {
	for _, id := range []string{"0199a213-81c0", "run 42", "*", "~cnVuIDQy"} {
		fmt.Println(envelopes.Token(id))
	}
	// Output:
	// 0199a213-81c0
	// ~cnVuIDQy
	// ~Kg
	// ~fmNuVnVJRFF5
}

// A consumer that subscribes to one session finds the id of the session in the subject.
func ExampleParseEventSubject() {
	address, err := envelopes.ParseEventSubject("events.v1.codex.~cnVuIDQy.tool_call")
	if err != nil {
		fmt.Println(err)
		return
	}
	session, err := envelopes.ResolveToken(address.Token, "")
	fmt.Println(address.Source, session, address.EventType, err)
	// Output:
	// codex run 42 tool_call <nil>
}

func ExampleEventFilter() {
	fmt.Println(envelopes.EventFilter("v1", "", "", ""))
	fmt.Println(envelopes.EventFilter("v1", envelopes.Codex, "run 42", envelopes.ToolCall))
	// Output:
	// events.v1.*.*.*
	// events.v1.codex.~cnVuIDQy.tool_call
}

func ExampleFormatPosition() {
	fmt.Println(envelopes.FormatPosition(0, -1))
	fmt.Println(envelopes.FormatPosition(4096, 2048))
	// Output:
	// 0 -1
	// 4096 2048
}
