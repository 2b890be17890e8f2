package envelopes

import "errors"

// The errors of this package. Their texts name fields, attributes and headers, never a
// value. All are permanent: the same input fails again.
var (
	// ErrInvalidEvent wraps every error of [AgentEventV1.Validate], [AgentEventV1.AppendJSON]
	// and [DecodeAgentEvent]: a field breaks a rule, or the bytes are not the strict JSON of
	// an event.
	ErrInvalidEvent = errors.New("invalid event")
	// errInvalidSubject: this package would not write such a subject, token or generation name.
	errInvalidSubject = errors.New("invalid subject")
	// errInvalidHeader: the value of a header does not have the form of that header.
	errInvalidHeader = errors.New("invalid header")
	// ErrInvalidCloudEvent: the attributes or the document break the rules of CloudEvents
	// 1.0, or the CloudEvent is not an event of this schema.
	ErrInvalidCloudEvent = errors.New("invalid cloudevent")
	// ErrInvalidACP: a message or a part of the Agent Communication Protocol breaks a rule
	// of its model.
	ErrInvalidACP = errors.New("invalid ACP message")
)
