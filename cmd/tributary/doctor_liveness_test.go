package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// TestDoctorReportsHangingNormalizersAndDamagedStates runs doctor while a normalizer does not
// return from a record, once that is a dead letter, and when a session state is damaged.
func TestDoctorReportsHangingNormalizersAndDamagedStates(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	top := streams.DefaultTopology()
	js := server.Provision(top)
	home := t.TempDir()
	requireProblem := func(texts ...string) {
		t.Helper()
		code, out := finish(t, home, server.URL(), "doctor")
		for _, text := range texts {
			if code != exitFailure || !strings.Contains(out, text) {
				t.Errorf("exit code %d, no %q in\n%s", code, text, out)
			}
		}
	}
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	stage, err := worker.New(js, worker.Config{
		Topology: top, Worker: "w", Member: "w", RecordTimeout: 300 * time.Millisecond,
		Normalize: func(s *core.Session, r core.Record) (core.Result, error) {
			if r.Sequence == 5 {
				<-release
			}
			return normalizers.Normalize(s, r)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- stage.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ran; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	sent := pipelinetest.Workload(81, 3, 120)
	other := sent[slices.IndexFunc(sent, func(r core.Record) bool { return r.Session != sent[4].Session })].Session
	pipelinetest.Publish(t, js, sent[:30]...)
	awaitWorkers(t, js, top, func(w []streams.Worker) bool {
		return slices.ContainsFunc(w, func(w streams.Worker) bool { return len(w.Hanging) > 0 })
	})
	requireProblem("worker w: the normalizer has not returned from the record 5")
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	cancel() // drops the states that are in memory
	stored, err := js.Stream(t.Context(), streams.EventsStream(top.Generation))
	if err != nil {
		t.Fatal(err)
	}
	info, err := stored.Info(t.Context(), jetstream.WithSubjectFilter("states.>"))
	if err != nil {
		t.Fatal(err)
	}
	for subject := range info.State.Subjects {
		if !strings.HasSuffix(subject, "."+other) {
			continue
		}
		damaged := &nats.Msg{Subject: subject, Data: []byte("damaged"), Header: nats.Header{"Nats-Rollup": {"sub"}}}
		if _, err := js.PublishMsg(t.Context(), damaged); err != nil {
			t.Fatal(err)
		}
	}
	pipelinetest.Publish(t, js, sent[30:]...)
	pipelinetest.PublishMessages(t.Context(), t, js, records.ClaimMessage(core.Record{Source: envelopes.ClaudeCode, Session: "s", Data: sent[0].Data}))
	start(t, home, server.URL(), "run")
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	requireProblem("record 5, ", "took too long and is a dead letter: update the workers", "session "+other+" of "+string(envelopes.ClaudeCode)+" has dead letters: session state cannot be read",
		"session s of claude_code, has lost its object in the bucket CLAIMS and is a dead letter: ship the logs again (tributary ship --again)")
}
