package receive_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"

	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
)

// shipProgram sends the logs of a folder once, and waits for its end.
const (
	shipProgram = "ship"
	shippedLine = "shipped\n"
)

type shipArguments struct{ Broker, Folder, Offsets string }

func runShip(ctx context.Context, arguments []byte, ready func()) error {
	var a shipArguments
	if err := json.Unmarshal(arguments, &a); err != nil {
		return err
	}
	nc, err := nats.Connect(a.Broker)
	if err != nil {
		return err
	}
	defer nc.Close()
	s, err := ship.New(nc, ship.Config{
		Roots:   []ship.Root{{Source: envelopes.ClaudeCode, Dir: a.Folder, Suffixes: []string{".jsonl"}}},
		Offsets: a.Offsets, Once: true,
	})
	if err != nil {
		return err
	}
	ready()
	if err := s.Run(ctx); err != nil {
		return err
	}
	_, err = io.WriteString(os.Stdout, shippedLine)
	<-ctx.Done()
	return err
}

// BenchmarkBesideShip is what the receiver takes beside ship, each a process of its own, with the broker as another one:
// 32,000 records of 2 KiB, of 8 sessions at a time. The clients of the receiver send 500 records in a request. By records,
// they are the lines of the logs that ship sends; by the others, export requests that become such records. With idle,
// so many other clients have sent a request before and keep their connections; the CPU has these requests, too.
//
//	go test -run='^$' -bench=BesideShip -benchtime=1x -count=6 ./pipeline/receive
func BenchmarkBesideShip(b *testing.B) {
	for _, of := range []beside{{by: "ship"}, {by: "records"}, {by: "http"}, {by: "http", idle: 10_000}, {by: "grpc"}, {by: "nats"}} {
		b.Run(fmt.Sprintf("by=%s/idle=%d", of.by, of.idle), func(b *testing.B) {
			var took, processor time.Duration
			var memory int64
			for b.Loop() {
				broker := pipelinetest.StartCluster(b, 1, 0)
				js := broker.Provision(streams.Topology{Generation: "v1", Partitions: 4})
				t, p := of.run(b, broker.URL())
				took, processor, memory = took+t, processor+p.ProcessorTime(), max(memory, of.memory)
				state, err := streams.ReadRawState(b.Context(), js, 0)
				if err != nil || state.Last < besideSessions*besideEach { // ship adds a record for each log
					b.Fatalf("the raw stream ends at %d: %v", state.Last, err)
				}
				broker.Stop()
			}
			count := float64(b.N) * besideSessions * besideEach
			b.ReportMetric(count/took.Seconds(), "records/s")
			b.ReportMetric(float64(processor.Microseconds())/count, "cpu-µs/record")
			b.ReportMetric(float64(memory)/1e6, "MB-peak")
			b.ReportMetric(0, "ns/op") // includes the start of processes
		})
	}
}

const (
	besideSessions = 8
	besideEach     = 4000
	besideRequest  = 500
	besideSize     = 2 << 10
	besideRest     = 360 // bytes of an exported record beside its body
)

// beside is a way in which the records are sent.
type beside struct {
	by   string
	idle int // connections

	memory int64 // of ship or the receiver at the peak, in bytes
}

// run sends the records, and returns how long it took, and the process of ship or the receiver, which has ended.
func (of *beside) run(b *testing.B, broker string) (time.Duration, *pipelinetest.Process) {
	b.Helper()
	dir := b.TempDir()
	if of.by == "ship" {
		for n := range besideSessions {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("s%d.jsonl", n)), besideLines(n, 0, besideEach), 0o600); err != nil {
				b.Fatal(err)
			}
		}
		p := pipelinetest.StartProcess(b, shipProgram, shipArguments{broker, dir, filepath.Join(dir, "offsets.json")})
		p.AwaitReady()
		began := time.Now()
		p.AwaitOutput(shippedLine)
		took := time.Since(began)
		of.memory = pipelinetest.PeakMemory(p.PID())
		if code := p.Stop(); code != 0 {
			b.Fatalf("exit code %d: %s", code, p.Output())
		}
		return took, p
	}
	l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	p := pipelinetest.StartProcess(b, receiverProgram, receiverArguments{broker, address})
	p.AwaitReady()
	defer keepIdle(b, address, of.idle)()
	began := time.Now()
	var sending sync.WaitGroup
	for n := range besideSessions {
		send := of.client(b, n, address, broker)
		sending.Go(func() {
			for from := 0; from < besideEach; from += besideRequest {
				if err := send(from); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	sending.Wait()
	took := time.Since(began)
	of.memory = pipelinetest.PeakMemory(p.PID())
	if code := p.Stop(); code != 0 {
		b.Errorf("exit code %d: %s", code, p.Output())
	}
	return took, p
}

// keepIdle opens connections on each of which a request was answered.
func keepIdle(b *testing.B, address string, count int) (stop func()) {
	b.Helper()
	const openers = 10
	list := make([][]net.Conn, openers)
	var opening sync.WaitGroup
	for n := range openers {
		opening.Go(func() {
			for range count / openers {
				conn, err := new(net.Dialer).DialContext(b.Context(), "tcp", address)
				if err != nil {
					b.Error(err)
					return
				}
				list[n] = append(list[n], conn)
				if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
					b.Error(err)
				}
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					b.Error(err)
					return
				}
				_ = answer.Body.Close()
			}
		})
	}
	opening.Wait()
	return func() {
		for _, conn := range slices.Concat(list...) {
			_ = conn.Close()
		}
	}
}

// besideLines returns lines of a log of Claude Code, each of besideSize bytes.
func besideLines(session, from, count int) []byte {
	var all bytes.Buffer
	for i := from; i < from+count; i++ {
		line := fmt.Sprintf(`{"type":"user","uuid":"s%d-%d","sessionId":"s%d","timestamp":"2026-03-01T10:00:00.000Z","cwd":"/home/ada","message":{"role":"user","content":"`, session, i, session)
		fmt.Fprintf(&all, "%s%s\"}}\n", line, strings.Repeat("w", besideSize-len(line)-3))
	}
	return all.Bytes()
}

// client returns a function that sends the records of a request, the first of which has the number from.
func (of *beside) client(b *testing.B, session int, receiver, broker string) (send func(from int) error) {
	b.Helper()
	if of.by == "records" {
		post := poster(b, receiver)
		return func(from int) error {
			return post(b.Context(), fmt.Sprintf("/v1/records/claude_code/s%d", session), "application/x-ndjson", besideLines(session, from, besideRequest))
		}
	}
	export := map[string]transport{"http": overHTTP, "grpc": overGRPC, "nats": overNATS}[of.by](b, receiver, broker)
	bodies := slices.Repeat([]string{strings.Repeat("w", besideSize-besideRest)}, besideRequest)
	return func(from int) error {
		request := logsOf("claude-code", fmt.Sprint("s", session), bodies...)
		for i, r := range request.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
			r.Attributes().PutInt("event.sequence", int64(from+i))
		}
		ctx, cancel := context.WithTimeout(b.Context(), patience)
		defer cancel()
		return export(ctx, plogotlp.NewExportRequestFromLogs(request))
	}
}
