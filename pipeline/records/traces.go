package records

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/streams"
)

// ObjectAttributes returns the attributes of a span that stores or fetches the object of a large record.
func ObjectAttributes(c claims.Claim) []attribute.KeyValue {
	return []attribute.KeyValue{
		broker.TraceSystem, semconv.MessagingDestinationName(streams.ClaimsStream),
		semconv.MessagingMessageID(c.Digest), semconv.MessagingMessageBodySize(int(c.Size)),
	}
}
