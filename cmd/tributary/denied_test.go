package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"tributary/pipeline/pipelinetest"
)

// TestEachRoleIsDeniedTheRest tries what a role may not do: the broker names each subject in a
// permission violation, and the streams stay as they are.
func TestEachRoleIsDeniedTheRest(t *testing.T) {
	t.Parallel()
	b, js := startWithSession(t)
	before := contents(t, js)
	write := []string{
		"events.v1.claude_code.one.message", "states.v1.0.claude_code.one", "checkpoints.v1.0", "archives.v1.0.7", "deadletters.v1.0.claude_code.one",
		"sessions.claude_code.one.metadata", "sessions.claude_code.one.changes", "erasures.log.0.claude_code.one.x", "summaries.v1.checkpoint", "$KV.TRIBUTARY.current", "$KV.TRIBUTARY_WORKERS.v1.x",
		"$JS.API.STREAM.DELETE.RAW", "$JS.API.STREAM.PURGE.RAW", "$JS.API.STREAM.UPDATE.RAW", "$JS.API.STREAM.PURGE.EVENTS_v1",
		"$JS.API.STREAM.PURGE.OBJ_CLAIMS", "$JS.API.STREAM.MSG.DELETE.EVENTS_v1", "$JS.API.STREAM.CREATE.OTHER", "$JS.API.STREAM.NAMES",
	}
	read := []string{
		"$JS.API.STREAM.MSG.GET.RAW", "$JS.API.DIRECT.GET.RAW", "$JS.API.CONSUMER.CREATE.RAW.x", "$JS.API.CONSUMER.CREATE.KV_TRIBUTARY.x",
		"$JS.API.CONSUMER.CREATE.OBJ_CLAIMS.x",
	}
	events := []string{"$JS.API.DIRECT.GET.EVENTS_v2", "$JS.API.CONSUMER.CREATE.EVENTS_v2.x"}
	titles := []string{"tributary.sessions.set_title", "tributary.sessions.set_pinned", "tributary.sessions.apply_generated_title"}
	for user, subjects := range map[string][][]string{
		"ACME_PRODUCER": {write, read, events, titles, {"$JS.API.STREAM.MSG.GET.EVENTS_v1", "$JS.API.DIRECT.GET.EVENTS_v1", "$JS.API.CONSUMER.CREATE.EVENTS_v1.x", "raw.4.claude_code.one", "tributary.sessions.list"}},
		"ACME_CONSUMER": {write, read, events, titles, {"raw.claude_code.one", "$O.CLAIMS.C.x", "$KV.TRIBUTARY_EDGES.x"}},
		"ACME_SESSIONS": {write, read, events, {"raw.claude_code.one", "$O.CLAIMS.C.x", "$JS.API.DIRECT.GET.EVENTS_v1", "$JS.API.CONSUMER.CREATE.EVENTS_v1.x"}},
		"ACME_OPERATOR": {{"events.v1.claude_code.one.message", "states.v1.0.claude_code.one", "sessions.claude_code.one.metadata", "deadletters.v1.0.x.y", "summaries.v1.records.x.y"}},
	} {
		nc, denied := b.connect(t, user)
		for _, list := range subjects {
			for _, subject := range list {
				if err := nc.PublishRequest(subject, nc.NewInbox(), []byte("{}")); err != nil {
					t.Fatal(err)
				}
				requireDenied(t, denied, `Publish to "`+subject+`"`, user)
			}
		}
		for _, subject := range []string{">", "events.>", "raw.>", "_INBOX.>", "_INBOX_stage.>", "tributary.sessions.*", "$JS.API.>"} {
			_, err := nc.SubscribeSync(subject)
			if err != nil {
				t.Fatal(err)
			}
			requireDenied(t, denied, `Subscription to "`+subject+`"`, user)
		}
	}
	if diff := cmp.Diff(before, contents(t, js)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

func requireDenied(t *testing.T, denied <-chan error, what, user string) {
	t.Helper()
	select {
	case err := <-denied:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Fatalf("got %v, want %v", err, nats.ErrPermissionViolation)
		}
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Fatalf("got %v, want %q", err, what)
		}
	case <-time.After(patience):
		t.Fatalf("%s: the broker does not deny %s", user, what)
	}
}

// contents are the numbers of messages of the streams that only workers write, but for their
// heartbeats.
func contents(t *testing.T, js jetstream.JetStream) map[string]uint64 {
	t.Helper()
	counts := map[string]uint64{}
	for _, name := range []string{"RAW", "EVENTS_v1", "SESSIONS", "KV_TRIBUTARY", "OBJ_CLAIMS"} {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		counts[name] = s.CachedInfo().State.LastSeq
	}
	return counts
}

// TestAnswersCannotReachTheStreams names subjects of the streams as the place for the answers
// to permitted requests: in another account, they are never stored.
func TestAnswersCannotReachTheStreams(t *testing.T) {
	t.Parallel()
	b, js := startWithSession(t)
	before := contents(t, js)
	producer, deniedProducer := b.connect(t, "ACME_PRODUCER")
	consumer, deniedConsumer := b.connect(t, "ACME_CONSUMER")
	pull, err := consumer.Request("$JS.API.CONSUMER.CREATE.EVENTS_v1.pull", []byte(`{"stream_name":"EVENTS_v1","config":{"name":"pull","ack_policy":"none"}}`), patience)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(pull.Data), `"error"`) {
		t.Fatalf("%q in:\n%s", `"error"`, string(pull.Data))
	}
	for i, target := range []string{"events.v1.claude_code.one.message", "sessions.claude_code.one.metadata", "checkpoints.v1.0", "$KV.TRIBUTARY.current"} {
		if err := producer.PublishRequest("$JS.API.STREAM.INFO.RAW", target, nil); err != nil {
			t.Fatal(err)
		}
		if err := consumer.PublishRequest("$JS.API.STREAM.INFO.EVENTS_v1", target, nil); err != nil {
			t.Fatal(err)
		}
		if err := consumer.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.EVENTS_v1.pull", target, []byte("1")); err != nil {
			t.Fatal(err)
		}
		if err := consumer.PublishRequest("$JS.API.DIRECT.GET.EVENTS_v1", target, []byte(`{"seq":1,"batch":4}`)); err != nil {
			t.Fatal(err)
		}
		_, err := consumer.Request("$JS.API.CONSUMER.CREATE.EVENTS_v1.push"+string(rune('0'+i)), []byte(`{"stream_name":"EVENTS_v1","config":{"name":"push`+string(rune('0'+i))+`","ack_policy":"none","deliver_subject":"`+target+`"}}`), patience)
		if err != nil {
			t.Fatal(err)
		}
	}
	// The service of titles refuses events that are pushed to it.
	_, err = consumer.Request("$JS.API.CONSUMER.CREATE.EVENTS_v1.title", []byte(`{"stream_name":"EVENTS_v1","config":{"name":"title","ack_policy":"none","deliver_subject":"tributary.sessions.set_title"}}`), patience)
	if err != nil {
		t.Fatal(err)
	}
	// An answer that goes where it belongs comes after those before it.
	_, err = producer.Request("$JS.API.STREAM.INFO.RAW", nil, patience)
	if err != nil {
		t.Fatal(err)
	}
	_, err = consumer.Request("$JS.API.STREAM.INFO.EVENTS_v1", nil, patience)
	if err != nil {
		t.Fatal(err)
	}
	if err := producer.PublishRequest("raw.claude_code.one", "sessions.claude_code.one.metadata", []byte(`{"type":"user","uuid":"u9","sessionId":"one","message":{"role":"user","content":"last"}}`)); err != nil {
		t.Fatal(err)
	}
	awaitSubject(t, js, "events.v1.>", 2)
	after := contents(t, js)
	if diff := cmp.Diff(before["SESSIONS"], after["SESSIONS"]); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before["KV_TRIBUTARY"], after["KV_TRIBUTARY"]); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if len(deniedProducer) > 0 {
		t.Fatalf("got %v, want none", deniedProducer)
	}
	if len(deniedConsumer) > 0 {
		t.Fatalf("got %v, want none", deniedConsumer)
	}
}

// TestTenantsSeeNothingOfEachOther runs a stage for each of two tenants of a server.
func TestTenantsSeeNothingOfEachOther(t *testing.T) {
	t.Parallel()
	b := startTenants(t, nil)
	for tenant, prompt := range map[string]string{"ACME": "secret of acme", "GLOBEX": "secret of globex"} {
		b.as(t, tenant+"_STAGE", "run")
		awaitSubject(t, b.streams(t, tenant), "checkpoints.v1.*", 2)
		b.done(t, tenant+"_PRODUCER", "ship", "--once", "--source", "claude_code", claudeLog(t, prompt))
		awaitSubject(t, b.streams(t, tenant), "events.v1.>", 1)
	}
	// A record, and the end of its log.
	if diff := cmp.Diff(map[string]uint64{"raw": 2, "events": 1}, counts(t, b.streams(t, "ACME"))); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{"raw": 2, "events": 1}, counts(t, b.streams(t, "GLOBEX"))); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	for tenant, other := range map[string]string{"ACME": "secret of globex", "GLOBEX": "secret of acme"} {
		for _, command := range []string{"tail --once -o json", "sessions show one"} {
			out := b.done(t, tenant+"_CONSUMER", strings.Fields(command)...)
			if strings.Contains(out, other) {
				t.Fatalf("%q in:\n%s", other, out)
			}
			if !strings.Contains(out, "secret of "+strings.ToLower(tenant)) {
				t.Fatalf("no %q in:\n%s", "secret of "+strings.ToLower(tenant), out)
			}
		}
	}
	// What one tenant publishes in full, the other does not receive.
	nc, _ := b.connect(t, "GLOBEX_STAGE")
	sub, err := nc.SubscribeSync("tributary.sessions.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	acme, denied := b.connect(t, "ACME_SESSIONS")
	_, err = acme.Request("tributary.sessions.list", nil, patience)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	waiting, _, err := sub.Pending()
	if err != nil {
		t.Fatal(err)
	}
	if waiting != 0 {
		t.Fatalf("got %v, want 0: %v", waiting, waiting)
	}
	if len(denied) > 0 {
		t.Fatalf("got %v, want none", denied)
	}
}

// counts are the records and the events of a tenant.
func counts(t *testing.T, js jetstream.JetStream) map[string]uint64 {
	t.Helper()
	raw, err := js.Stream(t.Context(), "RAW")
	if err != nil {
		t.Fatal(err)
	}
	events, err := js.Stream(t.Context(), "EVENTS_v1")
	if err != nil {
		t.Fatal(err)
	}
	info, err := events.Info(t.Context(), jetstream.WithSubjectFilter("events.v1.>"))
	if err != nil {
		t.Fatal(err)
	}
	n := uint64(0)
	for _, count := range info.State.Subjects {
		n += count
	}
	return map[string]uint64{"raw": raw.CachedInfo().State.Msgs, "events": n}
}

// TestConnections starts a worker with each kind of credentials, and with wrong ones, whose
// error names cause and cure.
func TestConnections(t *testing.T) {
	t.Parallel()
	plain := startTenants(t, nil)
	mutual := startTenants(t, func(_, text string) string { return strings.Replace(text, "verify: false", "verify: true", 1) })
	mapped := startTenants(t, func(_, text string) string {
		text = strings.Replace(text, "verify: false", "verify_and_map: true", 1)
		return strings.Replace(text, "nkey: $ACME_STAGE", "user: stage.acme.example", 1)
	})
	stranger := newAuthority(t)
	certificate := func(a authority) []string {
		return []string{"NATS_CERT=" + a.path("client.crt"), "NATS_KEY=" + a.path("client.key")}
	}
	nkey := func(b *tenants, name string) []string {
		return []string{"NATS_NKEY=" + filepath.Join(b.dir, name), "NATS_INBOX_PREFIX=_INBOX_stage"}
	}
	ca := func(a authority) []string { return []string{"NATS_CA=" + a.path("ca.crt")} }
	join := func(lists ...[]string) []string {
		var all []string
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	creds := startCreds(t)
	for name, test := range map[string]struct {
		url  string
		env  []string
		want string // in the log or error
	}{
		"nkey":                      {plain.broker.ClientURL(), join(nkey(plain, "ACME_STAGE"), ca(plain.tls)), "worker is running"},
		"unknown authority":         {plain.broker.ClientURL(), nkey(plain, "ACME_STAGE"), "NATS_CA"},
		"another authority":         {plain.broker.ClientURL(), join(nkey(plain, "ACME_STAGE"), ca(stranger)), "NATS_CA"},
		"wrong nkey":                {plain.broker.ClientURL(), join(nkey(mutual, "ACME_STAGE"), ca(plain.tls)), "correct the user or the credentials"},
		"no credentials":            {plain.broker.ClientURL(), ca(plain.tls), "correct the user or the credentials"},
		"file of nkey is missing":   {plain.broker.ClientURL(), []string{"NATS_NKEY=/nowhere"}, "name a file that exists"},
		"file without an nkey":      {plain.broker.ClientURL(), []string{"NATS_NKEY=" + plain.tls.path("ca.crt")}, "NATS_NKEY"},
		"file without a key":        {plain.broker.ClientURL(), []string{"NATS_CERT=" + plain.tls.path("ca.crt"), "NATS_KEY=" + plain.tls.path("ca.crt")}, "NATS_CERT"},
		"file without an authority": {plain.broker.ClientURL(), []string{"NATS_CA=" + plain.tls.path("ca.key")}, "NATS_CA"},
		"mTLS":                      {mutual.broker.ClientURL(), join(nkey(mutual, "ACME_STAGE"), ca(mutual.tls), certificate(mutual.tls)), "worker is running"},
		"mTLS without certificate":  {mutual.broker.ClientURL(), join(nkey(mutual, "ACME_STAGE"), ca(mutual.tls)), "NATS_CERT and NATS_KEY"},
		"mTLS wrong certificate":    {mutual.broker.ClientURL(), join(nkey(mutual, "ACME_STAGE"), ca(mutual.tls), certificate(stranger)), "NATS_CERT and NATS_KEY"},
		"user of a certificate":     {mapped.broker.ClientURL(), join([]string{"NATS_INBOX_PREFIX=_INBOX_stage"}, ca(mapped.tls), certificate(mapped.tls)), "worker is running"},
		"creds":                     {creds.url, []string{"NATS_CREDS=" + creds.good}, "worker is running"},
		"creds of another broker":   {creds.url, []string{"NATS_CREDS=" + creds.bad}, "correct the user or the credentials"},
		"file without creds":        {creds.url, []string{"NATS_CREDS=" + plain.tls.path("ca.crt")}, "NATS_CREDS"},
		"TLS at a broker without":   {strings.Replace(creds.url, "nats://", "tls://", 1), []string{"NATS_CREDS=" + creds.good}, "remove tls://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startWith(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, append(test.env, "TRIBUTARY_PARTITIONS=1")...) }, t.TempDir(), test.url, "run")
			p.awaitLogged(test.want)
			if test.want != "worker is running" {
				if p.wait() == 0 {
					t.Fatal("got 0")
				}
			}
			if strings.Contains(p.stderr.String(), "SU") {
				t.Fatalf("%q in:\n%s", "SU", p.stderr.String())
			} // the begin of a seed
			if strings.Contains(p.stderr.String(), "PRIVATE KEY") {
				t.Fatalf("%q in:\n%s", "PRIVATE KEY", p.stderr.String())
			}
		})
	}
}

// credsBroker is a server whose users have files of credentials.
type credsBroker struct{ url, good, bad string }

func startCreds(t *testing.T) credsBroker {
	t.Helper()
	dir := t.TempDir()
	pair := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		k, err := create()
		if err != nil {
			t.Fatal(err)
		}
		public, err := k.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return k, public
	}
	operator, operatorKey := pair(nkeys.CreateOperator)
	account, accountKey := pair(nkeys.CreateAccount)
	system, systemKey := pair(nkeys.CreateAccount)
	other, _ := pair(nkeys.CreateAccount)
	sign := func(c jwt.Claims, by nkeys.KeyPair) string {
		token, err := c.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	claims := jwt.NewAccountClaims(accountKey)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
	op := jwt.NewOperatorClaims(operatorKey)
	op.SystemAccount = systemKey
	text := "listen: \"127.0.0.1:-1\"\njetstream { store_dir: \"" + t.TempDir() + "\" }\noperator: " + sign(op, operator) + "\nresolver: MEMORY\nresolver_preload {\n" +
		accountKey + ": " + sign(claims, operator) + "\n" + systemKey + ": " + sign(jwt.NewAccountClaims(systemKey), operator) + "\n}\nsystem_account: " + systemKey + "\n"
	_ = system
	file := filepath.Join(dir, "operator.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(name string, by nkeys.KeyPair) string {
		user, key := pair(nkeys.CreateUser)
		seed, err := user.Seed()
		if err != nil {
			t.Fatal(err)
		}
		data, err := jwt.FormatUserConfig(sign(jwt.NewUserClaims(key), by), seed)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return credsBroker{pipelinetest.StartConfigured(t, file).ClientURL(), write("good.creds", account), write("bad.creds", other)}
}

// TestDeniedRightIsNamed runs each command as a user without rights: it ends with the subject,
// and with the line of the configuration that grants it.
func TestDeniedRightIsNamed(t *testing.T) {
	t.Parallel()
	b, _, _ := startWithWorker(t, func(_, text string) string {
		return strings.Replace(text, `"$JS.API.>", "$JS.ACK.>", "raw.*.*", "$O.CLAIMS.>"`, `"nothing"`, 1)
	})
	type started struct {
		*process
		right string
	}
	var all []started
	for command, right := range map[string]string{
		"run":                    "$JS.API.STREAM.MSG.GET.KV_TRIBUTARY",
		"tail --once":            "$JS.API.STREAM.MSG.GET.KV_TRIBUTARY",
		"stats":                  "$JS.API.STREAM.MSG.GET.KV_TRIBUTARY",
		"sessions ls":            "$JS.API.STREAM.MSG.GET.KV_TRIBUTARY",
		"export --out " + b.home: "$JS.API.STREAM.MSG.GET.KV_TRIBUTARY",
		"replay ls":              "$JS.API.STREAM.INFO.RAW",
		"dlq ls":                 "$JS.API.STREAM.MSG.GET.KV_TRIBUTARY",
		"claims ls":              "$JS.API.STREAM.INFO.OBJ_CLAIMS",
		"ship --once --timeout 5s " + claudeLog(t, "one"): "$JS.API.STREAM.INFO.RAW",
	} {
		all = append(all, started{b.as(t, "ACME_OPERATOR", strings.Fields(command)...), right})
	}
	for _, p := range all {
		code, out := ended(p.process)
		if exitFailure != code {
			t.Fatalf("got %v, want %v\n%s", code, exitFailure, out)
		}
		if !strings.Contains(out, p.right) {
			t.Fatalf("no %q in:\n%s", p.right, out)
		}
		if !strings.Contains(out, "publish") {
			t.Fatalf("no %q in:\n%s", "publish", out)
		}
	}
}
