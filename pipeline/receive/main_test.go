package receive_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/receive"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
)

// patience limits the wait for an event that must happen.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if code, is := pipelinetest.RunProgram(map[string]pipelinetest.Program{receiverProgram: runReceiver, shipProgram: runShip}); is {
		os.Exit(code)
	}
	pipelinetest.Configure()
	goleak.VerifyTestMain(m, pipelinetest.ServerLeaks()...)
}

// logs is a log that a test can read while it is written to.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// endpoint is a receiver that listens.
type endpoint struct {
	tb     testing.TB
	js     jetstream.JetStream
	url    string
	addr   string
	log    *logs
	client *http.Client
}

// start starts a broker and a receiver, which end with the test.
func start(tb testing.TB, c receive.Config) *endpoint {
	tb.Helper()
	js := pipelinetest.NewServer(tb).Provision(streams.Topology{Generation: "v1", Partitions: 4})
	return listen(tb, js, c)
}

// listen starts a receiver at a broker.
func listen(tb testing.TB, js jetstream.JetStream, c receive.Config) *endpoint {
	tb.Helper()
	e := &endpoint{tb: tb, js: js, log: new(logs)}
	c.Logger = slog.New(slog.NewTextHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r, err := receive.New(js, c)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	e.addr = l.Addr().String()
	e.url = "http://" + e.addr
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	e.client = &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, nil, 10*time.Second, l) }()
	tb.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			tb.Errorf("serve: %v", err)
		}
	})
	if len(c.Subjects) > 0 { // they are subscribed to before the first request is answered
		e.post("/", nil)
		if err := js.Conn().Flush(); err != nil {
			tb.Fatal(err)
		}
	}
	return e
}

// post sends a request over HTTP and returns its answer.
func (e *endpoint) post(path string, body []byte, header ...string) (*http.Response, []byte) {
	e.tb.Helper()
	req, err := http.NewRequestWithContext(e.tb.Context(), http.MethodPost, e.url+path, bytes.NewReader(body))
	if err != nil {
		e.tb.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return e.do(req)
}

func (e *endpoint) do(req *http.Request) (*http.Response, []byte) {
	e.tb.Helper()
	answer, err := e.client.Do(req)
	if err != nil {
		e.tb.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		e.tb.Fatal(err)
	}
	return answer, text
}

// dial connects by gRPC.
func (e *endpoint) dial() *grpc.ClientConn {
	e.tb.Helper()
	conn, err := grpc.NewClient(e.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		e.tb.Fatal(err)
	}
	e.tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// stored returns the records of the raw stream.
func (e *endpoint) stored() []core.Record {
	e.tb.Helper()
	var list []core.Record
	for _, m := range e.messages() {
		header := m.Header
		r, claim, err := records.Read(&nats.Msg{Subject: m.Subject, Header: header, Data: m.Data}, m.Sequence, m.Time)
		if err != nil {
			e.tb.Fatal(err)
		}
		if claim.Size > 0 {
			r.Data = []byte(claim.String())
		}
		list = append(list, r)
	}
	return list
}

// messages returns the messages of the raw stream.
func (e *endpoint) messages() []*jetstream.RawStreamMsg {
	e.tb.Helper()
	s, err := e.js.Stream(e.tb.Context(), streams.RawStream)
	if err != nil {
		e.tb.Fatal(err)
	}
	var list []*jetstream.RawStreamMsg
	for n := uint64(1); n <= s.CachedInfo().State.LastSeq; n++ {
		m, err := s.GetMsg(e.tb.Context(), n)
		if err != nil {
			e.tb.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}

// logsOf returns log records of a service with a session, one for each body. An attribute event.sequence counts them.
func logsOf(service, session string, bodies ...string) plog.Logs {
	all := plog.NewLogs()
	of := all.ResourceLogs().AppendEmpty()
	of.Resource().Attributes().PutStr("service.name", service)
	in := of.ScopeLogs().AppendEmpty()
	in.Scope().SetName(service + ".events")
	for i, body := range bodies {
		r := in.LogRecords().AppendEmpty()
		r.SetTimestamp(pcommon.Timestamp(1_760_000_000_000_000_000 + i))
		r.Body().SetStr(body)
		if session != "" {
			r.Attributes().PutStr("session.id", session)
		}
		r.Attributes().PutInt("event.sequence", int64(i))
	}
	return all
}

func protobufOf(tb testing.TB, l plog.Logs) []byte {
	tb.Helper()
	data, err := plogotlp.NewExportRequestFromLogs(l).MarshalProto()
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// compressed returns data in an encoding.
func compressed(tb testing.TB, encoding string, data []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch encoding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zstd":
		z, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
		if err != nil {
			tb.Fatal(err)
		}
		w = z
	default:
		return data
	}
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}
