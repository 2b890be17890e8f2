package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"tributary/pipeline/embedded"
	"tributary/pipeline/streams"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"bench": main}) }

// patience bounds the requests of a test.
const patience = time.Minute

// TestBench runs the script of testdata with the program tributary of this module.
func TestBench(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "tributary"), "tributary/cmd/tributary")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"broker":    startBroker,
			"provision": provision,
			"kept":      kept,
		},
	})
}

// startBroker starts a server for the script.
func startBroker(ts *testscript.TestScript, _ bool, _ []string) {
	server, err := embedded.Start(embedded.Config{StoreDir: ts.MkAbs("broker"), Listen: "127.0.0.1:0"})
	ts.Check(err)
	ts.Defer(func() {
		server.Shutdown()
		server.WaitForShutdown()
	})
	ts.Setenv("NATS_URL", server.ClientURL())
}

// provision makes the streams of tributary at the server.
func provision(ts *testscript.TestScript, _ bool, _ []string) {
	atBroker(ts, func(ctx context.Context, js jetstream.JetStream) error {
		return streams.Provision(ctx, js, streams.DefaultTopology())
	})
}

// kept fails the script unless the server has the raw stream, with ! if it has.
func kept(ts *testscript.TestScript, neg bool, _ []string) {
	atBroker(ts, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.Stream(ctx, streams.RawStream)
		if (err != nil) != neg {
			ts.Fatalf("the raw stream: %v", err)
		}
		return nil
	})
}

// atBroker does something at the server of the script.
func atBroker(ts *testscript.TestScript, do func(context.Context, jetstream.JetStream) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	nc, err := nats.Connect(ts.Getenv("NATS_URL"))
	ts.Check(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	ts.Check(err)
	ts.Check(do(ctx, js))
}

// TestWrongArgumentsMeasureNothing has the exit code of a mistake of the caller.
func TestWrongArgumentsMeasureNothing(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--parts", "speed"},
		{"--rounds", "0"},
		{"--rates", "fast"},
		{"--raw", "none"},
		{"--sync", "--server", "nats://127.0.0.1:1"},
		{"--creds", "user.creds"},
		{"-o", "xml"},
		{"one", "two"},
	} {
		if code := run(args); code != 2 {
			t.Errorf("%q: exit code %d, want 2", args, code)
		}
	}
}
