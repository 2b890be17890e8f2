package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"tributary/pipeline/embedded"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

var update = flag.Bool("update", false, "rewrite the expected output of the scripts and the generated blocks of the pages")

var faults = flag.Bool("faults", false, "run the tests TestFault... and TestKill..., which kill processes, fill disks and put stores back, for minutes")

// needsFaults skips a test without the flag -faults.
func needsFaults(t *testing.T) {
	t.Helper()
	if !*faults {
		t.Skip("needs -faults")
	}
}

func TestMain(m *testing.M) {
	if code, is := pipelinetest.RunProgram(nil); is {
		os.Exit(code)
	}
	testscript.Main(leakChecked{m}, map[string]func(){"tributary": main, "consumer": consume})
}

// leakChecked runs the tests, then looks for goroutines that still run.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	time.Local = time.UTC // as the processes of tests have it
	for _, s := range settings() {
		os.Unsetenv(s.name) // what the shell of the caller has set is not for commands in this process
	}
	pipelinetest.Parallel() // files on the disk: in memory, a compaction ends before it is killed
	code := l.m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(pipelinetest.ServerLeaks()...); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines still run:", err)
		return 1
	}
	return 0
}

// TestScripts runs every script of testdata/script. A script has a home of its own and, after
// the command broker, a JetStream server of its own at NATS_URL.
func TestScripts(t *testing.T) {
	t.Parallel()
	folder, err := os.MkdirTemp(pipelinetest.MemoryFolder(), "scripts") //nolint:usetesting // in memory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		WorkdirRoot:         folder,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			e.Setenv("HOME", home)
			e.Setenv("TZ", "UTC")
			name, value, _ := strings.Cut(seldomCollected, "=")
			e.Setenv(name, value)
			e.Setenv("TRIBUTARY_IDENTITY", "off") // the events are the same on every machine
			return os.MkdirAll(home, 0o700)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"broker":  startBroker,
			"publish": publish,
			"expire":  expire,
			"await":   await,
			"exits":   exits,
		},
	})
}

// broker starts a server for the script.
func startBroker(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: broker")
	}
	// Scripts end processes and no machines, so they do not depend on the speed of a disk.
	server, err := embedded.Start(embedded.Config{StoreDir: ts.MkAbs("broker"), Listen: "127.0.0.1:0", SyncInterval: time.Minute})
	ts.Check(err)
	ts.Defer(func() {
		server.Shutdown()
		server.WaitForShutdown()
	})
	ts.Setenv("NATS_URL", server.ClientURL())
}

// publish stores the content of a file in the raw stream, like a producer that follows no
// rules.
func publish(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: publish SUBJECT FILE [HEADER=VALUE...]")
	}
	nc, err := nats.Connect(ts.Getenv("NATS_URL"))
	ts.Check(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	ts.Check(err)
	m := nats.NewMsg(args[0])
	m.Data = []byte(ts.ReadFile(args[1]))
	for _, header := range args[2:] {
		name, value, _ := strings.Cut(header, "=")
		m.Header[name] = []string{value}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = js.PublishMsg(ctx, m)
	ts.Check(err)
}

// expire removes the first records of the raw stream, as their age does.
func expire(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: expire COUNT")
	}
	count, err := strconv.ParseUint(args[0], 10, 64)
	ts.Check(err)
	js := scriptBroker(ts)
	defer js.Conn().Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := js.Stream(ctx, streams.RawStream)
	ts.Check(err)
	ts.Check(stream.Purge(ctx, jetstream.WithPurgeSequence(count+1)))
}

// scriptBroker connects to the broker of the script. The caller closes the connection.
func scriptBroker(ts *testscript.TestScript) jetstream.JetStream {
	nc, err := nats.Connect(ts.Getenv("NATS_URL"))
	ts.Check(err)
	js, err := jetstream.New(nc)
	ts.Check(err)
	return js
}

// await waits until the broker of the script has stored so many messages on a subject.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: await STREAM SUBJECT COUNT")
	}
	count, err := strconv.ParseUint(args[2], 10, 64)
	ts.Check(err)
	js := scriptBroker(ts)
	defer js.Conn().Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ts.Check(awaitStored(ctx, js, args[0], args[1], count))
}

// exits runs a program to its end and checks its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
