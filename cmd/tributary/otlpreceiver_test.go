package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// receiver is an OTLP receiver over HTTP, which keeps the spans that it gets.
type receiver struct {
	tb  testing.TB
	url string

	mu    sync.Mutex
	spans []receivedSpan
	more  chan struct{} // closed and replaced when spans arrive
}

// receivedSpan is a span with the service, the host, the instance and the schema that it came with.
type receivedSpan struct {
	*otlp.Span
	service, host, instance, schema string
}

func newReceiver(tb testing.TB) *receiver {
	tb.Helper()
	r := &receiver{tb: tb, more: make(chan struct{})}
	server := httptest.NewServer(r)
	tb.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// settings are the settings of a process that exports its traces to the receiver at once.
func (r *receiver) settings() []string {
	return []string{
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=" + r.url, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
		"OTEL_BSP_SCHEDULE_DELAY=10",
	}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var export collector.ExportTraceServiceRequest
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(req.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	data, err := io.ReadAll(body)
	if err == nil {
		err = proto.Unmarshal(data, &export)
	}
	if err != nil || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
		r.tb.Errorf("the receiver got %s %s of type %s: %v", req.Method, req.URL, req.Header.Get("Content-Type"), err)
		http.Error(w, "no OTLP", http.StatusBadRequest)
		return
	}
	r.keep(&export)
	w.Header().Set("Content-Type", "application/x-protobuf")
	answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{}) // it is empty
	_, _ = w.Write(answer)
}

// keep keeps the spans of a request.
func (r *receiver) keep(export *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, res := range export.GetResourceSpans() {
		of := attributesOf(res.GetResource().GetAttributes())
		for _, scope := range res.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans = append(r.spans, receivedSpan{s, of["service.name"], of["host.name"], of["service.instance.id"], scope.GetSchemaUrl()})
			}
		}
	}
	close(r.more)
	r.more = make(chan struct{})
}

// grpcReceiver is an OTLP receiver over gRPC.
type grpcReceiver struct {
	collector.UnimplementedTraceServiceServer
	*receiver
}

func (r grpcReceiver) Export(_ context.Context, export *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.keep(export)
	return &collector.ExportTraceServiceResponse{}, nil
}

// newGRPCReceiver is [newReceiver] over gRPC.
func newGRPCReceiver(tb testing.TB) *receiver {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	r := &receiver{tb: tb, url: "http://" + listener.Addr().String(), more: make(chan struct{})}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, grpcReceiver{receiver: r})
	go server.Serve(listener) //nolint:errcheck // it is stopped
	tb.Cleanup(server.Stop)
	return r
}

// all returns the spans that have arrived, by start, and a channel that is closed when more do.
func (r *receiver) all() ([]receivedSpan, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	spans := slices.Clone(r.spans)
	slices.SortStableFunc(spans, func(a, b receivedSpan) int { return cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()) })
	return spans, r.more
}

// await waits until the receiver has the spans that are wanted.
func (r *receiver) await(what string, wanted func([]receivedSpan) bool) []receivedSpan {
	r.tb.Helper()
	late := time.After(2 * patience)
	for {
		spans, more := r.all()
		if wanted(spans) {
			return spans
		}
		select {
		case <-more:
		case <-late:
			for _, s := range spans {
				r.tb.Logf("span %s of %s: %v", s.GetName(), s.service, attributesOf(s.GetAttributes()))
			}
			r.tb.Fatalf("the receiver does not get %s", what)
		}
	}
}

// attributesOf returns attributes as texts.
func attributesOf(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[a.GetKey()] = v.StringValue
		default:
			out[a.GetKey()] = a.GetValue().String()
		}
	}
	return out
}

// ofTrace returns the spans of a name in a trace.
func ofTrace(spans []receivedSpan, trace []byte, name string) []receivedSpan {
	var found []receivedSpan
	for _, s := range spans {
		if s.GetName() == name && string(s.GetTraceId()) == string(trace) {
			found = append(found, s)
		}
	}
	return found
}

// follows reports whether the parent of a span is another, to which it also has a link.
func follows(s, before receivedSpan) bool {
	links := slices.ContainsFunc(s.GetLinks(), func(l *otlp.Span_Link) bool { return string(l.GetSpanId()) == string(before.GetSpanId()) })
	return links && string(s.GetParentSpanId()) == string(before.GetSpanId())
}
