// Package envelopes has the event that Tributary publishes and its forms of transport: the event [AgentEventV1]
// (schema agtrace.event.v1), its CloudEvent, its NATS message, its subject, and two projections of it. README.md
// describes how the event travels, event.md every field and rule.
//
// A consumer starts with [DecodeEvent], which reads one event from the header and the payload
// of a message, or with [DecodeAgentEvent] for the JSON of an event alone. [EventFilter] is
// the subject to subscribe to. The pipeline writes with [EncodeEvent] and [EventSubject].
// [EntryProjection] turns the events of a session into the entries of a conversation,
// [ACPProjection] into messages of the Agent Communication Protocol.
//
// The invariant: an event that [AgentEventV1.Validate] and [AgentEventV1.AppendJSON] accept
// survives every conversion of this package unchanged, and every reader of this package reads
// the output of its writers. Two spellings do not survive: white space between the tokens of
// native JSON, and a raw of null, which becomes an absent raw.
//
// Not obvious:
//
//   - Vendor ids can hold any byte, so no id enters a subject or a header as it is: [Token]
//     encodes it for a subject, [EncodeHeaderValue] for a header.
//   - No error of this package repeats a value of an event, a header or a document: values may
//     be secrets. Errors name fields, attributes and headers.
//   - Every token count is an increment. Sums over the events of a session are right without
//     any knowledge of ids.
//   - The package is a pure function of its input: no clock, no network, no files.
package envelopes
