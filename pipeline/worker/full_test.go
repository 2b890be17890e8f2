package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/runner"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// full is a limit of storage that a test reaches before the events of its records are stored, and lifts again.
type full struct {
	js          jetstream.JetStream
	reach, lift func(*testing.T)
	says        string // what the log and the readiness of the worker say
	limit       string // of which the metric is near 1; empty where the broker does not say how much is used
}

// A limit that is reached, of the account, the server or a stream, stores nothing wrong and is named by log, readiness,
// metric and the answer of the worker. When there is room again, everything goes on by itself.
func TestFullBrokerIsNamedAndGoesOn(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T) full{"account": fullAccount, "server": fullServer, "stream": fullStream} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := topology(2)
			f := begin(t)
			if err := streams.Provision(t.Context(), f.js, top); err != nil {
				t.Fatal(err)
			}
			log, reader, reached := newLines(), sdkmetric.NewManualReader(), make(chan struct{})
			runner := work(t, f.js, worker.Looking(worker.Config{
				Topology: top, Worker: "w", Member: "w", Logger: log.logger(),
				Heartbeat: time.Second, // an answer that takes longer than one is an error
				Meter:     sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"),
				Normalize: func(s *core.Session, r core.Record) (core.Result, error) {
					<-reached
					return normalizers.Normalize(s, r)
				},
			}, 20*time.Millisecond))
			eventually(t, "the worker is ready", func() bool { return runner.Ready() == nil })
			if s := ask(t, f.js); s.Error != "" || s.NotReady != "" {
				t.Errorf("before the limit the worker says %+v", s)
			}
			records := pipelinetest.Workload(11, 30, 400)
			pipelinetest.Publish(t, f.js, records...)
			f.reach(t)
			close(reached)
			log.await(t, f.says, 0)
			eventually(t, "the worker says that it is not ready, and why", func() bool {
				s := ask(t, f.js)
				return strings.Contains(s.NotReady, f.says) && s.Error != ""
			})
			if f.limit != "" {
				eventually(t, "the metric is near 1", func() bool { return limitUsed(t, reader, f.limit) > 0.8 })
			}
			f.lift(t)
			if r := (pipelinetest.Expectation{Topology: top}).RequireExact(t, f.js); r.Records != len(records) {
				t.Errorf("%d of %d records are there", r.Records, len(records))
			}
			eventually(t, "the worker is ready again", func() bool { return runner.Ready() == nil })
			runner.stop(t)
		})
	}
}

func fullAccount(t *testing.T) full {
	t.Helper()
	a := newLimitedAccount(t, -1)
	return full{
		a.js, func(*testing.T) { a.limit(a.used() + 4<<10) }, func(*testing.T) { a.limit(-1) },
		"the storage of the account is full", "storage of the account",
	}
}

// fullServer fills the server with a stream of somebody else.
func fullServer(t *testing.T) full {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	conf := fmt.Sprintf("listen: \"127.0.0.1:-1\"\nmax_payload: 8MB\njetstream: { store_dir: %q, max_file_store: 16MB }\n", t.TempDir())
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	js := pipelinetest.Connect(t, pipelinetest.StartConfigured(t, file).ClientURL())
	return full{js, func(t *testing.T) {
		t.Helper()
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILLER", Subjects: []string{"filler"}}); err != nil {
			t.Fatal(err)
		}
		for size := 1 << 20; size > 512; {
			if _, err := js.Publish(t.Context(), "filler", make([]byte, size)); err != nil {
				size /= 2
			}
		}
	}, func(t *testing.T) {
		t.Helper()
		if err := js.DeleteStream(t.Context(), "FILLER"); err != nil {
			t.Fatal(err)
		}
	}, "insufficient resources", ""}
}

// fullStream gives the events stream a limit at which it refuses messages.
func fullStream(t *testing.T) full {
	t.Helper()
	js := pipelinetest.NewServer(t).JetStream()
	limit := func(t *testing.T, more int64) {
		t.Helper()
		stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
		if err != nil {
			t.Fatal(err)
		}
		cfg := stream.CachedInfo().Config
		if cfg.MaxBytes, cfg.Discard = -1, jetstream.DiscardNew; more > 0 {
			cfg.MaxBytes = int64(stream.CachedInfo().State.Bytes) + more //nolint:gosec // a small stream
		}
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	return full{js, func(*testing.T) { limit(t, 20) }, func(*testing.T) { limit(t, 0) }, "maximum bytes exceeded", "stream EVENTS_v1"}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for ctx := deadline(t); !holds(); {
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("it never is so that %s", what)
		}
	}
}

// ask returns how the only worker is.
func ask(t *testing.T, js jetstream.JetStream) runner.State {
	t.Helper()
	states, err := runner.Ask(t.Context(), js.Conn(), 1)
	if err != nil || len(states) != 1 || states[0].Name != "w" {
		t.Fatalf("the worker answers %+v, %v", states, err)
	}
	return states[0]
}

// limitUsed returns the metric of a limit.
func limitUsed(t *testing.T, reader sdkmetric.Reader, limit string) float64 {
	t.Helper()
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	for _, m := range got.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Gauge[float64]); ok && m.Name == "tributary.limit.used" {
			for _, p := range data.DataPoints {
				if v, _ := p.Attributes.Value(attribute.Key("limit")); v.AsString() == limit {
					return p.Value
				}
			}
		}
	}
	return 0
}
