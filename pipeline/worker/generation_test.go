package worker_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// refused fails the test unless an error contradicts the topology and contains all of texts.
func refused(t *testing.T, err error, texts ...string) {
	t.Helper()
	if !errors.Is(err, streams.ErrTopology) {
		t.Fatalf("error %v, want %v", err, streams.ErrTopology)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not contain %q", err, text)
		}
	}
}

// A worker with other settings than the generation is refused, by Provision and by the stage.
func TestWorkerWithOtherSettingsIsRefused(t *testing.T) {
	t.Parallel()
	top := topology(2)
	top.Settings.CloudEvents = envelopes.Structured
	js := pipelinetest.NewServer(t).Provision(top)
	other := topology(2)
	other.Settings = streams.Settings{ToolMetadata: core.ProfileCurrent, CloudEvents: envelopes.Binary, Raw: streams.RawReferenced}
	says := []string{
		"generation v1", "has tool_metadata opencode, want current", "has cloudevents structured, want binary", "has raw carried, want referenced",
		"leave the setting out", "tributary replay start NAME --set tool_metadata=current --set cloudevents=binary --set raw=referenced",
	}
	refused(t, streams.Provision(t.Context(), js, other), says...)
	refused(t, start(t, js, worker.Config{Topology: other}).wait(t), says...)

	// A worker that sets nothing works with the settings of the generation.
	silent := topology(2)
	if err := streams.Provision(t.Context(), js, silent); err != nil {
		t.Fatal(err)
	}
	pipelinetest.Publish(t, js, pipelinetest.Workload(60, 3, 50)...)
	s := start(t, js, worker.Config{Topology: silent})
	pipelinetest.Expectation{Topology: silent}.RequireExact(t, js)
	s.stop(t)
	for _, m := range stored(t, js, "events.v1.>") {
		if got := m.Header.Get("Content-Type"); got != "application/cloudevents+json" {
			t.Fatalf("an event of type %q", got)
		}
	}
}

// Of first workers with different settings one wins, whichever it is, and the others are
// refused: a generation never has events of two shapes.
func TestFirstWorkersAgreeOnTheSettings(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	profiles := []core.Profile{core.ProfileOpenCode, core.ProfileCurrent}
	errs := make([]error, 6)
	var all sync.WaitGroup
	for i := range errs {
		js, top := server.JetStream(), topology(2)
		top.Settings.ToolMetadata = profiles[i%2]
		all.Go(func() { errs[i] = streams.Provision(t.Context(), js, top) })
	}
	all.Wait()
	js := server.JetStream()
	g, err := streams.ReadGenerations(t.Context(), js)
	if err != nil || len(g.List) != 1 || g.Live != "v1" || g.List[0].State != streams.StateLive {
		t.Fatalf("generations %+v, %v", g, err)
	}
	for i, err := range errs {
		if same := profiles[i%2] == g.List[0].Settings.ToolMetadata; same && err != nil || !same && !errors.Is(err, streams.ErrTopology) {
			t.Errorf("settings %s in a generation of %s: %v", profiles[i%2], g.List[0].Settings, err)
		}
	}
}

// A generation that was made before settings were stored gets those of the first worker.
func TestGenerationWithoutSettingsGetsThoseOfTheFirstWorker(t *testing.T) {
	t.Parallel()
	top := topology(1)
	top.Settings.ToolMetadata = core.ProfileCurrent
	js := pipelinetest.NewServer(t).Provision(topology(1))
	kv, err := js.KeyValue(t.Context(), streams.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), "settings.v1"); err != nil {
		t.Fatal(err)
	}
	if err := start(t, js, worker.Config{Topology: top}).wait(t); !errors.Is(err, streams.ErrState) || !strings.Contains(err.Error(), "settings.v1") {
		t.Errorf("a stage on a generation without settings: %v", err)
	}
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	if have := generation(t, js, "v1").Settings; have.ToolMetadata != core.ProfileCurrent || have.CloudEvents != envelopes.Binary {
		t.Errorf("settings %s", have)
	}
	refused(t, streams.Provision(t.Context(), js, streams.Topology{
		Generation: "v1", Partitions: 1, Settings: streams.Settings{ToolMetadata: core.ProfileOpenCode},
	}), "has tool_metadata current, want opencode")
}

// A generation that was made before there was a setting has the default of it; one with a
// setting of a later version is refused.
func TestSettingsOfOtherVersions(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology(1))
	kv, err := js.KeyValue(t.Context(), streams.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	store := func(settings string) {
		t.Helper()
		if _, err := kv.PutString(t.Context(), "settings.v1", settings); err != nil {
			t.Fatal(err)
		}
	}
	store(`{"tool_metadata":"opencode","cloudevents":"binary"}`)
	top := topology(1)
	top.Settings.Raw = streams.RawCarried
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Error(err)
	}
	if have := generation(t, js, "v1").Settings; have.Raw != streams.RawCarried {
		t.Errorf("settings %s", have)
	}
	store(`{"tool_metadata":"opencode","cloudevents":"binary","raw":"carried","colour":"green"}`)
	for _, err := range []error{streams.Provision(t.Context(), js, top), start(t, js, worker.Config{Topology: top}).wait(t)} {
		if err == nil || !strings.Contains(err.Error(), "a later version of this program wrote it") {
			t.Errorf("a setting of a later version: %v", err)
		}
	}
}

// generation reads a generation.
func generation(tb testing.TB, js jetstream.JetStream, name string) streams.Generation {
	tb.Helper()
	all, err := streams.ReadGenerations(tb.Context(), js)
	if err != nil {
		tb.Fatal(err)
	}
	g, err := all.Find(name)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}
