package otlp

import (
	"bytes"
	"cmp"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
	"tributary/normalizers/lenient"
)

// document is an export request. Each has records of one kind.
type document struct {
	Logs    lenient.List[wireResource] `json:"resourceLogs"`
	Spans   lenient.List[wireResource] `json:"resourceSpans"`
	Metrics lenient.List[wireResource] `json:"resourceMetrics"`
}

// wireResource has what one resource exports.
type wireResource struct {
	Resource wireAttributes          `json:"resource"`
	Logs     lenient.List[wireScope] `json:"scopeLogs"`
	Spans    lenient.List[wireScope] `json:"scopeSpans"`
	Metrics  lenient.List[wireScope] `json:"scopeMetrics"`
}

type wireAttributes struct {
	Attributes keyValues `json:"attributes"`
}

// wireScope has what one instrumentation scope exports.
type wireScope struct {
	Scope   scope                    `json:"scope"`
	Logs    lenient.List[wireLog]    `json:"logRecords"`
	Spans   lenient.List[wireSpan]   `json:"spans"`
	Metrics lenient.List[wireMetric] `json:"metrics"`
}

type scope struct {
	Name       lenient.Text `json:"name"`
	Version    lenient.Text `json:"version"`
	Attributes keyValues    `json:"attributes"`
}

type wireLog struct {
	Time       nanoseconds  `json:"timeUnixNano"`
	Observed   nanoseconds  `json:"observedTimeUnixNano"`
	Name       lenient.Text `json:"eventName"`
	Body       anyValue     `json:"body"`
	Attributes keyValues    `json:"attributes"`
	TraceID    lenient.Text `json:"traceId"`
	SpanID     lenient.Text `json:"spanId"`
}

type wireSpan struct {
	TraceID    lenient.Text            `json:"traceId"`
	SpanID     lenient.Text            `json:"spanId"`
	ParentID   lenient.Text            `json:"parentSpanId"`
	Name       lenient.Text            `json:"name"`
	Start      nanoseconds             `json:"startTimeUnixNano"`
	End        nanoseconds             `json:"endTimeUnixNano"`
	Attributes keyValues               `json:"attributes"`
	Events     lenient.List[wireEvent] `json:"events"`
	Status     status                  `json:"status"`
}

type wireEvent struct {
	Time       nanoseconds  `json:"timeUnixNano"`
	Name       lenient.Text `json:"name"`
	Attributes keyValues    `json:"attributes"`
}

type status struct {
	Code    lenient.Number `json:"code"`
	Message lenient.Text   `json:"message"`
}

// statusError is the code of a span that failed.
const statusError = 2

type wireMetric struct {
	Name         lenient.Text `json:"name"`
	Unit         lenient.Text `json:"unit"`
	Sum          points       `json:"sum"`
	Gauge        points       `json:"gauge"`
	Histogram    points       `json:"histogram"`
	Exponential  points       `json:"exponentialHistogram"`
	SummaryOfOld points       `json:"summary"`
}

type points struct {
	Points lenient.List[wirePoint] `json:"dataPoints"`
}

type wirePoint struct {
	Attributes keyValues   `json:"attributes"`
	Start      nanoseconds `json:"startTimeUnixNano"`
	Time       nanoseconds `json:"timeUnixNano"`
	Double     numeral     `json:"asDouble"`
	Int        numeral     `json:"asInt"`
	Sum        numeral     `json:"sum"`
}

// record returns the record of a document that has exactly one.
func (d *document) record() (Record, bool) {
	var all []Record
	for _, list := range []lenient.List[wireResource]{d.Logs, d.Spans, d.Metrics} {
		for i := range list {
			if all = append(all, list[i].records()...); len(all) > 1 {
				return Record{}, false
			}
		}
	}
	if len(all) != 1 {
		return Record{}, false
	}
	return all[0], true
}

func (r *wireResource) records() (all []Record) {
	for _, list := range []lenient.List[wireScope]{r.Logs, r.Spans, r.Metrics} {
		for i := range list {
			s := &list[i]
			for _, is := range s.records() {
				is.Resource, is.Scope, is.Version = Attributes(r.Resource.Attributes), string(s.Scope.Name), string(s.Scope.Version)
				is.scope = Attributes(s.Scope.Attributes)
				all = append(all, is)
			}
		}
	}
	return all
}

func (s *wireScope) records() (all []Record) {
	for i := range s.Logs {
		l := &s.Logs[i]
		all = append(all, Record{
			Kind: Log, Name: string(l.Name), Body: jsontext.Value(l.Body), Attributes: Attributes(l.Attributes),
			Time: cmp.Or(l.Time, l.Observed).time(), TraceID: string(l.TraceID), SpanID: string(l.SpanID),
		})
	}
	for i := range s.Spans {
		p := &s.Spans[i]
		is := Record{
			Kind: Span, Name: string(p.Name), Attributes: Attributes(p.Attributes), Start: p.Start.time(), Time: cmp.Or(p.End, p.Start).time(),
			TraceID: string(p.TraceID), SpanID: string(p.SpanID), ParentID: string(p.ParentID),
			Failed: p.Status.Code.Count() == statusError, Message: string(p.Status.Message),
		}
		for j := range p.Events {
			e := &p.Events[j]
			is.Events = append(is.Events, SpanEvent{string(e.Name), e.Time.time(), Attributes(e.Attributes)})
		}
		all = append(all, is)
	}
	for i := range s.Metrics {
		m := &s.Metrics[i]
		for _, form := range []points{m.Sum, m.Gauge, m.Histogram, m.Exponential, m.SummaryOfOld} {
			for j := range form.Points {
				p := &form.Points[j]
				all = append(all, Record{
					Kind: Metric, Name: string(m.Name), Unit: string(m.Unit), Attributes: Attributes(p.Attributes),
					Start: p.Start.time(), Time: p.Time.time(), Value: p.value(),
				})
			}
		}
	}
	return all
}

// value returns the value of a data point; the sum of a histogram.
func (p *wirePoint) value() lenient.Number {
	for _, n := range []numeral{p.Int, p.Double, p.Sum} {
		if n.OK {
			return lenient.Number(n)
		}
	}
	return lenient.Number{}
}

// numeral is a number that may be written as a text.
type numeral lenient.Number

// ReadJSON reads a number, or a text that is one.
func (n *numeral) ReadJSON(c *jsonscan.Scanner) {
	v := c.Value()
	if v.Kind() == '"' {
		*n = numeral(lenient.NumberOfText(lenient.Unquote(v)))
		return
	}
	*n = numeral(lenient.NumberOf(v))
}

// nanoseconds is a time since 1970; 0 for none.
type nanoseconds int64

// ReadJSON reads an integer, which is mostly written as a text, because it exceeds what a JSON number has in JavaScript.
func (n *nanoseconds) ReadJSON(c *jsonscan.Scanner) {
	*n = 0
	text := string(lenient.Scalar(c.Value()))
	if v, err := strconv.ParseInt(text, 10, 64); err == nil && v > 0 {
		*n = nanoseconds(v)
	}
}

func (n nanoseconds) time() time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(n)).UTC()
}

// keyValues are attributes in the standard's form: a list of objects with key and value.
type keyValues Attributes

// ReadJSON reads a list of keys and values.
func (k *keyValues) ReadJSON(c *jsonscan.Scanner) {
	var list lenient.List[keyValue]
	list.ReadJSON(c)
	*k = nil
	for i := range list {
		*k = append(*k, Attribute{string(list[i].Key), jsontext.Value(list[i].Value)})
	}
}

type keyValue struct {
	Key   lenient.Text `json:"key"`
	Value anyValue     `json:"value"`
}

// anyValue is a value in the standard's form, an object that names its type, as plain JSON; nil for none.
type anyValue jsontext.Value

type wireValue struct {
	String  lenient.NullText         `json:"stringValue"`
	Bool    jsontext.Value           `json:"boolValue"`
	Int     jsontext.Value           `json:"intValue"`
	Double  jsontext.Value           `json:"doubleValue"`
	Array   lenient.Object[elements] `json:"arrayValue"`
	Members lenient.Object[object]   `json:"kvlistValue"`
	Bytes   lenient.NullText         `json:"bytesValue"`
}

type elements struct {
	Values lenient.List[anyValue] `json:"values"`
}

type object struct {
	Values keyValues `json:"values"`
}

// ReadJSON reads an object that names the type of its value.
func (a *anyValue) ReadJSON(c *jsonscan.Scanner) {
	*a = nil
	if c.Kind() != '{' {
		c.Value()
		return
	}
	var w wireValue
	lenient.ReadNext(c, &w)
	*a = anyValue(w.plain())
}

// plain returns the value as plain JSON.
func (w *wireValue) plain() jsontext.Value {
	switch {
	case w.String.OK:
		return lenient.AppendQuote(nil, w.String.Value)
	case w.Bytes.OK:
		return lenient.AppendQuote(nil, w.Bytes.Value)
	case w.Bool.Kind() == 't', w.Bool.Kind() == 'f':
		return w.Bool
	case lenient.IsValue(w.Int):
		return plainNumber(w.Int)
	case lenient.IsValue(w.Double):
		return plainNumber(w.Double)
	case w.Array.OK:
		out := []byte{'['}
		for i, v := range w.Array.Value.Values {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, orNull(jsontext.Value(v))...)
		}
		return append(out, ']')
	case w.Members.OK:
		out := []byte{'{'}
		for i, m := range w.Members.Value.Values {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(lenient.AppendQuote(out, m.Name), ':')
			out = append(out, orNull(m.Value)...)
		}
		return append(out, '}')
	default:
		return nil
	}
}

// plainNumber returns a number that may be written as a text; nil for anything else.
func plainNumber(v jsontext.Value) jsontext.Value {
	if v.Kind() == '"' {
		v = bytes.TrimSpace([]byte(lenient.Unquote(v)))
		if v.Kind() != '0' || !v.IsValid() {
			return nil
		}
	}
	if v.Kind() != '0' {
		return nil
	}
	return v
}

func orNull(v jsontext.Value) jsontext.Value {
	if v == nil {
		return jsontext.Value("null")
	}
	return v
}
