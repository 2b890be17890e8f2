// Package genai shows a session as spans by the GenAI semantic conventions of OpenTelemetry: invoke_agent for each
// turn and each run of a subagent, chat for each model call, execute_tool for each tool call. Start at [Session];
// README.md has the mapping. It is a pure function of the events: it neither reads a broker nor exports anything.
package genai

import (
	"crypto/sha256"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"tributary/envelopes"
)

// SchemaURL names the version of the semantic conventions: the last one with GenAI, before that moved to a project of
// its own.
const SchemaURL = "https://opentelemetry.io/schemas/1.41.0"

// The attributes of the semantic conventions.
const (
	operationName     = attribute.Key("gen_ai.operation.name")
	providerName      = attribute.Key("gen_ai.provider.name")
	conversationID    = attribute.Key("gen_ai.conversation.id")
	agentName         = attribute.Key("gen_ai.agent.name")
	agentID           = attribute.Key("gen_ai.agent.id")
	requestModel      = attribute.Key("gen_ai.request.model")
	responseModel     = attribute.Key("gen_ai.response.model")
	responseID        = attribute.Key("gen_ai.response.id")
	inputTokens       = attribute.Key("gen_ai.usage.input_tokens")
	outputTokens      = attribute.Key("gen_ai.usage.output_tokens")
	cacheReadTokens   = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	cacheWriteTokens  = attribute.Key("gen_ai.usage.cache_creation.input_tokens")
	reasoningTokens   = attribute.Key("gen_ai.usage.reasoning.output_tokens")
	toolName          = attribute.Key("gen_ai.tool.name")
	toolCallID        = attribute.Key("gen_ai.tool.call.id")
	toolCallArguments = attribute.Key("gen_ai.tool.call.arguments") // content
	toolCallResult    = attribute.Key("gen_ai.tool.call.result")    // content
	inputMessages     = attribute.Key("gen_ai.input.messages")      // content
	outputMessages    = attribute.Key("gen_ai.output.messages")     // content
	exitCode          = attribute.Key("process.exit.code")
	errorType         = attribute.Key("error.type")
	hostName          = attribute.Key("host.name")
	userName          = attribute.Key("user.name")
	repositoryURL     = attribute.Key("vcs.repository.url.full")
	repositoryOwner   = attribute.Key("vcs.owner.name")
	repositoryName    = attribute.Key("vcs.repository.name")
	headName          = attribute.Key("vcs.ref.head.name")
	headRevision      = attribute.Key("vcs.ref.head.revision")
	changeID          = attribute.Key("vcs.change.id")
)

// toolStatus is the outcome of a tool in our events; the semantic conventions have no attribute for a running tool.
const toolStatus = attribute.Key("tributary.tool.status")

// operation is the kind of a span.
type operation string

// The operations.
const (
	invokeAgent operation = "invoke_agent"
	callModel   operation = "chat"
	executeTool operation = "execute_tool"
)

// Span is a span of a session. Its ids depend only on the source, the session and an event id, so the same events
// always give the same spans.
type Span struct {
	TraceID    trace.TraceID
	SpanID     trace.SpanID
	Parent     *Span // nil for a turn, the root of a trace
	Previous   *Span // previous turn; nil for the first, and for any other span
	operation  operation
	Name       string
	EventID    string // of its first event
	Start, End time.Time
	Failure    string // error.type; empty for none
	Attributes []attribute.KeyValue
	Usage      *envelopes.Usage // for a chat, without a key; nil if the vendor states none

	children []*Span
}

// Kind returns the kind of the span.
func (s *Span) Kind() trace.SpanKind {
	if s.operation == callModel {
		return trace.SpanKindClient
	}
	return trace.SpanKindInternal
}

// Depth returns the number of spans above the span.
func (s *Span) Depth() int {
	n := 0
	for p := s.Parent; p != nil; p = p.Parent {
		n++
	}
	return n
}

// extend makes the span last until t at least.
func (s *Span) extend(t time.Time) {
	if t.After(s.End) {
		s.End = t
	}
}

// digest returns the digest of a list of strings with any characters.
func digest(parts ...string) [sha256.Size]byte {
	var b []byte
	for _, p := range parts {
		b = append(append(strconv.AppendInt(b, int64(len(p)), 10), ' '), p...)
	}
	return sha256.Sum256(b)
}

// newSpan returns a span that begins with an event.
func newSpan(o operation, e *envelopes.AgentEventV1, start time.Time) *Span {
	sum := digest(string(e.Source), e.SessionID, string(o), e.EventID)
	s := &Span{operation: o, EventID: e.EventID, Start: start, End: start}
	copy(s.SpanID[:], sum[:])
	return s
}

// traceID returns the id of the trace of a turn.
func traceID(source envelopes.Source, session string, root trace.SpanID) trace.TraceID {
	sum := digest(string(source), session, "trace", string(root[:]))
	return trace.TraceID(sum[:16])
}
