package otlp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

const (
	resource = `"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"agent"}}]}`
	scope    = `"scope":{"name":"of.agent","version":"2.1","attributes":[{"key":"user","value":{"stringValue":"ada"}}]}`
	logs     = `{"resourceLogs":[{` + resource + `,"scopeLogs":[{` + scope + `,"logRecords":[%s]}]}]}`
	spans    = `{"resourceSpans":[{` + resource + `,"scopeSpans":[{` + scope + `,"spans":[%s]}]}]}`
	points   = `{"resourceMetrics":[{` + resource + `,"scopeMetrics":[{` + scope + `,"metrics":[%s]}]}]}`
)

func number(v float64) lenient.Number { return lenient.Number{Value: v, OK: true} }

// Each form of a value, a time and a number is read as exporters write it.
func TestRead(t *testing.T) {
	t.Parallel()
	at := func(seconds int64) time.Time { return time.Unix(seconds, 5).UTC() }
	for _, c := range []struct {
		name, data string
		want       otlp.Record
	}{
		{
			"a log record", fmt.Sprintf(logs, `{"timeUnixNano":"1000000005","observedTimeUnixNano":"9","eventName":"said","severityNumber":9,
				"body":{"kvlistValue":{"values":[{"key":"a","value":{"arrayValue":{"values":[{"intValue":"7"},{"boolValue":true},{}]}}}]}},
				"attributes":[{"key":"text","value":{"stringValue":"a\"b"}},{"key":"int","value":{"intValue":12}},{"key":"double","value":{"doubleValue":0.5}},
				{"key":"bytes","value":{"bytesValue":"aGk="}},{"key":"none","value":{}},{"key":"odd","value":{"intValue":"x"}}],"traceId":"01","spanId":"02"}`),
			otlp.Record{
				Kind: otlp.Log, Name: "said", Time: at(1), TraceID: "01", SpanID: "02", Body: jsontext.Value(`{"a":[7,true,null]}`),
				Attributes: otlp.Attributes{{"text", jsontext.Value(`"a\"b"`)}, {"int", jsontext.Value(`12`)}, {"double", jsontext.Value(`0.5`)}, {"bytes", jsontext.Value(`"aGk="`)}, {"none", nil}, {"odd", nil}},
			},
		},
		{
			"a log record that was only observed", fmt.Sprintf(logs, `{"observedTimeUnixNano":1000000005,"body":{"stringValue":"said"}}`),
			otlp.Record{Kind: otlp.Log, Time: at(1), Body: jsontext.Value(`"said"`)},
		},
		{
			"a span", fmt.Sprintf(spans, `{"traceId":"01","spanId":"02","parentSpanId":"03","name":"chat","startTimeUnixNano":"1000000005","endTimeUnixNano":"2000000005",
				"status":{"code":2,"message":"overloaded"},"events":[{"name":"retry","timeUnixNano":"1000000005","attributes":[{"key":"n","value":{"intValue":"1"}}]}]}`),
			otlp.Record{
				Kind: otlp.Span, Name: "chat", Start: at(1), Time: at(2), TraceID: "01", SpanID: "02", ParentID: "03", Failed: true, Message: "overloaded",
				Events: []otlp.SpanEvent{{"retry", at(1), otlp.Attributes{{"n", jsontext.Value("1")}}}},
			},
		},
		{
			"a data point", fmt.Sprintf(points, `{"name":"tokens","unit":"1","sum":{"dataPoints":[{"timeUnixNano":"1000000005","asInt":"12"}],"isMonotonic":true}}`),
			otlp.Record{Kind: otlp.Metric, Name: "tokens", Unit: "1", Time: at(1), Value: number(12)},
		},
		{
			"a data point of a histogram", fmt.Sprintf(points, `{"name":"wait","histogram":{"dataPoints":[{"startTimeUnixNano":"1000000005","timeUnixNano":"2000000005","count":"2","sum":2.5}]}}`),
			otlp.Record{Kind: otlp.Metric, Name: "wait", Start: at(1), Time: at(2), Value: number(2.5)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.want.Resource = otlp.Attributes{{"service.name", []byte(`"agent"`)}}
			c.want.Scope, c.want.Version = "of.agent", "2.1"
			got, ok := otlp.Read([]byte(c.data))
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(otlp.Record{})); !ok || diff != "" {
				t.Error(ok, diff)
			}
			if got.Service() != "agent" || got.Attribute("user") != "ada" || got.Attribute("service.name") != "agent" {
				t.Errorf("service %q, attribute of the scope %q", got.Service(), got.Attribute("user"))
			}
			shape, _, err := core.NewShapeReader().Read([]byte(c.data))
			if same, ok := otlp.OfShape(&shape); err != nil || !ok || !otlp.Is(&shape) || !cmp.Equal(got, same, cmpopts.IgnoreUnexported(otlp.Record{})) {
				t.Errorf("by its shape: %+v, %v", same, err)
			}
		})
	}
}

// An exporter may write a number as text, and a boolean, too.
func TestAttributesAsText(t *testing.T) {
	t.Parallel()
	r, ok := otlp.Read([]byte(fmt.Sprintf(logs, `{"attributes":[{"key":"n","value":{"stringValue":"12.5"}},{"key":"i","value":{"intValue":"3"}},
		{"key":"t","value":{"stringValue":"true"}},{"key":"f","value":{"boolValue":false}},{"key":"one","value":{"intValue":1}},{"key":"word","value":{"stringValue":"0x1p4"}}]}`)))
	if !ok {
		t.Fatal("not read")
	}
	for name, want := range map[string]float64{"n": 12.5, "i": 3, "one": 1} {
		if n := r.Attributes.Number(name); !n.OK || n.Value != want {
			t.Errorf("%s is %v, want %v", name, n, want)
		}
	}
	for _, name := range []string{"word", "t", "absent"} {
		if n := r.Attributes.Number(name); n.OK {
			t.Errorf("%s is the number %v", name, n.Value)
		}
	}
	for name, want := range map[string]bool{"t": true, "f": false} {
		if b := r.Attributes.Flag(name); b == nil || *b != want {
			t.Errorf("%s is %v, want %t", name, b, want)
		}
	}
	for _, name := range []string{"one", "word", "absent"} {
		if b := r.Attributes.Flag(name); b != nil {
			t.Errorf("%s is the boolean %t", name, *b)
		}
	}
}

// Anything but a document with exactly one record is none.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		`{}`, `[]`, `7`, `{"resourceLogs":{}}`, `{"resourceLogs":[7]}`, fmt.Sprintf(logs, ""), fmt.Sprintf(logs, "{},{}"),
		`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]},{"scopeLogs":[{"logRecords":[{}]}]}]}`,
		`{"resourceSpans":[{"scopeLogs":[{"metrics":[{"name":"without points"}]}]}]}`,
	} {
		if r, ok := otlp.Read([]byte(data)); ok {
			t.Errorf("%s has the record %+v", data, r)
		}
	}
}

// Each record of a batch is a document that states of it what the batch does.
func TestSplit(t *testing.T) {
	t.Parallel()
	second := strings.NewReplacer("agent", "other").Replace(strings.TrimSuffix(strings.TrimPrefix(logs, `{"resourceLogs":[`), `]}`))
	for _, c := range []struct {
		name  string
		batch string
		want  []string
	}{
		{"one record", fmt.Sprintf(logs, `{"eventName":"a"}`), nil},
		{"no export", `{"type":"user"}`, nil},
		{"two records", fmt.Sprintf(logs, `{"eventName":"a"}, {"eventName":"b"}`), []string{fmt.Sprintf(logs, `{"eventName":"a"}`), fmt.Sprintf(logs, `{"eventName":"b"}`)}},
		{
			"two resources",
			`{"resourceLogs":[` + fmt.Sprintf(strings.TrimSuffix(strings.TrimPrefix(logs, `{"resourceLogs":[`), `]}`), `{}`) + "," + fmt.Sprintf(second, `{}`) + `]}`,
			[]string{fmt.Sprintf(logs, `{}`), fmt.Sprintf(`{"resourceLogs":[`+second+`]}`, `{}`)},
		},
		{"spans", fmt.Sprintf(spans, `{"name":"a"},{"name":"a"}`), []string{fmt.Sprintf(spans, `{"name":"a"}`), fmt.Sprintf(spans, `{"name":"a"}`)}},
		{
			"data points", fmt.Sprintf(points, `{"name":"m","sum":{"dataPoints":[{"asInt":1},{"asInt":2}],"isMonotonic":true}},{"name":"g","gauge":{"dataPoints":[{"asInt":3}]}}`),
			[]string{
				fmt.Sprintf(points, `{"name":"m","sum":{"dataPoints":[{"asInt":1}],"isMonotonic":true}}`),
				fmt.Sprintf(points, `{"name":"m","sum":{"dataPoints":[{"asInt":2}],"isMonotonic":true}}`),
				fmt.Sprintf(points, `{"name":"g","gauge":{"dataPoints":[{"asInt":3}]}}`),
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			last := -1
			for _, p := range otlp.Split([]byte(c.batch)) {
				if got = append(got, string(p.Data)); p.Offset <= last || p.Offset >= len(c.batch) {
					t.Errorf("offset %d behind %d", p.Offset, last)
				}
				last = p.Offset
				if _, ok := otlp.Read(p.Data); !ok {
					t.Errorf("%s has not one record", p.Data)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A batch whose records would take too many bytes together stays whole.
func TestSplitIsBounded(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("x", 1<<20)
	batch := strings.ReplaceAll(fmt.Sprintf(logs, strings.Repeat(`{},`, 99)+`{}`), "agent", name)
	if parts := otlp.Split([]byte(batch)); parts != nil {
		t.Errorf("%d parts", len(parts))
	}
	if parts := otlp.Split([]byte(fmt.Sprintf(logs, strings.Repeat(`{},`, 20_000)+`{}`))); parts != nil {
		t.Errorf("%d parts", len(parts))
	}
}
