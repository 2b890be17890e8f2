package main

import (
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
)

// progressPrefix are the subjects of the progress of subscriptions.
const progressPrefix = "$KV." + streams.SubscribersBucket + "."

// TestNoRoleRemovesWhatOthersStored publishes, with the rights of a producer and of a consumer, what
// removed the large records of the tenant and the progress of its subscriptions. Everything goes on
// from what was sent.
func TestNoRoleRemovesWhatOthersStored(t *testing.T) {
	t.Parallel()
	b, _, js := startWithWorker(t, nil)
	large := strings.Repeat("large ", 200_000)
	b.done(t, "ACME_PRODUCER", "ship", "--once", "--source", "claude_code", claudeLog(t, "small", large))
	awaitSubject(t, js, "events.v1.>", 2)
	consumer, deniedConsumer := b.connect(t, "ACME_CONSUMER")
	progress := b.subscribed(t, consumer, "consumer.search", 2)

	producer, deniedProducer := b.connect(t, "ACME_PRODUCER")
	for _, attack := range []struct {
		nc                          *nats.Conn
		subject, name, value, wants string
	}{
		{producer, "$O.CLAIMS.M.x", "Nats-Rollup", "all", "rollup not permitted"},
		{producer, "$O.CLAIMS.C.x", "Nats-Rollup", "sub", "rollup not permitted"},
		{producer, "$KV.TRIBUTARY_EDGES.x", "Nats-Rollup", "all", "rollup not permitted"},
		{producer, "raw.claude_code.one", "Nats-Rollup", "all", "rollup not permitted"},
		{producer, "raw.claude_code.one", "Nats-TTL", "1s", "per-message TTL is disabled"},
		{producer, "raw.claude_code.one", "Nats-Incr", "1", "message counters is disabled"},
		{producer, "raw.claude_code.one", "Nats-Schedule", "@every 1s", "message schedules is disabled"},
		{consumer, "$KV.TRIBUTARY_SUBSCRIBERS.consumer.x", "Nats-Rollup", "all", "rollup not permitted"},
		{consumer, "$KV.TRIBUTARY_SUBSCRIBERS.consumer.x", "Nats-TTL", "1s", "per-message TTL is disabled"},
	} {
		m := nats.NewMsg(attack.subject)
		m.Header.Set(attack.name, attack.value)
		answer, err := attack.nc.RequestMsg(m, patience)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(answer.Data), attack.wants) {
			t.Errorf("%s with %s is answered %s, want %q", attack.subject, attack.name, answer.Data, attack.wants)
		}
	}
	if len(deniedProducer)+len(deniedConsumer) > 0 {
		t.Errorf("these are rights: %v, %v", deniedProducer, deniedConsumer)
	}
	for _, name := range []string{"search", "other.search", "consumer.search.x"} {
		subject := progressPrefix + name
		if err := consumer.PublishRequest(subject, consumer.NewInbox(), nil); err != nil {
			t.Fatal(err)
		}
		requireDenied(t, deniedConsumer, `Publish to "`+subject+`"`, "ACME_CONSUMER")
	}

	b.done(t, "ACME_OPERATOR", "claims", "gc", "--older-than", "0s")
	for _, command := range []string{"replay start b", "replay status b --wait", "replay diff v1 b"} {
		b.done(t, "ACME_OPERATOR", strings.Fields(command)...)
	}
	for _, generation := range []string{"v1", "b"} {
		var texts []string
		for e, err := range events.Read(t.Context(), js, generation, events.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, *e.Text)
		}
		if len(texts) != 2 || texts[0] != "small" || !strings.HasPrefix(large, texts[1]) || len(texts[1]) < 1000 {
			t.Errorf("generation %s has %d events", generation, len(texts))
		}
	}
	m, err := broker.LastStored(t.Context(), js, "KV_"+streams.SubscribersBucket, progressPrefix+"consumer.search")
	if err != nil || m.Sequence != progress {
		t.Errorf("the progress is at %v, want %d: %v", m, progress, err)
	}
}

// subscribed runs a subscription until it has passed a number of events and stored its progress,
// whose revision it returns.
func (b *tenants) subscribed(t *testing.T, nc *nats.Conn, name string, events int) uint64 {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := subscribe.New(js, subscribe.Config{Name: name, Generation: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	if err := s.Run(t.Context(), func(context.Context, subscribe.Event) error {
		if seen++; seen == events {
			s.Drain()
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	m, err := broker.LastStored(t.Context(), js, "KV_"+streams.SubscribersBucket, progressPrefix+name)
	if err != nil {
		t.Fatal(err)
	}
	return m.Sequence
}

// TestTenantHasLimits requires that the server applies the limits of deploy/nats, and that a
// producer which floods the raw stream is refused, while workers go on with what was accepted.
func TestTenantHasLimits(t *testing.T) {
	t.Parallel()
	b, _, js := startWithWorker(t, nil)
	info, err := js.AccountInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	is := info.Limits
	if is.MaxStore != 100<<30 || is.MaxMemory != 64<<20 || is.MaxStreams != 32 || is.MaxConsumers != 1000 || is.MaxAckPending != 10_000 {
		t.Errorf("limits of JetStream: %+v", is)
	}
	for account, connections := range map[string]int{"ACME": 100, "ACME_EDGES": 2000, "ACME_READERS": 200, "GLOBEX": 100} {
		a, err := b.broker.LookupAccount(account)
		if err != nil {
			t.Fatal(err)
		}
		if n := a.MaxActiveConnections(); n != connections {
			t.Errorf("account %s may have %d connections, want %d", account, n, connections)
		}
	}
	// The lines of the page.
	for name, size := range map[string]int64{"RAW": 40 << 30, "OBJ_CLAIMS": 20 << 30} {
		b.limit(t, name, size)
	}
	b.as(t, "ACME_STAGE", "run")
	awaitWorkers(t, js, streams.DefaultTopology(), func(w []streams.Worker) bool { return len(w) == 2 })

	b.done(t, "ACME_PRODUCER", "ship", "--once", "--source", "claude_code", claudeLog(t, "before", "the flood"))
	awaitSubject(t, js, "events.v1.>", 2)
	s, err := js.Stream(t.Context(), "RAW")
	if err != nil {
		t.Fatal(err)
	}
	b.limit(t, "RAW", int64(s.CachedInfo().State.Bytes)+10_000)
	producer, _ := b.connect(t, "ACME_PRODUCER")
	sent := uint64(0)
	for {
		record := `{"type":"user","uuid":"` + nats.NewInbox() + `","sessionId":"flood","message":{"role":"user","content":"x"}}`
		answer, err := producer.Request("raw.claude_code.flood", []byte(record), patience)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(answer.Data), "maximum bytes exceeded") {
			break
		}
		if sent++; sent > 1000 {
			t.Fatal("the stream has no limit")
		}
	}
	awaitSubject(t, js, "events.v1.>", 2+sent) // of everything that was accepted
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LARGE", Subjects: []string{"large"}, MaxBytes: 200 << 30}); err == nil {
		t.Error("a stream beyond the limit of the tenant")
	}
}

// limit limits a stream as the page of deploy/nats says.
func (b *tenants) limit(t *testing.T, name string, size int64) {
	t.Helper()
	nc, _ := b.connect(t, "ACME_OPERATOR")
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxBytes, cfg.Discard = size, jetstream.DiscardNew
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}
