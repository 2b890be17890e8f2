package receive

import (
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"

	"tributary/normalizers/core"
)

// Limits of a request in protobuf. The library that decodes it has none: a value in lists in lists would take the whole
// stack, and an empty message of two bytes takes a hundred when it is decoded.
const (
	maxDepth    = 100     // of messages in messages, as in every implementation of protobuf
	maxMessages = 500_000 // of a request
)

// Errors of requests in protobuf.
var (
	errProtobuf = refuse(http.StatusBadRequest, "the body is not an export request in protobuf")
	errDeep     = refuse(http.StatusBadRequest, "values of the request are nested too deeply")
	errMany     = refuse(http.StatusRequestEntityTooLarge, "the request has more records than TRIBUTARY_RECEIVE_MAX_RECORDS allows, or too many values: send fewer records at once")
)

// shape is a kind of message: its fields that are counted, and whether it counts as a record.
type shape struct {
	fields map[protowire.Number]*shape
	record bool
	text   bool // no message, but a text of a list
}

// Kinds of messages of opentelemetry/proto.
var (
	anyValue  = &shape{}
	keyValue  = fields(2, anyValue)
	names     = &shape{text: true}
	entity    = &shape{fields: map[protowire.Number]*shape{3: names, 4: names}}
	resource  = &shape{fields: map[protowire.Number]*shape{1: keyValue, 3: entity}}
	scope     = fields(3, keyValue)
	exemplar  = fields(7, keyValue)
	spanEvent = fields(3, keyValue)
	spanLink  = fields(4, keyValue)
	number    = point(7, 5)
	histogram = point(9, 8)
	buckets   = point(1, 11)
	summary   = &shape{fields: map[protowire.Number]*shape{6: {}, 7: keyValue}, record: true}

	logsShape    = request(&shape{fields: map[protowire.Number]*shape{5: anyValue, 6: keyValue}, record: true})
	tracesShape  = request(&shape{fields: map[protowire.Number]*shape{9: keyValue, 11: spanEvent, 13: spanLink, 15: {}}, record: true})
	metricsShape = request(&shape{fields: map[protowire.Number]*shape{
		5: fields(1, number), 7: fields(1, number), 9: fields(1, histogram), 10: fields(1, buckets), 11: fields(1, summary), 12: keyValue,
	}})
)

func fields(n protowire.Number, of *shape) *shape {
	return &shape{fields: map[protowire.Number]*shape{n: of}}
}

// point is a data point with attributes and exemplars.
func point(attributes, exemplars protowire.Number) *shape {
	return &shape{fields: map[protowire.Number]*shape{attributes: keyValue, exemplars: exemplar}, record: true}
}

// request is an export request: resources with scopes with records, in the fields of today and in those of old versions.
func request(record *shape) *shape {
	scopes := &shape{fields: map[protowire.Number]*shape{1: scope, 2: record}}
	resources := &shape{fields: map[protowire.Number]*shape{1: resource, 2: scopes, 1000: scopes}}
	return fields(1, resources)
}

// of returns the kind of a field, nil for one that is not counted. The fields of a value, which refer to it, are not in
// the variable itself.
func (s *shape) of(n protowire.Number) *shape {
	if s != anyValue {
		return s.fields[n]
	}
	switch n {
	case 5:
		return arrayValue
	case 6:
		return listValue
	default:
		return nil
	}
}

var (
	arrayValue = fields(1, anyValue)
	listValue  = fields(1, keyValue)
)

// survey checks the limits of a request before it is decoded, at most records of them.
func survey(data []byte, s *shape, records int) error {
	v := surveyor{records: records, messages: maxMessages}
	return v.message(data, s, maxDepth)
}

// surveyJSON checks the limits of JSON before it is decoded.
func surveyJSON(data []byte) error {
	switch {
	case core.TooManyValues(data):
		return errMany
	case core.Depth(data) > core.MaxDepth:
		return errDeep
	default:
		return nil
	}
}

type surveyor struct{ records, messages int }

func (v *surveyor) message(data []byte, s *shape, depth int) error {
	if depth == 0 {
		return errDeep
	}
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errProtobuf
		}
		data = data[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, kind, data); n < 0 {
				return errProtobuf
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return errProtobuf
		}
		data = data[n:]
		of := s.of(field)
		if of == nil {
			continue
		}
		if v.messages--; of.record {
			v.records--
		}
		if v.messages < 0 || v.records < 0 {
			return errMany
		}
		if of.text {
			continue
		}
		if err := v.message(value, of, depth-1); err != nil {
			return err
		}
	}
	return nil
}
