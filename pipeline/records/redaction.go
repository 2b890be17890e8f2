package records

import (
	"slices"

	"github.com/nats-io/nats.go"

	"tributary/envelopes"
	"tributary/pipeline/redact"
)

// plainHeaders are the headers of a raw record that have nothing of its content.
var plainHeaders = []string{
	envelopes.HeaderSession, envelopes.HeaderParent, envelopes.HeaderTime, envelopes.HeaderEnd, envelopes.HeaderClaim, envelopes.HeaderPosition,
	envelopes.HeaderRequeued, envelopes.HeaderTraceparent, envelopes.HeaderTracestate,
	envelopes.HeaderHost, envelopes.HeaderUser, envelopes.HeaderLabels, envelopes.HeaderVerified,
}

// RedactHeader returns the headers of a raw record with placeholders for all values but those of plainHeaders: a
// secret could be guessed from its digest, and producers may write anything.
func RedactHeader(r *redact.Redactor, h nats.Header) nats.Header {
	if r == nil {
		return h
	}
	out := make(nats.Header, len(h))
	for name, values := range h {
		if !slices.Contains(plainHeaders, name) {
			values = slices.Clone(values)
			for i := range values {
				values[i] = r.Placeholder(values[i])
			}
		}
		out[name] = values
	}
	return out
}
