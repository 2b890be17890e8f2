package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
)

// TestRightsOfEachRoleSuffice runs each role with the rights of deploy/nats alone: it does its
// work, and the broker denies nothing.
func TestRightsOfEachRoleSuffice(t *testing.T) {
	t.Parallel()
	b, worker, js := startWithWorker(t, nil)
	log := claudeLog(t, "small", strings.Repeat("large ", 200_000))
	f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(`{"type":"user","uuid":"u3","torn` + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	shipped, out := ended(b.as(t, "ACME_PRODUCER", "ship", "--once", "--source", "claude_code", log))
	if shipped != 0 {
		t.Fatalf("got %v, want 0: %v", shipped, out)
	}
	awaitSubject(t, js, "events.v1.>", 2)
	awaitSubject(t, js, "deadletters.v1.>", 1)
	for _, command := range []string{"tail --once -o json", "stats", "sessions ls", "sessions show one", "export --out " + filepath.Join(b.home, "events")} {
		b.done(t, "ACME_CONSUMER", strings.Fields(command)...)
	}
	top := streams.DefaultTopology()
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == 2 })
	operator := func(commands ...string) {
		for _, command := range commands {
			b.done(t, "ACME_OPERATOR", strings.Fields(command)...)
		}
	}
	operator("doctor", "doctor acknowledge", "dlq show 3", "claims ls", "dlq requeue --all")
	awaitSubject(t, js, "deadletters.v1.>", 2)
	operator("dlq purge --all --yes", "claims gc --older-than 0s", "replay start b", "replay status b --wait", "replay diff v1 b")
	contains(t, b.done(t, "ACME_OPERATOR", "replay", "promote", "b"), "consumers follow to b with rights for EVENTS_b and SUMMARIES_b", "b is live")
	operator("replay rollback", "replay ls", "replay drop b --yes")
	b.receive(t, js)
	b.titleAndWatch(t)
	b.acknowledge(t)
	b.backUp(t)
	b.erase(t)
	if code := worker.signal(syscall.SIGTERM); code != 0 || strings.Contains(worker.stderr.String(), "denies") {
		t.Errorf("run: exit code %d\n%s", code, worker.stderr.String())
	}
}

// receive stores a hook and a large record by a receiver, which has the rights of a producer.
func (b *tenants) receive(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	p := b.as(t, "ACME_PRODUCER", "receive", "--listen", "127.0.0.1:0", "--grpc", "")
	url := "http://" + receiverAt(p)
	before, err := streams.ReadRawState(t.Context(), js, 0)
	if err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{
		"/v1/hooks/claude":         `{"session_id":"hooked","hook_event_name":"Stop"}`,
		"/v1/records/codex/hooked": `{"type":"` + strings.Repeat("large ", 200_000) + `"}`,
	} {
		if status, text, err := post(t.Context(), http.DefaultClient, url+path, body); status != http.StatusOK {
			t.Errorf("%s: %d %s, %v", path, status, text, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	after, err := streams.ReadRawState(t.Context(), js, 0)
	if err != nil || after.Last != before.Last+2 {
		t.Errorf("%v: the raw stream ends at %d, before at %d", err, after.Last, before.Last)
	}
	if code := p.signal(syscall.SIGTERM); code != 0 || strings.Contains(p.stderr.String(), "denies") {
		t.Errorf("receive: exit code %d\n%s", code, &p.stderr)
	}
	if seen, err := streams.Receivers(t.Context(), js); err != nil || len(seen) != 1 || !seen[0].Ended || seen[0].Records != 2 || seen[0].Host != hostname() {
		t.Errorf("heartbeats of receivers: %+v, %v", seen, err)
	}
}

// withCollector adds to the configuration of a tenant what deploy/nats/README.md says of collectors.
func withCollector(file, text string) string {
	tenant := strings.ToUpper(strings.TrimSuffix(file, ".conf"))
	user := "users: [ { nkey: $" + tenant + "_PRODUCER } ]"
	return strings.NewReplacer(
		tenant+"_EDGES {", tenant+"_EDGES {\n  include \"collector.conf\"",
		user, strings.TrimSuffix(user, "]")+"\n{ nkey: $"+tenant+"_RECEIVER, permissions: $receiver }\n{ nkey: $"+tenant+"_COLLECTOR, permissions: $collector } ]",
	).Replace(text)
}

// TestRightsOfACollectorSuffice has a collector that publishes to subjects, and receivers that take it: one with these
// rights, and one with those of a producer, which names the right that it lacks. The collector may do nothing else.
func TestRightsOfACollectorSuffice(t *testing.T) {
	t.Parallel()
	b, worker, js := startWithWorker(t, withCollector)
	receiver := func(user string) *process {
		return startWith(t, func(cmd *exec.Cmd) {
			cmd.Env = append(append(cmd.Env, b.environment(user)...), "TRIBUTARY_RECEIVE_SUBJECTS=logs=otel_logs,traces=otel_traces,metrics=otel_metrics")
		}, filepath.Join(b.home, user), b.broker.ClientURL(), "receive", "--listen", "", "--grpc", "")
	}
	p := receiver("ACME_RECEIVER")
	if at := receiverAt(p); at != "nats:otel_logs" {
		t.Errorf("the receiver is at %s", at)
	}
	nc, denied := b.connect(t, "ACME_COLLECTOR")
	const logs = `{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"claude-code"}},{"key":"session.id","value":{"stringValue":"one"}}]},` +
		`"scopeLogs":[{"logRecords":[{"timeUnixNano":"1760000000000000000","body":{"stringValue":"claude_code.user_prompt"},"attributes":[` +
		`{"key":"event.name","value":{"stringValue":"user_prompt"}},{"key":"prompt","value":{"stringValue":"water the garden"}}]}]}]}]}`
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		answer, err := nc.RequestWithContext(ctx, "otel_logs", []byte(logs))
		if errors.Is(err, nats.ErrNoResponders) { // the receiver has not subscribed yet
			continue
		}
		if err != nil || strings.Contains(string(answer.Data), "error") {
			t.Fatalf("%v, %v\n%s", answer, err, &p.stderr)
		}
		break
	}
	awaitSubject(t, js, "events.v1.>", 1)
	if events := storedEvents(t, js, "v1")["one"]; !strings.Contains(string(events), "water the garden") {
		t.Errorf("events: %s", events)
	}
	if out := b.done(t, "ACME_OPERATOR", "doctor"); !strings.Contains(out, "nats:otel_logs nats:otel_traces") {
		t.Errorf("doctor does not show the subjects:\n%s", out)
	}
	if len(denied) > 0 {
		t.Errorf("denied: %v", <-denied)
	}
	for _, subject := range []string{"raw.claude_code.b25l", "$KV.TRIBUTARY_EDGES.x.y", "$O.CLAIMS.x"} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		if err := <-denied; !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s: %v", subject, err)
		}
	}
	if code := p.signal(syscall.SIGTERM); code != 0 || strings.Contains(p.stderr.String(), "denies") {
		t.Errorf("receive: exit code %d\n%s", code, &p.stderr)
	}
	producer := receiver("ACME_PRODUCER")
	producer.awaitLogged(`add \"otel_logs\" to \"subscribe\"`)
	if code := producer.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("a producer: exit code %d\n%s", code, &producer.stderr)
	}
	if code := worker.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("run: exit code %d\n%s", code, &worker.stderr)
	}
}

// erase erases a session as the operator. Other users end with the right that they lack, and change nothing.
func (b *tenants) erase(t *testing.T) {
	t.Helper()
	for user, line := range map[string]string{"ACME_STAGE": `add "erasures.>" to "publish"`, "ACME_CONSUMER": `add "$JS.API.`} {
		code, out := ended(b.as(t, user, "erase", "--session", "claude_code/one", "--yes"))
		if code != exitFailure || !strings.Contains(out, line) {
			t.Errorf("%s: exit code %d: %s", user, code, out)
		}
	}
	if out := b.done(t, "ACME_OPERATOR", "erase", "ls", "-o", "json"); strings.Contains(out, `"session"`) {
		t.Errorf("a command without the right has written to the log: %s", out)
	}
	b.done(t, "ACME_OPERATOR", "erase", "--session", "claude_code/one", "--yes")
	if out := b.done(t, "ACME_OPERATOR", "erase", "ls", "-o", "json"); !strings.Contains(out, `"ended"`) {
		t.Errorf("the log has no end: %s", out)
	}
}

// backUp reads a snapshot of the raw stream as the nats command does, one chunk at a time: the server sends the next
// one only after the acknowledgement of the one before.
func (b *tenants) backUp(t *testing.T) {
	t.Helper()
	nc, denied := b.connect(t, "ACME_OPERATOR")
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	request := fmt.Sprintf(`{"deliver_subject":%q,"chunk_size":1024,"window_size":1024}`, inbox)
	if m, err := nc.Request("$JS.API.STREAM.SNAPSHOT.RAW", []byte(request), patience); err != nil || strings.Contains(string(m.Data), `"error"`) {
		t.Fatalf("%v: %v", err, m)
	}
	for chunks := 0; ; chunks++ {
		m, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Data) == 0 {
			if status := m.Header.Get("Status"); status != "204" || chunks < 2 {
				t.Errorf("the backup ended after %d chunks with %v", chunks, m.Header)
			}
			break
		}
		if m.Reply == "" { // the last one
			continue
		}
		if err := m.Respond(nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(denied) > 0 {
		t.Errorf("a backup: %v", <-denied)
	}
}

// acknowledge reads events with a durable consumer and acknowledges them. It also reads bodies, as a search does.
func (b *tenants) acknowledge(t *testing.T) {
	t.Helper()
	nc, denied := b.connect(t, "ACME_CONSUMER")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.CreateOrUpdateConsumer(t.Context(), "EVENTS_v1", jetstream.ConsumerConfig{Durable: "search", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "events.v1.>"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.ResetConsumer(t.Context(), "EVENTS_v1", "search"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m, err := consumer.Next()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	bodies := 0
	if _, err := broker.ReadBodies(t.Context(), js, "EVENTS_v1", 1, 2, 1<<20, func([]byte) bool { bodies++; return true }); err != nil || bodies != 2 {
		t.Fatalf("%d bodies, %v", bodies, err)
	}
	info, err := consumer.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.NumAckPending != 0 {
		t.Fatalf("got %v, want 0: %v", info.NumAckPending, info.NumAckPending)
	}
	if len(denied) > 0 {
		t.Fatalf("got %v, want none", denied)
	}
}

// titleAndWatch sets a title, reads it from a snapshot, and finds the service, with the rights
// of a program that does so.
func (b *tenants) titleAndWatch(t *testing.T) {
	t.Helper()
	nc, refused := b.connect(t, "ACME_SESSIONS")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for subject, want := range map[string]string{
		titles.SubjectPrefix + "set_title": `"applied":true`,
		"$SRV.PING." + titles.ServiceName:  titles.ServiceName,
	} {
		m, err := nc.RequestWithContext(ctx, subject, []byte(`{"source":"claude_code","session_id":"one","title":"Mine"}`))
		if err != nil || !strings.Contains(string(m.Data), want) {
			t.Fatalf("%s: %v, %s", subject, err, m.Data)
		}
	}
	for u, err := range titles.Watch(ctx, js, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if u.Kind == titles.Snapshot && u.Session.Title != "Mine" {
			t.Errorf("record %+v", u.Session)
		}
		if u.Kind == titles.Changed {
			break
		}
		if u.Kind == titles.Synced {
			if _, err := nc.RequestWithContext(ctx, titles.SubjectPrefix+"set_pinned", []byte(`{"source":"claude_code","session_id":"one","pinned":true}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case err := <-refused:
		t.Error(err)
	default:
	}
}
