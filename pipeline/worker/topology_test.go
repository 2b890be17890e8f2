package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// configs are the settings of all streams of a topology.
func configs(tb testing.TB, js jetstream.JetStream, names ...string) map[string]jetstream.StreamConfig {
	tb.Helper()
	out := make(map[string]jetstream.StreamConfig)
	for _, name := range names {
		s, err := js.Stream(tb.Context(), name)
		if err != nil {
			tb.Fatalf("stream %s: %v", name, err)
		}
		out[name] = s.CachedInfo().Config
	}
	return out
}

func TestProvisionIsIdempotent(t *testing.T) {
	t.Parallel()
	top := streams.DefaultTopology()
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	names := []string{streams.RawStream, streams.EventsStream("v1"), "KV_" + streams.ControlBucket, "OBJ_" + streams.ClaimsBucket}
	before := configs(t, js, names...)

	var all sync.WaitGroup
	for range 4 {
		again := server.JetStream()
		all.Go(func() {
			if err := streams.Provision(t.Context(), again, top); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if diff := cmp.Diff(before, configs(t, js, names...)); diff != "" {
		t.Errorf("settings changed (-before +after):\n%s", diff)
	}
	for p := range top.Partitions {
		c, _, err := streams.ReadCheckpoint(t.Context(), js, "v1", p)
		if err != nil || c.Raw != 0 || c.Epoch != 0 {
			t.Errorf("first checkpoint of partition %d: %+v, %v", p, c, err)
		}
	}
	kv, err := js.KeyValue(t.Context(), streams.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"partitions": "16", "current": "v1",
		"settings.v1": `{"tool_metadata":"opencode","cloudevents":"binary","raw":"carried","redact":"full"}`, "generation.v1": fmt.Sprintf(`{"revision":%d}`, normalizers.Revision),
	} {
		e, err := kv.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(e.Value()); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
}

func TestManyProcessesProvisionAtOnce(t *testing.T) {
	t.Parallel()
	top := topology(8)
	server := pipelinetest.NewServer(t)
	var all sync.WaitGroup
	for range 4 {
		js := server.JetStream()
		all.Go(func() {
			if err := streams.Provision(t.Context(), js, top); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s := start(t, server.JetStream(), worker.Config{Topology: top})
	ready(t, s)
	s.stop(t)
}

// The leader of the bucket refuses a key that another process has sent, although it cannot show that one before it is
// replicated. The network between it and its replicas is away meanwhile.
func TestKeyOfAnotherProcessIsAwaited(t *testing.T) {
	t.Parallel()
	pipelinetest.SkipShort(t)
	cluster := pipelinetest.NewCluster(t, 3, 0)
	cluster.Start(cluster.Nodes...)
	top := topology(2)
	top.Replicas = 3
	js := cluster.Provision(top)
	bucket, err := js.Stream(t.Context(), "KV_"+streams.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	key := streams.ControlSubject("partitions")
	if err := bucket.Purge(t.Context(), jetstream.WithPurgeSubject(key)); err != nil {
		t.Fatal(err)
	}
	cluster.Settle(js)
	info, err := bucket.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leader := cluster.Nodes[slices.IndexFunc(cluster.Nodes, func(n *pipelinetest.Node) bool { return n.Name() == info.Cluster.Leader })]
	js = pipelinetest.Connect(t, leader.URL())
	kv, err := js.KeyValue(t.Context(), streams.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}

	leader.CutOff()
	first := nats.NewMsg(key)
	first.Data = []byte("2")
	first.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
	if err := js.Conn().PublishMsg(first); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Create(t.Context(), "partitions", []byte("2")); !errors.Is(err, jetstream.ErrKeyExists) {
		t.Fatalf("the leader does not refuse a second key: %v", err)
	}
	ensured := make(chan error)
	go func() {
		err := streams.EnsureKey(t.Context(), js, kv, "partitions", []byte("2"))
		if err == nil {
			_, err = streams.ReadLayout(t.Context(), js)
		}
		ensured <- err
	}()
	leader.Reconnect()
	if err := <-ensured; errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Error(err)
	}
	cluster.Try("read the layout", func(ctx context.Context) error {
		_, err := streams.ReadLayout(ctx, js)
		return err
	})
}

func TestProvisionUpdatesWhatCanBeChanged(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	raw := configs(t, js, streams.RawStream)[streams.RawStream]
	raw.AllowAtomicPublish, raw.AllowDirect = false, false
	raw.Discard = jetstream.DiscardOld // as versions before made it: discards nothing without a limit
	if _, err := js.UpdateStream(t.Context(), raw); err != nil {
		t.Fatal(err)
	}
	top.RawMaxAge = time.Minute
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	got := configs(t, js, streams.RawStream)[streams.RawStream]
	want := raw
	want.AllowAtomicPublish, want.AllowDirect = true, true
	want.MaxAge, want.Duplicates, want.Discard = time.Minute, time.Minute, jetstream.DiscardNew
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("raw stream (-want +got):\n%s", diff)
	}
	top.RawMaxAge = 0 // as a worker without the setting has it
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, configs(t, js, streams.RawStream)[streams.RawStream]); diff != "" {
		t.Errorf("raw stream of a worker without its age (-want +got):\n%s", diff)
	}
}

// An operator may have created the bucket before, with other limits: Provision keeps them, and
// switches off what could remove the objects of others.
func TestProvisionKeepsABucketThatIsThere(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).JetStream()
	if _, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: streams.ClaimsBucket, MaxBytes: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	want := configs(t, js, "OBJ_"+streams.ClaimsBucket)
	claims := want["OBJ_"+streams.ClaimsBucket]
	claims.AllowRollup, claims.DenyDelete = false, true
	want["OBJ_"+streams.ClaimsBucket] = claims
	if err := streams.Provision(t.Context(), js, topology(2)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, configs(t, js, "OBJ_"+streams.ClaimsBucket)); diff != "" {
		t.Errorf("bucket (-want +got):\n%s", diff)
	}
}

func TestProvisionAddsAGeneration(t *testing.T) {
	t.Parallel()
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	top.Generation = "v2"
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), streams.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(t.Context(), "current")
	if err != nil || string(e.Value()) != "v1" {
		t.Errorf("current is %s, %v: want v1", e.Value(), err)
	}
}

// Provision refuses what contradicts, lists the differences, and changes nothing.
func TestProvisionRefusesAContradiction(t *testing.T) {
	t.Parallel()
	events, raw, claims := streams.EventsStream("v1"), streams.RawStream, "OBJ_"+streams.ClaimsBucket
	update := func(name string, change func(*jetstream.StreamConfig)) func(*testing.T, jetstream.JetStream) {
		return func(t *testing.T, js jetstream.JetStream) {
			t.Helper()
			cfg := configs(t, js, name)[name]
			change(&cfg)
			if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		}
	}
	replace := func(name string, change func(*jetstream.StreamConfig)) func(*testing.T, jetstream.JetStream) {
		return func(t *testing.T, js jetstream.JetStream) {
			t.Helper()
			cfg := configs(t, js, name)[name]
			change(&cfg)
			if err := js.DeleteStream(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			if _, err := js.CreateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		}
	}
	forget := func(key string) func(*testing.T, jetstream.JetStream) {
		return func(t *testing.T, js jetstream.JetStream) {
			t.Helper()
			kv, err := js.KeyValue(t.Context(), streams.ControlBucket)
			if err != nil {
				t.Fatal(err)
			}
			if err := kv.Purge(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*testing.T, jetstream.JetStream)
		then   streams.Topology
		says   []string
	}{
		"another partition count": {
			then: topology(8), says: []string{"bucket TRIBUTARY", "partitions 4, want 8", "use 4 partitions"},
		},
		"another partition count and the bucket is lost": {
			change: forget("partitions"), then: topology(8), says: []string{"stream RAW", "partition(4,1,2)", "partition(8,1,2)"},
		},
		"transform changed by another process": {
			change: update(raw, func(c *jetstream.StreamConfig) {
				c.SubjectTransform.Destination = "raw.{{partition(2,1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}"
			}),
			says: []string{"stream RAW", "subject transform", "partition(2,1,2)"},
		},
		"no transform": {
			change: replace(raw, func(c *jetstream.StreamConfig) { c.SubjectTransform = nil }),
			says:   []string{"stream RAW", "has subject transform none"},
		},
		"retention and storage": {
			change: replace(raw, func(c *jetstream.StreamConfig) {
				c.Retention, c.Storage = jetstream.WorkQueuePolicy, jetstream.MemoryStorage
			}),
			says: []string{"has retention WorkQueue, want Limits", "has storage Memory, want File"},
		},
		"raw records that make room for newer ones": {
			change: update(raw, func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = 1<<30, jetstream.DiscardOld }),
			says:   []string{"stream RAW has discard policy DiscardOld, want DiscardNew", "nats stream edit RAW --discard=new"},
		},
		"raw records that make room for others of their number": {
			change: update(raw, func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 1000, jetstream.DiscardOld }),
			says:   []string{"stream RAW has discard policy DiscardOld, want DiscardNew", "nats stream edit RAW --discard=new"},
		},
		"raw records that make room for others of their session": {
			change: update(raw, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 100 }),
			says:   []string{"stream RAW has maximal messages per subject 100, want 0", "--max-msgs-per-subject=-1"},
		},
		"events that expire by the stream": {
			change: update(events, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }),
			says:   []string{"stream EVENTS_v1", "has maximal age 1h0m0s, want 0s"},
		},
		"events that make room for newer ones": {
			change: update(events, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 30 }),
			says:   []string{"discard policy DiscardOld, want DiscardNew", "nats stream edit EVENTS_v1 --discard=new"},
		},
		"one event per subject": {
			change: update(events, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 }),
			says:   []string{"messages per subject 1, want 0"},
		},
		"events of a limited size": {
			change: update(events, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 << 20 }),
			says:   []string{"message size 1048576, want 0"},
		},
		"large records that expire before the others": {
			change: update(claims, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }),
			says:   []string{"stream OBJ_CLAIMS", "has maximal age 1h0m0s, want 0s"},
		},
		"large records that make room for newer ones": {
			change: update(claims, func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = 1<<30, jetstream.DiscardOld }),
			says:   []string{"stream OBJ_CLAIMS", "discard policy DiscardOld, want DiscardNew"},
		},
		"the generation is lost": {
			change: func(t *testing.T, js jetstream.JetStream) {
				t.Helper()
				s := start(t, js, worker.Config{Topology: topology(4)})
				ready(t, s)
				s.stop(t)
				forget("generation.v1")(t, js)
			},
			says: []string{"generation.v1 nothing", "stream that is in use"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := pipelinetest.NewServer(t).Provision(topology(4))
			if c.change != nil {
				c.change(t, js)
			}
			if c.then.Partitions == 0 {
				c.then = topology(4)
			}
			before := configs(t, js, raw, events, claims)
			err := streams.Provision(t.Context(), js, c.then)
			if !errors.Is(err, streams.ErrTopology) {
				t.Fatalf("error %v, want %v", err, streams.ErrTopology)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error %q does not contain %q", err, s)
				}
			}
			if diff := cmp.Diff(before, configs(t, js, raw, events, claims)); diff != "" {
				t.Errorf("settings changed all the same (-before +after):\n%s", diff)
			}
			if name == "the generation is lost" {
				return
			}
			// And no stage works on it.
			if err := start(t, js, worker.Config{Topology: c.then}).wait(t); err == nil {
				t.Error("a stage worked on it")
			}
		})
	}
}

func TestTopologyIsValidated(t *testing.T) {
	t.Parallel()
	err := streams.Topology{
		Generation: "V 1", Partitions: 0, Replicas: 7, RawMaxAge: -1, EventsMaxAge: time.Millisecond,
	}.Validate()
	for _, s := range []string{"generation", "0 partitions", "7 replicas", "raw records", "events kept"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not speak of %s", err, s)
		}
	}
	if err := streams.DefaultTopology().Validate(); err != nil {
		t.Error(err)
	}
}

// A lost checkpoint is never made up: from the beginning, every event would be stored twice.
func TestMissingCheckpointEndsTheStage(t *testing.T) {
	t.Parallel()
	top := topology(4)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(20, 10, 100)...)
	s := start(t, js, worker.Config{Topology: top})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("checkpoints.v1.2")); err != nil {
		t.Fatal(err)
	}
	if err := streams.Provision(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	err = start(t, js, worker.Config{Topology: top}).wait(t)
	if !errors.Is(err, streams.ErrNoCheckpoint) || !strings.Contains(err.Error(), "partition 2") {
		t.Errorf("error %v, want %v of partition 2", err, streams.ErrNoCheckpoint)
	}
}

func TestGenerationOfAnotherRevisionIsRefused(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	kv, err := js.KeyValue(t.Context(), streams.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "generation.v1", `{"revision":0}`); err != nil {
		t.Fatal(err)
	}
	if err := start(t, js, worker.Config{Topology: top}).wait(t); !errors.Is(err, streams.ErrRevision) {
		t.Errorf("error %v, want %v", err, streams.ErrRevision)
	}
}

// A raw stream that lost its tail gives the lost sequences to other records: the partition
// stops.
func TestLostTailStopsThePartition(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]int{"shorter": 10, "grown again": 150, "grown beyond": 400} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := topology(1)
			js := pipelinetest.NewServer(t).Provision(top)
			records := pipelinetest.Workload(21, 5, 145)
			pipelinetest.Publish(t, js, records...)
			s := start(t, js, worker.Config{Topology: top})
			pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
			s.stop(t)
			if err := js.DeleteStream(t.Context(), streams.RawStream); err != nil {
				t.Fatal(err)
			}
			if err := streams.Provision(t.Context(), js, top); err != nil {
				t.Fatal(err)
			}
			pipelinetest.Publish(t, js, pipelinetest.Workload(22, 5, again-5)...)
			log := newLines()
			s = start(t, js, worker.Config{Topology: top, Logger: log.logger()})
			log.await(t, rawLostMessage, 0)
			s.stop(t)
			if c, _, err := streams.ReadCheckpoint(t.Context(), js, "v1", 0); err != nil || c.Epoch != 1 {
				t.Errorf("the partition was acquired %d times, %v", c.Epoch, err)
			}
		})
	}
}

// A record that was deleted on purpose is not a lost tail.
func TestDeletedRecordIsNoLostTail(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(23, 5, 100)...)
	s := start(t, js, worker.Config{Topology: top})
	x := pipelinetest.Expectation{Topology: top}
	r := x.RequireExact(t, js)
	s.stop(t)
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.DeleteMsg(t.Context(), uint64(r.Records)); err != nil {
		t.Fatal(err)
	}
	s = start(t, js, worker.Config{Topology: top})
	pipelinetest.Publish(t, js, pipelinetest.Workload(24, 5, 100)...)
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
}

// A limit that discards old messages of the sessions stream would discard titles and pins.
func TestProvisionRefusesLimitsOfTheSessionsStream(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology(2))
	want := configs(t, js, streams.SessionsStream)[streams.SessionsStream]
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"maximal age":                  func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"maximal messages per subject": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 },
		"discard policy":               func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 30 },
		"subjects":                     func(c *jetstream.StreamConfig) { c.Subjects = []string{"sessions.>"} },
	} {
		have := want
		change(&have)
		if _, err := js.UpdateStream(t.Context(), have); err != nil {
			t.Fatal(err)
		}
		err := streams.Provision(t.Context(), js, topology(2))
		if !errors.Is(err, streams.ErrTopology) || !strings.Contains(err.Error(), "stream SESSIONS has "+name) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := js.UpdateStream(t.Context(), want); err != nil {
			t.Fatal(err)
		}
	}
	have := want
	have.AllowDirect, have.AllowMsgTTL = false, true
	have.MaxBytes, have.Discard = 1<<30, jetstream.DiscardNew // refuses new messages instead
	if _, err := js.UpdateStream(t.Context(), have); err != nil {
		t.Fatal(err)
	}
	if err := streams.Provision(t.Context(), js, topology(2)); err != nil {
		t.Error(err)
	}
	if got := configs(t, js, streams.SessionsStream)[streams.SessionsStream]; !got.AllowDirect || got.MaxBytes != 1<<30 {
		t.Errorf("settings %+v", got)
	}
}
