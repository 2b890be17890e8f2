package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline"
	"tributary/pipeline/objects"
	"tributary/pipeline/pipelinetest"
)

// Where archives are outside the broker, a worker begins with their place alone. doctor says when it cannot see them, or when
// they are not where the setting says.
func TestArchivesOutsideTheBroker(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	top := pipeline.DefaultTopology()
	js := server.Provision(top)
	place := filepath.Join(t.TempDir(), "archives")
	stage, err := pipeline.New(js, pipeline.Config{
		Topology: top, Worker: "w", Member: "w", ArchiveAfter: time.Millisecond, Archives: objects.Folder{Dir: place},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- stage.Run(ctx) }()
	records := pipelinetest.Workload(81, 10, 100)
	pipelinetest.Publish(t, js, records...)
	stream, err := js.Stream(ctx, pipeline.EventsStream(top.Generation))
	if err != nil {
		t.Fatal(err)
	}
	for archives := uint64(0); archives == 0; {
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter("archives.>"))
		if err != nil {
			t.Fatal(err)
		}
		archives = uint64(len(info.State.Subjects))
	}
	stage.Drain()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}

	run := func(archives string, args ...string) *process {
		return startWith(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TRIBUTARY_ARCHIVES="+archives) }, t.TempDir(), server.URL(), args...)
	}
	for archives, want := range map[string]string{
		"":                     "archives of session states cannot be reached: they are outside the broker: set TRIBUTARY_ARCHIVES as the other workers have it",
		t.TempDir():            "they are not there: mount the folder, or set TRIBUTARY_ARCHIVES to where they are",
		"s3://Tele_Metry":      `TRIBUTARY_ARCHIVES: "Tele_Metry" is not the name of a bucket: write s3://BUCKET/PREFIX`,
		"s3://telemetry/state": "no credentials of the object store: set AWS_ACCESS_KEY_ID",
	} {
		if code, out := ended(run(archives, "run")); code == 0 || !strings.Contains(out, want) {
			t.Errorf("a worker with %q ended with %d:\n%s", archives, code, out)
		}
	}
	worker := run("file://"+place, "run")
	awaitWorkers(t, js, top, func(w []pipeline.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == top.Partitions })
	pipelinetest.Publish(t, js, records[:50]...)
	if err := pipeline.CatchUp(ctx, js, top); err != nil {
		t.Fatal(err)
	}

	code, out := ended(run("file://"+place, "doctor"))
	if contains(t, out, "this user may read everything that is examined"); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	code, out = ended(run("", "doctor"))
	if contains(t, out, "this user may not read the archives", "set TRIBUTARY_ARCHIVES as the workers have it"); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	code, out = ended(run(t.TempDir(), "doctor"))
	if contains(t, out, "problem: ", "mount the folder, or set TRIBUTARY_ARCHIVES to where they are"); code != exitFailure {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code := worker.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
}
