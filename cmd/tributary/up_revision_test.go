package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers"
	"tributary/pipeline/embedded"
)

// TestUpRefusesEventsOfAnotherRevision: nothing else works on them, so the command would show
// nothing.
func TestUpRefusesEventsOfAnotherRevision(t *testing.T) {
	t.Parallel()
	home, data := t.TempDir(), t.TempDir()
	log := filepath.Join(home, "log.jsonl")
	write(t, log, hello)
	up := func(args ...string) (int, string) {
		return ended(start(t, home, "", append([]string{"up", "--once", "--listen", "", "--data", data, log}, args...)...))
	}
	if code, out := up(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	makeOtherRevision(t, data)
	code, out := up()
	if want := fmt.Sprintf("are of revision 1, this program makes those of revision %d: tributary up --replay builds them again", normalizers.Revision); code != 1 || !strings.Contains(out, want) {
		t.Errorf("exit code %d, want 1 and %q\n%s", code, want, out)
	}
}

// makeOtherRevision makes the generation in a data folder one of revision 1.
func makeOtherRevision(t *testing.T, data string) {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: data, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.WaitForShutdown()
	defer server.Shutdown()
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "TRIBUTARY")
	if err != nil {
		t.Fatal(err)
	}
	stored, err := kv.Get(t.Context(), "generation.v1")
	if err != nil {
		t.Fatal(err)
	}
	now := fmt.Sprintf(`"revision":%d`, normalizers.Revision)
	if !strings.Contains(string(stored.Value()), now) {
		t.Fatalf("no %s in %s", now, stored.Value())
	}
	if _, err := kv.PutString(t.Context(), "generation.v1", strings.Replace(string(stored.Value()), now, `"revision":1`, 1)); err != nil {
		t.Fatal(err)
	}
}
