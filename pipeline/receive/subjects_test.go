package receive_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/receive"
	"tributary/pipeline/streams"
)

// atSubjects returns the default subjects of the exporter of the collector.
func atSubjects(t *testing.T) []receive.Subject {
	t.Helper()
	list, err := receive.ParseSubjects("logs=otel_logs, traces=otel_traces,metrics=otel_metrics")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// requests counts the requests of a reader by route and outcome.
func requests(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, of := range all.ScopeMetrics {
		for _, m := range of.Metrics {
			if m.Name != "tributary.receive.requests" {
				continue
			}
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				route, _ := p.Attributes.Value("route")
				outcome, _ := p.Attributes.Value("outcome")
				if p.Value > 0 {
					counts[route.AsString()+" "+outcome.AsString()] = p.Value
				}
			}
		}
	}
	return counts
}

// bothEncodings returns a request in protobuf and in JSON.
func bothEncodings(t *testing.T, request interface {
	MarshalProto() ([]byte, error)
	MarshalJSON() ([]byte, error)
},
) [2][]byte {
	t.Helper()
	protobuf, err := request.MarshalProto()
	text, failure := request.MarshalJSON()
	if err := errors.Join(err, failure); err != nil {
		t.Fatal(err)
	}
	return [2][]byte{protobuf, text}
}

// What a collector publishes to a subject is stored as if it had come by HTTP: the same records with the same ids, so
// that the broker drops those that come again by HTTP. Only the sender is another one: the labels alone.
func TestSubjectsAreStoredAsHTTPIs(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("")
	e := start(t, receive.Config{
		Subjects: atSubjects(t), Meter: meter,
		Admission: receive.Admission{Edge: &envelopes.Edge{Host: "h", User: "u", Labels: map[string]string{"site": "x"}}},
	})
	traces := ptrace.NewTraces()
	spans := traces.ResourceSpans().AppendEmpty()
	spans.Resource().Attributes().PutStr("service.name", "claude-code")
	spans.Resource().Attributes().PutStr("session.id", "one")
	spans.ScopeSpans().AppendEmpty().Spans().AppendEmpty().SetName("chat")
	metrics := pmetric.NewMetrics()
	points := metrics.ResourceMetrics().AppendEmpty()
	spans.Resource().CopyTo(points.Resource())
	m := points.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("claude_code.token.usage")
	m.SetEmptyGauge().DataPoints().AppendEmpty().SetIntValue(1)
	stored := 0
	for signal, bodies := range map[string][2][]byte{
		"logs":    bothEncodings(t, plogotlp.NewExportRequestFromLogs(mixed())),
		"traces":  bothEncodings(t, ptraceotlp.NewExportRequestFromTraces(traces)),
		"metrics": bothEncodings(t, pmetricotlp.NewExportRequestFromMetrics(metrics)),
	} {
		stored++
		for _, body := range bodies {
			if err := e.js.Conn().Publish("otel_"+signal, body); err != nil {
				t.Fatal(err)
			}
		}
		e.await("both messages are answered", func() bool {
			got := requests(t, reader)
			return got["nats_"+signal+" stored"]+got["nats_"+signal+" partly"] == 2
		})
		for i, kind := range []string{"application/x-protobuf", "application/json"} {
			if answer, text := e.post("/v1/"+signal, bodies[i], "Content-Type", kind); answer.StatusCode != http.StatusOK {
				t.Errorf("%s: %s: %s", signal, answer.Status, text)
			}
		}
		list := e.stored()
		if len(list) != stored {
			t.Fatalf("%d records are stored after %s, want %d", len(list), signal, stored)
		}
		last := list[stored-1]
		if diff := cmp.Diff(&envelopes.Edge{Labels: map[string]string{"site": "x"}}, last.Origin.Edge); diff != "" {
			t.Errorf("%s: sender (-want +got):\n%s", signal, diff)
		}
		if last.Source != envelopes.ClaudeCode || last.Session != "one" || signal == "logs" && string(last.Data) != document {
			t.Errorf("%s: %s/%s: %s", signal, last.Source, last.Session, last.Data)
		}
	}
}

// A message with an inbox is answered as JetStream acknowledges one: when its records are stored, and not before. One
// that names another subject is not answered, which could write to a stream.
func TestSubjectsAnswer(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	e := listen(t, server.JetStream(), receive.Config{Subjects: atSubjects(t)})
	publisher := server.JetStream()
	good := protobufOf(t, mixed())
	failure := func(data []byte) int {
		t.Helper()
		_, err := publisher.Publish(t.Context(), "otel_logs", data)
		var api *jetstream.APIError
		if !errors.As(err, &api) {
			t.Fatalf("got %v, want an error of JetStream", err)
		}
		return api.Code
	}
	if code := failure(good); code != 503 { // before the first worker
		t.Errorf("without a raw stream: %d", code)
	}
	js := server.Provision(streams.Topology{Generation: "v1", Partitions: 4})
	e.js = js
	ack, err := publisher.Publish(t.Context(), "otel_logs", good)
	if err != nil || ack.Stream != streams.RawStream {
		t.Fatal(ack, err)
	}
	requireDocument(t, e)
	if code := failure([]byte("no protobuf")); code != 400 {
		t.Errorf("malformed: %d", code)
	}
	answer, err := publisher.Conn().Request("otel_logs", good, patience)
	if err != nil {
		t.Fatal(err)
	}
	var is struct{ Response json.RawMessage }
	response := plogotlp.NewExportResponse()
	requirePartly(t, errors.Join(json.Unmarshal(answer.Data, &is), response.UnmarshalJSON(is.Response)), response)

	other := protobufOf(t, logsOf("claude-code", "two", "x"))
	for _, reply := range []string{"raw.claude_code.b25l", "elsewhere"} {
		sub, err := publisher.Conn().SubscribeSync(reply)
		if err != nil {
			t.Fatal(err)
		}
		if err := publisher.Conn().PublishMsg(&nats.Msg{Subject: "otel_logs", Reply: reply, Data: other}); err != nil {
			t.Fatal(err)
		}
		// The message after it is answered, so that one is done.
		if _, err := publisher.Publish(t.Context(), "otel_logs", good); err != nil {
			t.Fatal(err)
		}
		if n, _, err := sub.Pending(); err != nil || n != 0 {
			t.Errorf("%s: %d answers, %v", reply, n, err)
		}
	}
	if list := e.stored(); len(list) != 2 || list[1].Session != "two" {
		t.Errorf("stored: %v", list)
	}
}

// While the broker stores nothing, a message without an inbox waits, and those after it as far as there is memory. The
// others are lost, and counted. A receiver that ends stores what has arrived; each message is for one receiver.
func TestSubjectsWaitForTheBroker(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	reader := sdkmetric.NewManualReader()
	e := listen(t, server.JetStream(), receive.Config{
		Subjects: atSubjects(t), Limits: receive.Limits{Body: 64 << 10, InFlight: 64 << 10},
		Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter(""),
	})
	publisher := server.JetStream().Conn()
	const each, sent = 10 << 10, 20
	for n := range sent {
		body := fmt.Sprint(n, " ", strings.Repeat("w", each))
		if err := publisher.Publish("otel_logs", protobufOf(t, logsOf("claude-code", fmt.Sprint("session ", n), body))); err != nil {
			t.Fatal(err)
		}
	}
	if err := publisher.Flush(); err != nil {
		t.Fatal(err)
	}
	e.await("the first message waits", func() bool { return requests(t, reader)["nats_logs unavailable"] > 1 })
	e.js = server.Provision(streams.Topology{Generation: "v1", Partitions: 4})
	e.await("all messages are stored or counted", func() bool {
		got := requests(t, reader)
		return got["nats_logs stored"]+got["nats_logs too_many"] == sent
	})
	got, list := requests(t, reader), e.stored()
	if int64(len(list)) != got["nats_logs stored"] || len(list) < 4 || len(list) > 8 {
		t.Errorf("%d records are stored: %v", len(list), got)
	}
	for n, r := range list {
		if r.Session != fmt.Sprint("session ", n) {
			t.Errorf("record %d is of %s", n, r.Session)
		}
	}

	// The broker is another process after it was away: the subscriptions are there again.
	server.Restart()
	listen(t, server.JetStream(), receive.Config{Subjects: atSubjects(t)})
	after := int64(0)
	e.await("each of two receivers has messages", func() bool {
		if _, err := publisher.Request("otel_logs", protobufOf(t, logsOf("claude-code", fmt.Sprint("after ", after), "x")), patience); err != nil {
			t.Fatal(err)
		}
		after++
		one := requests(t, reader)["nats_logs stored"] - got["nats_logs stored"]
		return 0 < one && one < after
	})
	if all := e.stored(); int64(len(all)) != int64(len(list))+after {
		t.Errorf("%d records are stored, want %d", len(all), int64(len(list))+after)
	}
}

// The setting names subjects of its own, each with its signal.
func TestSettingOfSubjects(t *testing.T) {
	t.Parallel()
	if got := atSubjects(t); !slices.Equal(got, []receive.Subject{{"logs", "otel_logs"}, {"traces", "otel_traces"}, {"metrics", "otel_metrics"}}) {
		t.Errorf("got %v", got)
	}
	for _, wrong := range []string{"otel_logs", "logs", "logs=", "hooks=x", "logs=a..b", "logs=a b", "logs=>", "logs=*.logs"} {
		if list, err := receive.ParseSubjects(wrong); err == nil {
			t.Errorf("%q is %v", wrong, list)
		}
	}
}
