// Package otlp reads what agents export by OpenTelemetry: export requests in the standard's JSON, as the OpenTelemetry
// collector writes them.
//
// Start with [Read], which reads a document with one record into a [Record], and [Split], which makes such documents of
// a batch. Vendors give the records their meaning.
//
// The invariant: what is stored is the standard's own form, and a member of an unexpected type is absent, not an error.
package otlp

import (
	"cmp"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Kind is the signal of a record.
type Kind string

// The kinds of records.
const (
	Log    Kind = "log"
	Span   Kind = "span"
	Metric Kind = "metric" // a data point
)

// Record is one record of an export request: a log record, a span, or a data point of a metric.
type Record struct {
	Kind       Kind
	Resource   Attributes
	Scope      string // name of the instrumentation scope
	Version    string // of the scope
	Attributes Attributes
	Name       string         // of the event, the span or the metric; empty if a log record states it elsewhere
	Body       jsontext.Value // of a log record, as plain JSON; nil for none
	Time       time.Time      // of a log record or data point; end of a span; zero for none
	Start      time.Time      // of a span or data point; zero for none

	TraceID, SpanID, ParentID string

	Failed  bool           // the status of a span is an error
	Message string         // of the status
	Events  []SpanEvent    // of a span
	Value   lenient.Number // of a data point; the sum of a histogram
	Unit    string         // of a metric

	scope Attributes
}

// EventTime returns the time of a record in the form of an event: what its attribute event.timestamp states, else its
// own; empty for none.
func (r *Record) EventTime() string {
	ts, ok := core.ParseTime(r.Attributes.Text("event.timestamp"))
	if !ok && !r.Time.IsZero() {
		ts, _ = core.ParseTime(r.Time.Format("2006-01-02T15:04:05.000Z"))
	}
	return ts
}

// SpanEvent is an event within a span.
type SpanEvent struct {
	Name       string
	Time       time.Time
	Attributes Attributes
}

// Attributes are the attributes of a resource, a scope or a record, in their order.
type Attributes []Attribute

// Attribute is a name with its value as plain JSON; nil for none.
type Attribute struct {
	Name  string
	Value jsontext.Value
}

// Value returns the value of an attribute; nil for none.
func (a Attributes) Value(name string) jsontext.Value {
	for i := range a {
		if a[i].Name == name {
			return a[i].Value
		}
	}
	return nil
}

// Text returns the value of an attribute as text: a string, number or boolean; empty for none.
func (a Attributes) Text(name string) string {
	v := a.Value(name)
	switch v.Kind() {
	case '"':
		return lenient.Unquote(v)
	case '0', 't', 'f':
		return string(v)
	default:
		return ""
	}
}

// Number returns the value of an attribute that is a number, or a text that is one: exporters write both.
func (a Attributes) Number(name string) lenient.Number {
	v := a.Value(name)
	if v.Kind() == '"' {
		return lenient.NumberOfText(lenient.Unquote(v))
	}
	return lenient.NumberOf(v)
}

// Flag returns the value of an attribute that is a boolean, or the text of one; nil for none.
func (a Attributes) Flag(name string) *bool {
	b, err := strconv.ParseBool(a.Text(name))
	if k := a.Value(name).Kind(); err != nil || k == '0' {
		return nil
	}
	return &b
}

// Attribute returns the text of an attribute of the record, else of its scope, else of its resource; empty for none.
func (r *Record) Attribute(name string) string {
	return cmp.Or(r.Attributes.Text(name), r.scope.Text(name), r.Resource.Text(name))
}

// Service returns the name of the service that exported the record.
func (r *Record) Service() string { return r.Resource.Text("service.name") }

// paths are those of the lists of an export request that have its records.
var paths = [...][]string{
	{"resourceLogs", "scopeLogs", "logRecords"},
	{"resourceSpans", "scopeSpans", "spans"},
	{"resourceMetrics", "scopeMetrics", metrics},
}

// metrics is the member with metrics, whose records are their data points.
const metrics = "metrics"

// Is reports whether a record is an export request.
func Is(s *core.Shape) bool {
	for _, path := range paths {
		if s.Kind(path[0]) == '[' {
			return true
		}
	}
	return false
}

// OfShape is [Read] for a record that [Is] an export request.
func OfShape(s *core.Shape) (Record, bool) {
	var d document
	for i, list := range []*lenient.List[wireResource]{&d.Logs, &d.Spans, &d.Metrics} {
		if v := s.Value(paths[i][0]); v != nil {
			c := jsonscan.NewScanner(v)
			list.ReadJSON(&c)
		}
	}
	return d.record()
}

// Read returns the record of an export request that has exactly one; false for any other value.
func Read(v jsontext.Value) (Record, bool) {
	var d document
	lenient.ReadObject(v, &d)
	return d.record()
}
