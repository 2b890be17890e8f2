package worker_test

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/records"
)

// The message that a producer publishes for a record. The message id lets the broker drop a
// copy that is published within two minutes.
func ExampleRawMessage() {
	m := records.Message(core.Record{
		Source: envelopes.ClaudeCode, Session: "s1", Data: []byte(`{"type":"user"}`),
		Origin: core.Origin{File: "s1.jsonl", Position: 0, Previous: -1},
	})
	m.Header.Set(nats.MsgIdHdr, "s1.jsonl-0")
	fmt.Println(m.Subject)
	fmt.Println(m.Header.Get(envelopes.HeaderFile), m.Header.Get(envelopes.HeaderPosition))
	fmt.Println(string(m.Data))
	// Output:
	// raw.claude_code.s1
	// s1.jsonl 0 -1
	// {"type":"user"}
}

// The message of a record that is too large for one: it names the bytes, which
// [claims.Store.Put] has stored before.
func ExampleClaimMessage() {
	m := records.ClaimMessage(core.Record{Source: envelopes.ClaudeCode, Session: "s1", Data: []byte("a large record")})
	fmt.Println(m.Header.Get(envelopes.HeaderClaim), len(m.Data))
	// Output:
	// CLAIMS/322bc3400e55095880ee6d49fe3ab34820be9928f2eb3b84d873ac5a5c29b625;14 0
}
