package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// natsDir is the folder of the configuration that deploy/nats/README.md describes.
const natsDir = "../../deploy/nats"

// roleInbox is the prefix of the answers of each role, by the name of its key.
var roleInbox = map[string]string{
	"STAGE": "_INBOX_stage", "OPERATOR": "_INBOX_operator", "PRODUCER": "_INBOX_producer",
	"CONSUMER": "_INBOX_consumer", "SESSIONS": "_INBOX_sessions",
	"RECEIVER": "_INBOX_receiver", "COLLECTOR": "_INBOX_collector",
}

// tenants is a broker with the configuration of deploy/nats and the tenants ACME and GLOBEX.
type tenants struct {
	dir    string // of the keys: one file with a seed for each role, such as ACME_STAGE
	tls    authority
	broker *server.Server
	home   string
	more   []string // settings of all users
}

// startTenants starts that broker. change edits the files of the configuration.
func startTenants(t *testing.T, change func(file, text string) string) *tenants {
	t.Helper()
	b := &tenants{dir: t.TempDir(), home: t.TempDir(), tls: newAuthority(t)}
	set := map[string]string{`"/var/lib/nats"`: `"` + t.TempDir() + `"`, "/etc/nats/tls/": b.tls.dir + "/", `"0.0.0.0:4222"`: `"127.0.0.1:-1"`, `"127.0.0.1:8222"`: `"127.0.0.1:-1"`}
	for _, name := range []string{"NATS_SYSTEM", "ACME", "GLOBEX"} {
		if name == "NATS_SYSTEM" {
			set["$"+name] = b.key(t, name)
			continue
		}
		for role := range roleInbox {
			set["$"+name+"_"+role] = b.key(t, name+"_"+role)
		}
	}
	acme := readText(t, filepath.Join(natsDir, "acme.conf"))
	files := map[string]string{
		"nats.conf":   strings.Replace(readText(t, filepath.Join(natsDir, "nats.conf")), `include "acme.conf"`, "include \"acme.conf\"\n include \"globex.conf\"", 1),
		"acme.conf":   acme,
		"globex.conf": strings.ReplaceAll(acme, "ACME", "GLOBEX"),
	}
	for name, text := range files {
		if change != nil {
			text = change(name, text)
		}
		for from, to := range set {
			text = strings.ReplaceAll(text, from, to)
		}
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"cells.conf", "collector.conf"} {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(readText(t, filepath.Join(natsDir, name))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.broker = pipelinetest.StartConfigured(t, filepath.Join(b.dir, "nats.conf"))
	return b
}

// key makes an nkey, stores its seed, and returns its public part.
func (b *tenants) key(t *testing.T, name string) string {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, name), seed, 0o600); err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return public
}

// environment are the settings of a user such as ACME_STAGE.
func (b *tenants) environment(user string) []string {
	_, role, _ := strings.Cut(user, "_")
	return append([]string{
		"NATS_NKEY=" + filepath.Join(b.dir, user), "NATS_CA=" + b.tls.path("ca.crt"), "NATS_INBOX_PREFIX=" + roleInbox[role],
		"TRIBUTARY_PARTITIONS=2",
	}, b.more...)
}

// as starts a command as a user.
func (b *tenants) as(t *testing.T, user string, args ...string) *process {
	t.Helper()
	tenant, _, _ := strings.Cut(user, "_")
	return startWith(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, b.environment(user)...) }, filepath.Join(b.home, tenant), b.broker.ClientURL(), args...)
}

// done runs a command as a user; it succeeds, and the broker denies nothing. It returns what
// the command prints.
func (b *tenants) done(t *testing.T, user string, args ...string) string {
	t.Helper()
	code, out := ended(b.as(t, user, args...))
	if code != 0 || strings.Contains(out, "denies") || strings.Contains(out, "ermissions") {
		t.Errorf("%s %v: exit code %d\n%.2000s", user, args, code, out)
	}
	return out
}

// connect connects as a user. What the broker denies is in the channel.
func (b *tenants) connect(t *testing.T, user string) (*nats.Conn, <-chan error) {
	t.Helper()
	_, role, _ := strings.Cut(user, "_")
	key, err := nats.NkeyOptionFromSeed(filepath.Join(b.dir, user))
	if err != nil {
		t.Fatal(err)
	}
	denied := make(chan error, 100)
	nc, err := nats.Connect(b.broker.ClientURL(), key, nats.RootCAs(b.tls.path("ca.crt")), nats.CustomInboxPrefix(roleInbox[role]),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, denied
}

// streams connects as the workers of a tenant do, who may read everything.
func (b *tenants) streams(t *testing.T, tenant string) jetstream.JetStream {
	t.Helper()
	nc, _ := b.connect(t, tenant+"_STAGE")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// startWithWorker is [startTenants] with a worker of ACME that owns its partitions.
func startWithWorker(t *testing.T, change func(file, text string) string) (*tenants, *process, jetstream.JetStream) {
	t.Helper()
	b := startTenants(t, change)
	worker := b.as(t, "ACME_STAGE", "run")
	js := b.streams(t, "ACME")
	awaitSubject(t, js, "checkpoints.v1.*", 2)
	return b, worker, js
}

// startWithSession is [startWithWorker] with a session that the worker has processed.
func startWithSession(t *testing.T) (*tenants, jetstream.JetStream) {
	t.Helper()
	b, _, js := startWithWorker(t, nil)
	b.done(t, "ACME_PRODUCER", "ship", "--once", "--source", "claude_code", claudeLog(t, "one"))
	awaitSubject(t, js, "events.v1.>", 1)
	awaitDone(t, js)
	return b, js
}

// awaitSubject waits until messages are stored in the events stream.
func awaitSubject(t *testing.T, js jetstream.JetStream, subject string, count uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := awaitStored(ctx, js, "EVENTS_v1", subject, count); err != nil {
		t.Fatal(err)
	}
}

// awaitDone waits until the worker has stored the results of all records.
func awaitDone(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := replay.CatchUp(ctx, js, streams.Topology{Generation: "v1", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
}

// claudeLog writes a log of Claude Code with a prompt in each line.
func claudeLog(t *testing.T, prompts ...string) string {
	t.Helper()
	var text strings.Builder
	for i, prompt := range prompts {
		text.WriteString(`{"type":"user","uuid":"u` + string(rune('1'+i)) + `","sessionId":"one","message":{"role":"user","content":"` + prompt + "\"}}\n")
	}
	file := filepath.Join(t.TempDir(), "log.jsonl")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// authority is an authority of certificates, with one for the broker and one for a client.
type authority struct{ dir string }

func (a authority) path(name string) string { return filepath.Join(a.dir, name) }

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{t.TempDir()}
	now := time.Now()
	issue := func(name string, cert, parent *x509.Certificate, signer *ecdsa.PrivateKey) *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if parent == nil {
			parent, signer = cert, key
		}
		cert.NotBefore, cert.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(a.path(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(a.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		return key
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	signer := issue("ca", ca, nil, nil)
	issue("tls", &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"broker.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, signer)
	issue("client", &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "stage"}, DNSNames: []string{"stage.acme.example"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, signer)
	return a
}
