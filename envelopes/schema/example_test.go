package schema_test

import (
	"fmt"

	"tributary/envelopes"
	"tributary/envelopes/schema"
)

// A later producer may write fields and values that this schema does not know. The
// consumer's schema accepts them.
func Example() {
	e := envelopes.AgentEventV1{
		SchemaVersion: envelopes.SchemaVersion,
		Source:        envelopes.Codex,
		ProjectHash:   "9126eddec7f67e038794657b4d517dd9cb5226468f30b5ee7296c27d65e84fde",
		SessionID:     "run 42",
		EventID:       "0f9c1c7e",
		TS:            "2025-11-26T12:51:28.093Z",
		EventType:     envelopes.UserMessage,
		Origin:        "future_origin",
		Role:          new(envelopes.RoleUser),
		Text:          new("Why is the build red?"),
		Sequence:      1,
	}
	data, err := e.AppendJSON(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, document := range [][]byte{schema.Events.Producer(), schema.Events.Consumer()} {
		validator, err := schema.NewValidator(document)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(validator.Check(data))
	}
	// Output:
	// [{/origin is none of "agent", "injected", "copied"}]
	// []
}
