package ship

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline"
)

// parcel is a message for the broker. A record that is too large for one travels by claim
// check: its bytes are stored as an object before the message, which names the object.
type parcel struct {
	*nats.Msg
	claimed []byte // content of the object; nil when the message has the record itself
}

// outgoing is a record that is being sent.
type outgoing struct {
	msg     parcel
	size    int // of the record
	span    trace.Span
	session session
	line    int
	end     bool // the end of a session in a file instead of a record
}

// newOutgoing makes the message of a record and starts its trace. end is the offset
// behind the record.
func (s *Ship) newOutgoing(ctx context.Context, r normalizers.Record, line int, end int64) outgoing {
	ctx, span := s.config.Tracer.Start(ctx, "publish raw", trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer))
	origin := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, origin)
	r.Origin.Traceparent = origin[envelopes.HeaderTraceparent]
	r.Origin.Tracestate = origin[envelopes.HeaderTracestate]

	id := messageID(r, end)
	msg := s.newParcel(r)
	msg.Header.Set(nats.MsgIdHdr, id)
	if span.IsRecording() {
		span.SetAttributes(
			semconv.MessagingSystemKey.String("nats"),
			semconv.MessagingOperationTypeSend,
			semconv.MessagingOperationName("publish"),
			semconv.MessagingDestinationName(pipeline.RawStream),
			semconv.MessagingDestinationTemplate("raw.{source}.{session}"),
			semconv.MessagingMessageID(id),
			semconv.MessagingMessageConversationID(r.Session),
			semconv.MessagingMessageBodySize(len(r.Data)),
		)
	}
	return outgoing{msg: msg, size: len(r.Data), span: span, session: session{r.Source, r.Session}, line: line, end: r.Origin.End}
}

// newParcel makes the message of a record, with a claim check for a large one.
func (s *Ship) newParcel(r normalizers.Record) parcel {
	if pipeline.Claimed(len(r.Data), s.limit()) {
		return parcel{pipeline.ClaimMessage(r), r.Data}
	}
	return parcel{Msg: pipeline.RawMessage(r)}
}

// close ends the trace of o with its outcome.
func (o outgoing) close(err error) {
	if err != nil {
		o.span.SetStatus(codes.Error, err.Error())
		o.span.SetAttributes(semconv.ErrorType(err))
	}
	o.span.End()
}

// messageID returns the Nats-Msg-Id of a record: equal for the same record at the same
// position of the same file, and only then. Ends of the same session differ by the offset up
// to which the file is shipped.
func messageID(r normalizers.Record, end int64) string {
	position := strconv.FormatInt(r.Origin.Position, 10)
	if r.Origin.End {
		position = "end " + strconv.FormatInt(end, 10)
	}
	h := sha256.New()
	for _, part := range [...]string{string(r.Source), r.Session, r.Origin.File, position} {
		_, _ = io.WriteString(h, strconv.Itoa(len(part))+" "+part) // a hash never fails
	}
	h.Write(r.Data)
	return hex.EncodeToString(h.Sum(nil)[:16])
}
