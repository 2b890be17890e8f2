package receive_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/receive"
	"tributary/pipeline/streams"
)

var (
	killSeed    = flag.Uint64("kill.seed", 0, "seed of the moments of TestKills; 0 draws another one each time")
	killRounds  = flag.Int("kill.rounds", 4, "kills of TestKills; 1000, with -kill.records 200000 and -timeout 4h, is its full size")
	killRecords = flag.Int("kill.records", 1200, "records of TestKills")
)

// receiverProgram is a receiver as a process that a test can kill.
const receiverProgram = "receiver"

type receiverArguments struct{ Broker, Listen string }

func runReceiver(ctx context.Context, arguments []byte, ready func()) error {
	var a receiverArguments
	if err := json.Unmarshal(arguments, &a); err != nil {
		return err
	}
	nc, err := nats.Connect(a.Broker, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	subjects, err := receive.ParseSubjects("logs=otel_logs")
	if err != nil {
		return err
	}
	r, err := receive.New(js, receive.Config{Subjects: subjects, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", a.Listen)
	if err != nil {
		return err
	}
	return r.Serve(ctx, nil, time.Second, &announced{Listener: l, ready: ready})
}

// announced is a listener that announces the receiver as ready with its first accept, which comes after it has subscribed.
type announced struct {
	net.Listener

	ready func()
	once  sync.Once
}

func (l *announced) Accept() (net.Conn, error) {
	l.once.Do(l.ready)
	return l.Listener.Accept()
}

// TestKills kills the receiver and the broker by SIGKILL at random moments, while clients send by HTTP, gRPC and a subject
// of NATS, and send again what was not acknowledged. In the end every record is in the raw stream once, and those of a
// session are in the order in which they were sent.
//
//	go test ./pipeline/receive -v -run TestKills -kill.rounds 1000 -kill.records 200000 -timeout 4h
func TestKills(t *testing.T) {
	t.Parallel()
	seed := cmp.Or(*killSeed, rand.Uint64())
	t.Logf("repeat these moments with -kill.seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	broker := pipelinetest.StartCluster(t, 1, 0)
	broker.Provision(streams.Topology{Generation: "v1", Partitions: 4})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	arguments := receiverArguments{broker.URL(), address}
	receiver := pipelinetest.StartProcess(t, receiverProgram, arguments)
	receiver.AwaitReady()

	const clients = 6
	var acknowledged, refused atomic.Int64
	var sending sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for n := range clients {
		c := &killedClient{session: fmt.Sprint("client ", n), random: rand.New(rand.NewPCG(seed, uint64(n)+2)), wait: patience / 2}
		c.attempt = []transport{overHTTP, overGRPC, overNATS}[n%3](t, address, broker.URL())
		if n%3 == 2 {
			c.wait = time.Second // a killed receiver leaves a message without an answer
		}
		sending.Go(func() {
			for c.sent < *killRecords/clients && ctx.Err() == nil {
				refused.Add(c.send(ctx, *killRecords/clients))
				acknowledged.Add(int64(c.last))
			}
		})
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	receivers, brokers := 0, 0
	for round := range *killRounds {
		// Each round has its part of the records, so that there is work in it however fast the machine is.
		goal := int64(*killRecords) * int64(round) / int64(*killRounds)
		goal += random.Int64N(int64(*killRecords) / int64(*killRounds) * 3 / 4)
		for limit := time.After(patience); acknowledged.Load() < goal; {
			select {
			case <-look.C:
			case <-limit:
				cancel()
				sending.Wait()
				t.Fatalf("%d records are acknowledged after %d kills, want %d\n%s", acknowledged.Load(), round, goal, receiver.Output())
			}
		}
		which := random.IntN(3)
		if which != 0 {
			broker.Nodes[0].Kill()
			brokers++
		}
		if which != 1 {
			receiver.Kill()
			receivers++
			receiver = pipelinetest.StartProcess(t, receiverProgram, arguments)
		}
		if which != 0 {
			broker.Start(broker.Nodes[0])
		}
		if which != 1 {
			receiver.AwaitReady()
		}
	}
	sending.Wait()
	cancel()
	t.Logf("%d receivers and %d brokers killed, %d requests sent again", receivers, brokers, refused.Load())
	requireOnce(t, broker.JetStream(), clients, *killRecords/clients)
}

// killedClient sends records and sends again what is not acknowledged.
type killedClient struct {
	session string
	attempt func(context.Context, plogotlp.ExportRequest) error
	wait    time.Duration // for an answer
	random  *rand.Rand
	sent    int // acknowledged records
	last    int // of the last request
}

// send sends a request of some of the next records until it is acknowledged. It returns how often it sent it again.
func (c *killedClient) send(ctx context.Context, most int) (again int64) {
	c.last = min(1+c.random.IntN(20), most-c.sent)
	bodies := make([]string, c.last)
	for i := range bodies {
		bodies[i] = strconv.Itoa(c.sent + i)
	}
	request := logsOf("claude-code", c.session, bodies...)
	for i, r := range request.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
		r.Attributes().PutInt("event.sequence", int64(c.sent+i))
	}
	wait := time.NewTicker(5 * time.Millisecond)
	defer wait.Stop()
	for ; ctx.Err() == nil; again++ {
		if err := c.try(ctx, plogotlp.NewExportRequestFromLogs(request)); err == nil {
			c.sent += c.last
			return again
		}
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
	}
	return again
}

func (c *killedClient) try(ctx context.Context, request plogotlp.ExportRequest) error {
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	return c.attempt(ctx, request)
}

var bodyOf = regexp.MustCompile(`"body":\{"stringValue":"(\d+)"\}`)

// requireOnce checks that the raw stream has the records of each client once, in their order.
func requireOnce(t *testing.T, js jetstream.JetStream, clients, each int) {
	t.Helper()
	consumer, err := js.OrderedConsumer(t.Context(), streams.RawStream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Stop()
	next := map[string]int{}
	total := 0
	for pending := uint64(1); pending > 0; total++ {
		m, err := messages.Next(jetstream.NextContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		pending = meta.NumPending
		got := bodyOf.FindSubmatch(m.Data())
		if got == nil || string(got[1]) != strconv.Itoa(next[m.Subject()]) {
			t.Fatalf("message %d on %s is not record %d: headers %v, data %q", meta.Sequence.Stream, m.Subject(), next[m.Subject()], m.Headers(), m.Data())
		}
		next[m.Subject()]++
	}
	if len(next) != clients || total != clients*each {
		t.Errorf("%d records of %d sessions are stored, want %d of %d", total, len(next), clients*each, clients)
	}
}
