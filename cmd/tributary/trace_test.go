package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
)

// One record in a log is one trace, from ship over the workers to a consumer, although the first
// worker is killed before it has stored the event, and the consumer gets the event twice.
func TestOneTraceLeadsFromShipToAConsumerThroughAKillAndARedelivery(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 1}
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	proxy := pipelinetest.NewProxy(t, server)
	r := newReceiver(t)
	setup := func(c *exec.Cmd) { c.Env = append(append(c.Env, r.settings()...), "TRIBUTARY_PARTITIONS=1") }
	home, log := t.TempDir(), filepath.Join(t.TempDir(), "0b6a7f58.jsonl")
	write(t, log, hello)

	proxy.Only("checkpoints.") // the keeper of the records of sessions commits, too
	proxy.Arm(slices.Repeat([]pipelinetest.Cut{pipelinetest.BeforeCommit}, 50)...)
	first := startWith(t, setup, home, proxy.URL(), "run")
	pseudonym := func(c *exec.Cmd) {
		setup(c)
		c.Env = append(c.Env, "TRIBUTARY_IDENTITY=pseudonym", "TRIBUTARY_REDACT_KEY=a key of the tests, of no value")
	}
	edge := startWith(t, pseudonym, home, server.URL(), "ship", log)
	<-proxy.Done
	first.kill()
	second := startWith(t, setup, home, server.URL(), "run")
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	consumeTwice(t, server, r)
	edge.signal(syscall.SIGTERM)
	second.signal(syscall.SIGTERM)

	stored := func(s receivedSpan) bool { return s.GetStatus().GetCode() != otlp.Status_STATUS_CODE_ERROR }
	spans := r.await("the spans of the record", func(spans []receivedSpan) bool {
		return slices.ContainsFunc(spans, func(s receivedSpan) bool { return s.GetName() == "publish events" && stored(s) })
	})
	created := slices.IndexFunc(spans, func(s receivedSpan) bool { return s.GetName() == "publish raw" })
	if created < 0 {
		t.Fatal("no span of the publication of the record")
	}
	root := spans[created]
	if len(root.GetParentSpanId()) != 0 || root.GetKind() != otlp.Span_SPAN_KIND_PRODUCER {
		t.Errorf("the trace begins with %v", root)
	}
	work := slices.DeleteFunc(ofTrace(spans, root.GetTraceId(), "process raw"), func(s receivedSpan) bool { return !stored(s) })
	sent := slices.DeleteFunc(ofTrace(spans, root.GetTraceId(), "publish events"), func(s receivedSpan) bool { return !stored(s) })
	used := ofTrace(spans, root.GetTraceId(), "process events")
	if len(work) != 1 || len(sent) != 1 || len(used) != 2 {
		t.Fatalf("%d, %d and %d spans of work, publication and consumption", len(work), len(sent), len(used))
	}
	if attempt := attributesOf(work[0].GetAttributes())["tributary.attempt"]; !follows(work[0], root) || attempt == "" {
		t.Errorf("the work does not follow the record, or does not say that it was tried before: attempt %q", attempt)
	}
	if sender := attributesOf(work[0].GetLinks()[0].GetAttributes())["host.name"]; !strings.HasPrefix(root.host, "host-") || sender != root.host || work[0].host != hostname() {
		t.Errorf("the record is of %q, for the worker of %q, the work of %q", root.host, sender, work[0].host)
	}
	if string(sent[0].GetParentSpanId()) != string(work[0].GetSpanId()) {
		t.Error("the publication does not follow the work")
	}
	for i, s := range used {
		origin := slices.ContainsFunc(s.GetLinks(), func(l *otlp.Span_Link) bool { return string(l.GetSpanId()) == string(root.GetSpanId()) })
		if !follows(s, sent[0]) || !origin || stored(s) != (i == 1) {
			t.Errorf("delivery %d: follows the publication: %t, links to the record: %t, succeeds: %t", i+1, follows(s, sent[0]), origin, stored(s))
		}
	}
	for _, s := range slices.Concat([]receivedSpan{root}, work, sent, used) {
		attrs := attributesOf(s.GetAttributes())
		for _, key := range []string{"messaging.system", "messaging.operation.name", "messaging.operation.type", "messaging.destination.template"} {
			if attrs[key] == "" {
				t.Errorf("span %s has no %s", s.GetName(), key)
			}
		}
	}
}

// consumeTwice passes the event to a handler that fails the first time.
func consumeTwice(t *testing.T, server *pipelinetest.Server, r *receiver) {
	t.Helper()
	consumeTraced(t, server, r, 2, func(delivery int) error {
		if delivery == 1 {
			return errors.New("not this time")
		}
		return nil
	})
}

// consumeTraced passes events to a handler for a number of deliveries. Its spans go to the receiver.
func consumeTraced(t *testing.T, server *pipelinetest.Server, r *receiver, want int, handle func(delivery int) error) {
	t.Helper()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(r.url+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	s, err := subscribe.New(server.JetStream(), subscribe.Config{Name: "consumer", Generation: "v1", Tracer: provider.Tracer("consumer")})
	if err != nil {
		t.Fatal(err)
	}
	deliveries := 0
	err = s.Run(t.Context(), func(context.Context, subscribe.Event) error {
		if deliveries++; deliveries == want {
			s.Drain()
		}
		return handle(deliveries)
	})
	if err != nil || deliveries != want {
		t.Fatalf("%d deliveries: %v", deliveries, err)
	}
	if err := provider.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// Each record of a backlog has a trace from ship over the worker to a consumer, although the worker stores many with one batch. The
// work on it names the batch, and the processes name their hosts and instances.
func TestEachRecordOfABacklogHasATraceToAConsumer(t *testing.T) {
	t.Parallel()
	const records = 20
	top := streams.Topology{Generation: "v1", Partitions: 1}
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	r := newReceiver(t)
	setup := func(c *exec.Cmd) {
		c.Env = append(append(c.Env, r.settings()...), "TRIBUTARY_PARTITIONS=1", "TRIBUTARY_WORKER=ada", "TRIBUTARY_IDENTITY=plain")
	}
	home, log := t.TempDir(), filepath.Join(t.TempDir(), "0b6a7f58.jsonl")
	var text strings.Builder
	for i := range records {
		text.WriteString(strings.ReplaceAll(hello, `"uuid":"u`, fmt.Sprintf(`"uuid":"u%d-`, i)))
	}
	write(t, log, text.String())
	if p := startWith(t, setup, home, server.URL(), "ship", "--once", "--source", "claude_code", log); p.wait() != 0 {
		t.Fatal(p.stderr.String())
	}
	worker := startWith(t, setup, home, server.URL(), "run")
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	consumeTraced(t, server, r, records, func(int) error { return nil })
	worker.signal(syscall.SIGTERM)
	whole := func(spans []receivedSpan) (n int) {
		for _, root := range spans {
			if root.GetName() != "publish raw" {
				continue
			}
			work, used := ofTrace(spans, root.GetTraceId(), "process raw"), ofTrace(spans, root.GetTraceId(), "process events")
			if len(work) == 1 && len(used) == 1 && string(work[0].GetParentSpanId()) == string(root.GetSpanId()) {
				n++
			}
		}
		return n
	}
	spans := r.await("a trace of each record", func(spans []receivedSpan) bool { return whole(spans) == records })
	for _, s := range spans {
		if s.service == "tributary" && (s.host != hostname() || s.instance != "ada") {
			t.Errorf("span %s is of host %q, instance %q", s.GetName(), s.host, s.instance)
		}
		if s.GetName() != "process raw" || len(s.GetParentSpanId()) == 0 {
			continue
		}
		batch := slices.IndexFunc(spans, func(b receivedSpan) bool { return string(b.GetSpanId()) == string(s.GetLinks()[0].GetSpanId()) })
		if batch < 0 || len(ofTrace(spans, spans[batch].GetTraceId(), "publish events")) != 1 {
			t.Errorf("the work on a record leads to batch %d", batch)
		}
		if attrs := attributesOf(s.GetAttributes()); attrs["tributary.record.sequence"] == "" || attrs["messaging.message.conversation_id"] != "0b6a7f58" {
			t.Errorf("the work on a record has the attributes %v", attrs)
		}
	}
}

// The copy of a dead letter that is requeued is in the trace of its record.
func TestRequeueContinuesTheTraceOfARecord(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 1}
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	r := newReceiver(t)
	setup := func(c *exec.Cmd) { c.Env = append(append(c.Env, r.settings()...), "TRIBUTARY_PARTITIONS=1") }
	home, log := t.TempDir(), filepath.Join(t.TempDir(), "0b6a7f58.jsonl")
	write(t, log, `{"type":"user",oops}`+"\n")
	startWith(t, setup, home, server.URL(), "run")
	for _, args := range [][]string{{"ship", "--once", "--source", "claude_code", log}, {"dlq", "requeue", "--all"}} {
		if p := startWith(t, setup, home, server.URL(), args...); p.wait() != 0 {
			t.Fatalf("%v: %s", args, &p.stderr)
		}
		if err := replay.CatchUp(t.Context(), js, top); err != nil {
			t.Fatal(err)
		}
	}
	spans := r.await("the publication of the copy", func(spans []receivedSpan) bool {
		return slices.ContainsFunc(spans, func(s receivedSpan) bool {
			return attributesOf(s.GetAttributes())["tributary.dead_letter.reason"] != ""
		})
	})
	copied := slices.IndexFunc(spans, func(s receivedSpan) bool {
		return attributesOf(s.GetAttributes())["tributary.dead_letter.reason"] != ""
	})
	created := slices.IndexFunc(spans, func(s receivedSpan) bool {
		return string(s.GetSpanId()) == string(spans[copied].GetParentSpanId())
	})
	if created < 0 || spans[created].GetName() != "publish raw" || len(spans[copied].GetLinks()) != 2 {
		t.Errorf("the copy follows span %d and has the links %v", created, spans[copied].GetLinks())
	}
}

// The spans of a session that is exported again, over another protocol, are the same. They have no content, unless it is
// asked for.
func TestExportedSessionIsTheSameTracesAgain(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 1}
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	home, logs := t.TempDir(), t.TempDir()
	roots, err := copySamples(logs)
	if err != nil || len(roots) == 0 {
		t.Fatalf("%d samples: %v", len(roots), err)
	}
	setup := func(c *exec.Cmd) { c.Env = append(c.Env, "TRIBUTARY_PARTITIONS=1") }
	startWith(t, setup, home, server.URL(), "run")
	if p := startWith(t, setup, home, server.URL(), "ship", "--once", filepath.Join(logs, "claude_code")); p.wait() != 0 {
		t.Fatal(p.stderr.String())
	}
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	exported := func(r *receiver, protocol string, args ...string) []string {
		p := startWith(t, func(c *exec.Cmd) {
			c.Env = append(append(c.Env, r.settings()...), "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="+protocol)
		}, home, server.URL(), append([]string{"trace", "6a1f2c9e", "--otlp"}, args...)...)
		if p.wait() != 0 || !strings.Contains(p.stderr.String(), "in 2 traces to "+r.url) {
			t.Fatal(p.stderr.String())
		}
		spans, _ := r.all()
		var out []string
		for _, s := range spans {
			if s.schema != "https://opentelemetry.io/schemas/1.41.0" {
				t.Errorf("the schema is %q", s.schema)
			}
			out = append(out, s.Span.String())
		}
		slices.Sort(out)
		return out
	}
	once, again, content := exported(newReceiver(t), "http/protobuf"), exported(newGRPCReceiver(t), "grpc"), exported(newReceiver(t), "http/protobuf", "--content")
	if len(once) < 20 || len(content) != len(once) {
		t.Fatalf("%d spans, %d with content", len(once), len(content))
	}
	if diff := cmp.Diff(unspaced(once), unspaced(again)); diff != "" {
		t.Errorf("exported again (-once +again):\n%s", diff)
	}
	for _, private := range []string{"TestTransfer fails", "gen_ai.output.messages", "gen_ai.tool.call.arguments"} {
		if strings.Contains(strings.Join(once, ""), private) || !strings.Contains(strings.Join(content, ""), private) {
			t.Errorf("%q: without --content too, or not with it", private)
		}
	}
	away := startWith(t, func(c *exec.Cmd) { c.Env = append(c.Env, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1") }, home, server.URL(), "trace", "6a1f2c9e", "--otlp")
	if code := away.wait(); code != 1 || !strings.Contains(away.stderr.String(), "start the receiver, or name another one in OTEL_EXPORTER_OTLP_ENDPOINT") {
		t.Errorf("without a receiver: exit code %d, %s", code, &away.stderr)
	}
}

// unspaced removes the spaces that the text form of protobuf varies on purpose.
func unspaced(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.Join(strings.Fields(s), " ")
	}
	return out
}
