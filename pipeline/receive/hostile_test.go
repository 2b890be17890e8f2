package receive_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/pipeline/receive"
)

// nested returns a request in protobuf whose only record has a value in lists in lists, depth of them.
func nested(depth int) []byte {
	var value []byte
	for i := range depth {
		number := protowire.Number(1) // values of a list
		if i%2 == 1 {
			number = 5 // a list as a value
		}
		value = append(protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(len(value))), value...)
	}
	for _, number := range []protowire.Number{5, 2, 2, 1} { // body, record, scope, resource
		value = append(protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(len(value))), value...)
	}
	return value
}

// A request that is small and would take much when it is decoded is refused before: a bomb of compression, values in
// values, and many empty records. The receiver takes requests meanwhile and after, and keeps nothing of it.
func TestBombs(t *testing.T) {
	t.Parallel()
	e := start(t, receive.Config{Limits: receive.Limits{Body: 1 << 20, InFlight: 4 << 20}})
	zeros := make([]byte, 64<<20)
	gzipped, zstandard := compressed(t, "gzip", zeros), compressed(t, "zstd", zeros)
	small := protobufOf(t, logsOf("claude-code", "one", "x"))
	emptyRecords := bytes.Repeat([]byte{0x12, 0}, 400_000) // log records of a scope
	for _, number := range []protowire.Number{2, 1} {
		emptyRecords = append(protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(len(emptyRecords))), emptyRecords...)
	}
	list := `{"resourceLogs":[{"scopeLogs":[{"logRecords":[` + strings.Repeat("{},", 300_000) + `{}]}]}]}`
	deepJSON := `{"resourceLogs":[{"resource":{"attributes":[{"key":"k","value":` + strings.Repeat(`{"arrayValue":{"values":[`, 20_000) + strings.Repeat(`]}}`, 20_000) + `}]}}]}`
	for name, c := range map[string]struct {
		kind, encoding string
		body           []byte
		status         int
	}{
		"gzip":                  {"application/x-protobuf", "gzip", gzipped, 413},
		"zstd":                  {"application/x-protobuf", "zstd", zstandard, 413},
		"lists in lists":        {"application/x-protobuf", "", nested(10_000), 400},
		"lists in lists, 200":   {"application/x-protobuf", "", nested(200), 400},
		"empty records":         {"application/x-protobuf", "", emptyRecords, 413},
		"empty records, JSON":   {"application/json", "", []byte(list), 413},
		"lists in lists, JSON":  {"application/json", "", []byte(deepJSON), 400},
		"length beyond the end": {"application/x-protobuf", "", []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, 400},
		"length that overflows": {"application/x-protobuf", "", append([]byte{0x0a}, bytes.Repeat([]byte{0xff}, 12)...), 400},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		answer, text := e.post("/v1/logs", c.body, "Content-Type", c.kind, "Content-Encoding", c.encoding)
		runtime.ReadMemStats(&after)
		if answer.StatusCode != c.status {
			t.Errorf("%s: %s: %s, want %d", name, answer.Status, text, c.status)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 256<<20 {
			t.Errorf("%s: %d MiB were allocated", name, allocated>>20)
		}
		if answer, text := e.post("/v1/logs", small, "Content-Type", "application/x-protobuf"); answer.StatusCode != http.StatusOK {
			t.Fatalf("after %s: %s: %s", name, answer.Status, text)
		}
	}
	// What is as deep as allowed is stored.
	if answer, text := e.post("/v1/logs", nested(80), "Content-Type", "application/x-protobuf"); answer.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", answer.Status, text)
	}
	if n := len(e.stored()); n != 1 {
		t.Errorf("%d records are stored, want 1", n)
	}
}

// raw opens a connection, writes text and returns it.
func (e *endpoint) raw(text string) net.Conn {
	e.tb.Helper()
	conn, err := new(net.Dialer).DialContext(e.tb.Context(), "tcp", e.addr)
	if err != nil {
		e.tb.Fatal(err)
	}
	e.tb.Cleanup(func() { _ = conn.Close() })
	_, _ = io.WriteString(conn, text) // fails if the server refuses before it has read all
	return conn
}

// head is the head of a request with a body of a length.
func head(length int) string {
	return fmt.Sprintf("POST /v1/logs HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n", length)
}

func answerOf(t *testing.T, conn net.Conn) *http.Response {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// fill opens the connections of hold until a request is refused. A request that comes before them takes their room, so
// they are opened again behind it.
func (e *endpoint) fill(what string, hold func() []net.Conn, refused func() bool) (held []net.Conn) {
	e.tb.Helper()
	held = hold()
	e.await(what, func() bool {
		if refused() {
			return true
		}
		closeAll(held)
		held = hold()
		return false
	})
	return held
}

func closeAll(held []net.Conn) {
	for _, conn := range held {
		_ = conn.Close()
	}
}

// A body that does not arrive in time is refused. Until then it counts against the bytes in progress and against the
// requests of its sender, and others are refused at once, with the time after which to try again.
func TestSlowBodiesAndFloods(t *testing.T) {
	t.Parallel()
	small := protobufOf(t, logsOf("claude-code", "one", "x"))
	t.Run("slow", func(t *testing.T) {
		t.Parallel()
		e := start(t, receive.Config{Limits: receive.Limits{BodyTime: 200 * time.Millisecond}})
		conn := e.raw(head(100) + "begun")
		if answer := answerOf(t, conn); answer.StatusCode != http.StatusRequestTimeout {
			t.Errorf("a slow body: %s", answer.Status)
		}
		_ = conn.Close()
		if answer, text := e.post("/v1/logs", small, "Content-Type", "application/x-protobuf"); answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", answer.Status, text)
		}
	})
	t.Run("flood", func(t *testing.T) {
		t.Parallel()
		tokens, _ := readTokens(t, tokenLine("flood", "user=mallory"), tokenLine("other", "user=ada"))
		e := start(t, receive.Config{Admission: receive.Admission{Tokens: tokens}, Limits: receive.Limits{Requests: 4}})
		hold := func() (held []net.Conn) {
			for range 4 {
				held = append(held, e.raw(strings.Replace(head(100), "Host: x", "Host: x\r\nAuthorization: Bearer flood", 1)))
			}
			return held
		}
		held := e.fill("the flood is refused", hold, func() bool {
			answer, _ := e.post("/v1/logs", small, "Content-Type", "application/x-protobuf", "Authorization", "Bearer flood")
			return answer.StatusCode == http.StatusTooManyRequests && answer.Header.Get("Retry-After") == "1"
		})
		if answer, text := e.post("/v1/logs", small, "Content-Type", "application/x-protobuf", "Authorization", "Bearer other"); answer.StatusCode != http.StatusOK {
			t.Errorf("another sender: %s: %s", answer.Status, text)
		}
		closeAll(held)
		e.await("the sender is let in again", func() bool {
			answer, _ := e.post("/v1/logs", small, "Content-Type", "application/x-protobuf", "Authorization", "Bearer flood")
			return answer.StatusCode == http.StatusOK
		})
	})
	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		e := start(t, receive.Config{Limits: receive.Limits{Body: 1 << 20, InFlight: 1 << 20}})
		hold := func() []net.Conn { return []net.Conn{e.raw(head(1<<20) + string(make([]byte, 300<<10)))} }
		large := logsOf("claude-code", "one", strings.Repeat("x", 600<<10))
		held := e.fill("there is no room", hold, func() bool {
			answer, _ := e.post("/v1/logs", protobufOf(t, large), "Content-Type", "application/x-protobuf")
			return answer.StatusCode == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") == "1"
		})
		_, err := plogotlp.NewGRPCClient(e.dial()).Export(t.Context(), plogotlp.NewExportRequestFromLogs(large))
		if s := status.Convert(err); s.Code() != codes.Unavailable || len(s.Details()) != 1 || s.Details()[0].(*errdetails.RetryInfo).GetRetryDelay().AsDuration() != time.Second {
			t.Errorf("over gRPC: %v, %v", err, s.Details())
		}
		if answer, text := e.post("/v1/logs", small, "Content-Type", "application/x-protobuf"); answer.StatusCode != http.StatusOK {
			t.Errorf("a small request meanwhile: %s: %s", answer.Status, text)
		}
		closeAll(held)
		e.await("there is room again", func() bool {
			answer, _ := e.post("/v1/logs", protobufOf(t, large), "Content-Type", "application/x-protobuf")
			return answer.StatusCode == http.StatusOK
		})
	})
}

// Calls of gRPC that are none, or too large, have the code of the mistake.
func TestRefusedCalls(t *testing.T) {
	t.Parallel()
	e := start(t, receive.Config{Limits: receive.Limits{Body: 1 << 20, Records: 2}})
	client := plogotlp.NewGRPCClient(e.dial())
	for name, c := range map[string]struct {
		request plogotlp.ExportRequest
		code    codes.Code
	}{
		"large":        {plogotlp.NewExportRequestFromLogs(logsOf("claude-code", "one", strings.Repeat("x", 1<<20))), codes.ResourceExhausted},
		"many records": {plogotlp.NewExportRequestFromLogs(logsOf("claude-code", "one", "1", "2", "3")), codes.ResourceExhausted},
	} {
		_, err := client.Export(t.Context(), c.request)
		if s := status.Convert(err); s.Code() != c.code || len(s.Details()) > 0 {
			t.Errorf("%s: %v", name, err)
		}
		if _, err = client.Export(t.Context(), c.request); status.Code(err) != c.code {
			t.Errorf("%s, again: %v", name, err)
		}
	}
	bomb := plogotlp.NewExportRequestFromLogs(logsOf("claude-code", "one", strings.Repeat("x", 16<<20)))
	if _, err := client.Export(t.Context(), bomb, grpcGzip); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a bomb: %v", err)
	}
	const path = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
	if answer, text := e.post(path, nil, "Content-Type", "application/grpc"); answer.Header.Get("Grpc-Status") != "" || answer.Trailer.Get("Grpc-Status") != "12" {
		t.Errorf("by HTTP/1.1: %v, %v: %s", answer.Header, answer.Trailer, text)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	e.client = &http.Client{Transport: transport}
	for name, c := range map[string]struct {
		body []byte
		code string
	}{
		"no frame":          {nil, "3"},
		"half a head":       {[]byte{0, 0}, "3"},
		"half a message":    {[]byte{0, 0, 0, 0, 9, 1}, "3"},
		"more than one":     {[]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "3"},
		"unknown flag":      {[]byte{7, 0, 0, 0, 0}, "3"},
		"unknown encoding":  {[]byte{1, 0, 0, 0, 0}, "12"},
		"a length of 4 GiB": {[]byte{0, 255, 255, 255, 255}, "8"},
		"no protobuf":       {[]byte{0, 0, 0, 0, 1, 9}, "3"},
		"empty":             {[]byte{0, 0, 0, 0, 0}, "0"},
	} {
		answer, _ := e.post(path, c.body, "Content-Type", "application/grpc+proto", "Grpc-Encoding", "snappy")
		if got := answer.Trailer.Get("Grpc-Status"); answer.StatusCode != http.StatusOK || got != c.code {
			t.Errorf("%s: %s, code %s, want %s", name, answer.Status, got, c.code)
		}
	}
	if n := len(e.stored()); n != 0 {
		t.Errorf("%d records are stored", n)
	}
}

var idleConnections = flag.Int("idle.connections", 1000, "connections of TestIdleConnections; 10000 is its full size")

// Connections that do nothing, and those that send half a head, keep nobody from being served.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	e := start(t, receive.Config{})
	idle := *idleConnections
	var opened sync.WaitGroup
	for range 10 {
		opened.Go(func() {
			for i := range idle / 10 {
				text := ""
				if i%2 == 0 {
					text = "POST /v1/logs HTTP/1.1\r\nHost: x\r\nX-Slow: "
				}
				e.raw(text)
			}
		})
	}
	opened.Wait()
	if t.Failed() {
		return
	}
	small := protobufOf(t, logsOf("claude-code", "one", "x"))
	for range 20 {
		if answer, text := e.post("/v1/logs", small, "Content-Type", "application/x-protobuf"); answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", answer.Status, text)
		}
	}
	if n := len(e.stored()); n != 1 {
		t.Errorf("%d records are stored, want 1", n)
	}
}

// Many senders at once, by all routes: everything that was acknowledged is stored once.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	e := start(t, receive.Config{Limits: receive.Limits{Requests: 100}})
	client := plogotlp.NewGRPCClient(e.dial())
	const senders, requests = 20, 10
	var sending sync.WaitGroup
	for s := range senders {
		sending.Go(func() {
			for r := range requests {
				session := fmt.Sprintf("s%d", s)
				request := logsOf("claude-code", session, fmt.Sprint(r, "a"), fmt.Sprint(r, "b"))
				for i, record := range request.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
					record.Attributes().PutInt("event.sequence", int64(2*r+i))
				}
				var err error
				if s%2 == 0 {
					_, err = client.Export(t.Context(), plogotlp.NewExportRequestFromLogs(request), grpcGzip)
				} else if answer, text := e.post("/v1/logs", protobufOf(t, request), "Content-Type", "application/x-protobuf"); answer.StatusCode != http.StatusOK {
					err = fmt.Errorf("%s: %s", answer.Status, text)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	sending.Wait()
	of := map[string]string{}
	for _, r := range e.stored() {
		_, text, _ := strings.Cut(string(r.Data), `"body":{"stringValue":"`)
		of[r.Session] += text[:2]
	}
	for s := range senders {
		if got := of[fmt.Sprintf("s%d", s)]; got != "0a0b1a1b2a2b3a3b4a4b5a5b6a6b7a7b8a8b9a9b" {
			t.Errorf("sender %d: stored in the order %s", s, got)
		}
	}
}

var grpcGzip = grpc.UseCompressor(gzip.Name)
