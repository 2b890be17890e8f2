package envelopes

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

// DataSchema is the dataschema of every event's CloudEvent, and the $id of the JSON Schema of its data.
const DataSchema = "urn:agtrace:event:v1"

// The headers of the extensions.
const (
	attrSessionID    = headerPrefix + "sessionid"
	attrPartitionKey = headerPrefix + "partitionkey"
	attrPartition    = headerPrefix + "partition"
	attrSequence     = headerPrefix + "sequence"
	attrGeneration   = headerPrefix + "generation"
	attrRawStream    = headerPrefix + "rawstream"
	attrRawSequence  = headerPrefix + "rawsequence"
	attrRawReference = headerPrefix + "rawreference"
	attrModel        = headerPrefix + "model"
	attrTraceparent  = headerPrefix + "traceparent"
	attrTracestate   = headerPrefix + "tracestate"
)

const (
	typePrefix     = SchemaVersion + "."
	maxModelBytes  = 256 // a longer model name is only in the data
	maxTraceBytes  = 512 // size that W3C asks every party to propagate
	sequenceDigits = 20  // of the largest uint64
)

// Provenance describes how an event was made: from which raw record, in which generation. It travels only in the
// CloudEvent, because the event is a function of the records alone. The CloudEvent omits zero fields.
type Provenance struct {
	Generation  string // required
	Partition   int    // -1 for none
	RawStream   string // stream with the record
	RawSequence uint64 // sequence of the record in that stream
	// RawReference means that the event is the first of its record, which is at RawSequence and not in the raw of the
	// event.
	RawReference bool

	// W3C trace context in which the record was created, unchanged across all hops. The CloudEvent omits an invalid
	// one: see [TraceContext].
	Traceparent, Tracestate string
}

// CloudEvent returns e as a CloudEvent:
//
//	id, subject             event_id and session_id
//	source                  /<generation>/<source>/<session_id>, a URI reference
//	type, dataschema        agtrace.event.v1.<event_type>, [DataSchema]
//	time                    ts
//	datacontenttype, data   application/json, e by [AgentEventV1.AppendJSON]
//	sessionid, partitionkey session_id
//	sequence                of the event in its session, in 20 digits
//	model                   where known, up to 256 bytes
//	generation, partition, rawstream, rawsequence, rawreference, traceparent, tracestate from p
//
// source and id together are unique: the same event in another generation is another
// CloudEvent. In id, subject, sessionid, partitionkey and model the characters that
// CloudEvents forbids, the percent sign, and white space at the ends are percent-encoded.
//
// e must be valid: CloudEvent checks its encoding only. The error wraps [ErrInvalidEvent], or
// [errInvalidSubject] for the generation.
func (e *AgentEventV1) CloudEvent(p Provenance) (event.Event, error) {
	attributes, err := e.attributes(make([]attribute, 0, maxAttributes), p)
	if err != nil {
		return event.Event{}, err
	}
	data, err := e.AppendJSON(nil)
	if err != nil {
		return event.Event{}, err
	}
	return newCloudEvent(attributes, data)
}

// maxAttributes is the maximum number of attributes of an event.
const maxAttributes = 19

// attributes returns the attributes of the CloudEvent of e, in the order of
// [cloudEventAttributes]. It appends them to an empty list.
func (e *AgentEventV1) attributes(list []attribute, p Provenance) ([]attribute, error) {
	if err := CheckGeneration(p.Generation); err != nil {
		return nil, err
	}
	at, err := e.attributeTime()
	if err != nil {
		return nil, err
	}
	session := EscapeAttribute(e.SessionID)
	sequence := strconv.FormatUint(e.Sequence, 10)
	list = append(list,
		attribute{header: attrSpecVersion, value: event.CloudEventsVersionV1},
		attribute{header: attrID, value: EscapeAttribute(e.EventID)},
		attribute{header: attrSource, value: "/" + p.Generation + "/" + string(e.Source) + "/" + url.PathEscape(e.SessionID)},
		attribute{header: attrType, value: typePrefix + string(e.EventType)},
		attribute{header: attrSubject, value: session},
		attribute{header: attrTime, value: at},
		attribute{header: attrDataContentType, value: event.ApplicationJSON},
		attribute{header: attrDataSchema, value: DataSchema},
		attribute{header: attrGeneration, value: p.Generation},
	)
	if e.Model != nil && *e.Model != "" && len(*e.Model) <= maxModelBytes {
		list = append(list, attribute{header: attrModel, value: EscapeAttribute(*e.Model)})
	}
	if p.Partition >= 0 {
		list = append(list, attribute{header: attrPartition, value: strconv.Itoa(p.Partition), kind: kindInteger})
	}
	list = append(list, attribute{header: attrPartitionKey, value: session})
	if p.RawReference {
		list = append(list, attribute{header: attrRawReference, value: "true", kind: kindBoolean})
	}
	if p.RawSequence > 0 {
		list = append(list, attribute{header: attrRawSequence, value: strconv.FormatUint(p.RawSequence, 10)})
	}
	if p.RawStream != "" {
		list = append(list, attribute{header: attrRawStream, value: p.RawStream})
	}
	list = append(list,
		attribute{header: attrSequence, value: "00000000000000000000"[:sequenceDigits-len(sequence)] + sequence},
		attribute{header: attrSessionID, value: session},
	)
	traceparent, tracestate := TraceContext(p.Traceparent, p.Tracestate)
	if traceparent != "" {
		list = append(list, attribute{header: attrTraceparent, value: traceparent})
	}
	if tracestate != "" {
		list = append(list, attribute{header: attrTracestate, value: tracestate})
	}
	return list, nil
}

// attributeTime returns ts as CloudEvents writes times: without trailing zeros in the fraction.
func (e *AgentEventV1) attributeTime() (string, error) {
	whole, fraction, _ := strings.Cut(strings.TrimSuffix(e.TS, "Z"), ".")
	if len(fraction) > 9 || !validTimestamp(e.TS) { // time.Parse accepts wider forms
		t, err := e.Timestamp()
		return types.FormatTime(t), err
	}
	if fraction = strings.TrimRight(fraction, "0"); fraction == "" {
		return whole + "Z", nil
	}
	return e.TS[:len(whole)+1+len(fraction)] + "Z", nil
}

// TraceContext returns the valid part of two headers of W3C trace context: printable ASCII, at
// most 512 bytes, and no tracestate without a traceparent. It returns an empty string for an
// invalid one.
func TraceContext(traceparent, tracestate string) (string, string) {
	switch {
	case !isTraceContext(traceparent):
		return "", ""
	case !isTraceContext(tracestate):
		return traceparent, ""
	default:
		return traceparent, tracestate
	}
}

// isTraceContext reports whether s is a valid value of a header of W3C trace context.
func isTraceContext(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= maxTraceBytes
}

// FromCloudEvent is the inverse of [AgentEventV1.CloudEvent]. It reads any CloudEvent whose
// type begins with agtrace.event.v1. and rejects one whose attributes contradict its data in
// id, type, subject, source or sequence. Absent extensions leave their field of the
// [Provenance] zero, the partition -1.
//
// Like [DecodeAgentEvent] it does not check the rules of [AgentEventV1.Validate]. The error
// wraps [ErrInvalidCloudEvent] or [ErrInvalidEvent].
func FromCloudEvent(ce event.Event) (AgentEventV1, Provenance, error) {
	e, p, err := fromCloudEvent(ce)
	if err != nil {
		return AgentEventV1{}, Provenance{}, err
	}
	return e, p, nil
}

func fromCloudEvent(ce event.Event) (e AgentEventV1, p Provenance, err error) {
	if ce.Context == nil || ce.SpecVersion() != event.CloudEventsVersionV1 {
		return e, p, invalidCloudEvent(attrSpecVersion, "is not "+event.CloudEventsVersionV1)
	}
	if !strings.HasPrefix(ce.Type(), typePrefix) {
		return e, p, invalidCloudEvent(attrType, "is not one of "+SchemaVersion)
	}
	if !isJSONData(ce.DataContentType()) {
		return e, p, invalidCloudEvent(attrDataContentType, "is not JSON")
	}
	if e, err = DecodeAgentEvent(ce.DataEncoded); err != nil {
		return e, p, err
	}

	extensions := ce.Extensions()
	text := func(header string) string {
		value, ok := extensions[header[len(headerPrefix):]]
		if !ok {
			return ""
		}
		s, _ := types.Format(value)
		return s
	}
	p = Provenance{
		Generation:  text(attrGeneration),
		Partition:   -1,
		RawStream:   text(attrRawStream),
		Traceparent: text(attrTraceparent),
		Tracestate:  text(attrTracestate),

		RawReference: text(attrRawReference) == "true",
	}
	if s := text(attrPartition); s != "" {
		if p.Partition, err = parsePartition(s); err != nil {
			return e, p, invalidCloudEvent(attrPartition, "is not a number")
		}
	}
	if s := text(attrRawSequence); s != "" {
		if p.RawSequence, err = strconv.ParseUint(s, 10, 64); err != nil {
			return e, p, invalidCloudEvent(attrRawSequence, "is not a number")
		}
	}
	return e, p, e.contradiction(ce, text(attrSequence), p.Generation)
}

// contradiction returns an error if an attribute of ce differs from its data, e. A consumer
// selects by the attributes and trusts the data, so they must agree.
func (e *AgentEventV1) contradiction(ce event.Event, sequence, generation string) error {
	source := "/" + generation + "/" + string(e.Source) + "/" + url.PathEscape(e.SessionID)
	switch {
	case ce.Type() != typePrefix+string(e.EventType):
		return invalidCloudEvent(attrType, "contradicts the data")
	case ce.ID() != EscapeAttribute(e.EventID):
		return invalidCloudEvent(attrID, "contradicts the data")
	case ce.Subject() != EscapeAttribute(e.SessionID):
		return invalidCloudEvent(attrSubject, "contradicts the data")
	case generation != "" && ce.Source() != source:
		return invalidCloudEvent(attrSource, "contradicts the data")
	}
	if sequence == "" {
		return nil
	}
	if n, err := strconv.ParseUint(sequence, 10, 64); err != nil || n != e.Sequence {
		return fmt.Errorf("%w: sequence contradicts the data", ErrInvalidCloudEvent)
	}
	return nil
}
