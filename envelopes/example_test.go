package envelopes_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"tributary/envelopes"
)

// prompt is an event with what every event must have.
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

// An event becomes a message of headers and a payload, and comes back. nats.Header can
// be assigned from and to the header.
func Example() {
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

	got, from, err := envelopes.DecodeEvent(header, data)
	fmt.Println(*got.Text, from.RawSequence, err)
	// Output:
	// events.v1.claude_code.~cnVuIDQy.user_message
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
