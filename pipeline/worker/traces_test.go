package worker_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// created is the trace context of the creation of a record, and the ids in it.
const (
	created      = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	createdTrace = "0af7651916cd43dd8448eb211c80319c"
	createdSpan  = "b7ad6b7169203331"
)

// recording returns a tracer and what it has recorded of a name.
func recording() (trace.Tracer, func(name string) []sdktrace.ReadOnlySpan) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	return provider.Tracer("test"), func(name string) []sdktrace.ReadOnlySpan {
		var found []sdktrace.ReadOnlySpan
		for _, s := range recorder.Ended() {
			if s.Name() == name {
				found = append(found, s)
			}
		}
		return found
	}
}

// linksTo reports whether a span links to a span id.
func linksTo(s sdktrace.ReadOnlySpan, id string) bool {
	return slices.ContainsFunc(s.Links(), func(l sdktrace.Link) bool { return l.SpanContext.SpanID().String() == id })
}

// spanOf returns the span id of a W3C trace context.
func spanOf(traceparent string) string {
	parts := strings.Split(traceparent, "-")
	if len(parts) != 4 {
		return ""
	}
	return parts[2]
}

// The trace of a record leads to its dead letter; the copy that is requeued continues it with a
// link to the dead letter, up to the events of the copy.
func TestRequeuedCopyContinuesTheTraceOfItsRecord(t *testing.T) {
	t.Parallel()
	for _, traced := range []bool{true, false} {
		t.Run(fmt.Sprintf("traced=%t", traced), func(t *testing.T) {
			t.Parallel()
			top := topology(1)
			js := pipelinetest.NewServer(t).Provision(top)
			tracer, spans := recording()
			cfg := worker.Config{Topology: top, Normalize: breaksUntil("boom", 1)}
			ctx := t.Context()
			if traced {
				cfg.Tracer = tracer
				var outer trace.Span
				ctx, outer = tracer.Start(ctx, "requeue")
				defer outer.End()
			}
			r := user("s", "boom")
			r.Origin.Traceparent = created
			pipelinetest.Publish(t, js, r)
			x := pipelinetest.Expectation{Topology: top, Normalize: cfg.Normalize}
			s := start(t, js, cfg)
			x.RequireExact(t, js)
			letter := stored(t, js, "deadletters.v1.>")[0]
			err := events.Requeue(ctx, js, events.DeadLetters(ctx, js, "v1", events.DeadLettersQuery{}), func(events.DeadLetter, events.Requeued) {})
			if err != nil {
				t.Fatal(err)
			}
			x.RequireExact(t, js)
			s.stop(t)

			event := stored(t, js, "events.v1.>")[0]
			raw, err := js.Stream(t.Context(), streams.RawStream)
			if err != nil {
				t.Fatal(err)
			}
			copied, err := raw.GetMsg(t.Context(), 2)
			if err != nil {
				t.Fatal(err)
			}
			if !traced {
				for what, m := range map[string]nats.Header{"dead letter": letter.Header, "copy": copied.Header, "event": event.Header} {
					if got := m.Get("traceparent"); got != created {
						t.Errorf("the %s has the context %q", what, got)
					}
				}
				return
			}
			work, sent, again := spans("process raw"), spans("publish events"), spans("publish raw")
			if len(work) != 2 || len(sent) != 2 || len(again) != 1 {
				t.Fatalf("%d, %d and %d spans", len(work), len(sent), len(again))
			}
			for _, s := range slices.Concat(work, sent, again) {
				if s.SpanContext().TraceID().String() != createdTrace {
					t.Errorf("%s is in another trace", s.Name())
				}
			}
			if got := spanOf(letter.Header.Get("traceparent")); got != sent[0].SpanContext().SpanID().String() || !linksTo(again[0], got) {
				t.Error("the copy has no link to the publication of the dead letter")
			}
			if len(sent[0].Events()) != 1 || sent[0].Events()[0].Name != "dead letter" {
				t.Errorf("the publication of the dead letter has the events %v", sent[0].Events())
			}
			if again[0].Parent().SpanID().String() != createdSpan || spanOf(copied.Header.Get("traceparent")) != again[0].SpanContext().SpanID().String() {
				t.Error("the copy does not continue the trace of its record")
			}
			if work[1].Parent().SpanID() != again[0].SpanContext().SpanID() || spanOf(event.Header.Get("traceparent")) != sent[1].SpanContext().SpanID().String() {
				t.Error("the event does not continue the trace of the copy")
			}
		})
	}
}

// Each generation is a trace of its own but for the live one: the work of all links to the creation
// of the record, also the fetch of its object.
func TestReplayLinksToTheCreationOfItsRecords(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t, smallMessages).Provision(top)
	tracer, spans := recording()
	r := prompt("s", 1, 1<<20)
	r.Origin.Traceparent = created
	if _, err := claims.NewStore(js).Put(t.Context(), r.Data); err != nil {
		t.Fatal(err)
	}
	pipelinetest.PublishMessages(t.Context(), t, js, records.ClaimMessage(r))
	cfg := member(top, "w0")
	cfg.Tracer = tracer
	w := work(t, js, cfg)
	caughtUp(t, js, top)
	startReplay(t, js, replay.Request{Name: "b"})
	caughtUp(t, js, of(top, "b"))
	w.stop(t)
	for _, name := range []string{"process raw", "get object"} {
		found := spans(name)
		if len(found) != 2 {
			t.Fatalf("%d spans %s", len(found), name)
		}
		for i, generation := range []string{"v1", "b"} {
			inTrace := found[i].SpanContext().TraceID().String() == createdTrace
			if !linksTo(found[i], createdSpan) || inTrace != (generation == "v1") {
				t.Errorf("%s of %s: in the trace of the record: %t, links %v", name, generation, inTrace, found[i].Links())
			}
			named := false
			for _, a := range found[i].Attributes() {
				named = named || a.Key == "tributary.generation" && a.Value.AsString() == generation
			}
			if !named {
				t.Errorf("%s does not name the generation %s", name, generation)
			}
		}
	}
}

// Without a tracer, a stage does nothing for traces, whatever context a record has.
func TestTracesCostNothingWhenTheyAreOff(t *testing.T) {
	for _, traceparent := range []string{"", created} {
		if n := testing.AllocsPerRun(100, func() { worker.TracesOff(traceparent) }); n != 0 {
			t.Errorf("%v allocations with the context %q", n, traceparent)
		}
	}
}

// BenchmarkTraces measures a stage without a tracer, whose records have a trace context or none, and
// with one. The broker is in the same process, and makes a map of the headers of each message with a
// traceparent: these are most of the allocations that a context adds.
//
//	go test ./pipeline/worker -run '^$' -bench Traces -benchtime 3x
func BenchmarkTraces(b *testing.B) {
	const n = 10_000
	for _, mode := range []string{"off", "off/context", "on"} {
		records := slices.Clone(realRecords(b, n))
		cfg := worker.Config{Topology: topology(1)}
		if mode != "off" {
			for i := range records {
				records[i].Origin.Traceparent = created
			}
		}
		if mode == "on" {
			cfg.Tracer = sdktrace.NewTracerProvider().Tracer("bench")
		}
		b.Run(strings.ReplaceAll(mode, "/", "-"), func(b *testing.B) { measureTraces(b, cfg, records) })
	}
	b.Run("nothing", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			worker.TracesOff(created)
		}
	})
}

// measureTraces reports the time and the allocations of a stage that works through records.
func measureTraces(b *testing.B, cfg worker.Config, records []core.Record) {
	b.Helper()
	var allocations uint64
	var took float64
	for range b.N {
		js := pipelinetest.NewServer(b).Provision(cfg.Topology)
		publish(b, js, records)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		took += drainWith(b, js, cfg).Seconds()
		runtime.ReadMemStats(&after)
		allocations += after.Mallocs - before.Mallocs
	}
	count := float64(b.N * len(records))
	b.ReportMetric(float64(allocations)/count, "allocs/record")
	b.ReportMetric(took*1e6/count, "us/record")
	b.ReportMetric(0, "ns/op")
}
