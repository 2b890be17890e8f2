package checks

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"

	"tributary/normalizers"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/runner"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// pod is a worker of a revision.
type pod struct {
	*runner.Runner

	revision int
	ended    chan error
}

// rollout updates the pods of a Deployment by its strategy: a pod is started beside the others, and one of them ends, only
// where enough are ready.
type rollout struct {
	t                  *testing.T
	js                 jetstream.JetStream
	replicas           int
	surge, unavailable int
	pods               []*pod
	started            int
}

func newRollout(t *testing.T, js jetstream.JetStream, d *apps.Deployment) *rollout {
	t.Helper()
	s := d.Spec.Strategy.RollingUpdate
	return &rollout{t: t, js: js, replicas: int(*d.Spec.Replicas), surge: s.MaxSurge.IntValue(), unavailable: s.MaxUnavailable.IntValue()}
}

// start starts a pod.
func (r *rollout) start(revision int) {
	r.t.Helper()
	r.started++
	name := "pod-" + strconv.Itoa(r.started)
	p := &pod{revision: revision, ended: make(chan error, 1)}
	p.Runner = runner.New(r.js, worker.Config{
		Topology: streams.Topology{Partitions: topology.Partitions}, Worker: name, Member: name, Revision: revision, Logger: slog.New(slog.DiscardHandler),
	})
	go func() { p.ended <- p.Run(context.WithoutCancel(r.t.Context())) }()
	r.pods = append(r.pods, p)
	r.t.Cleanup(p.Drain)
}

// ready returns how many pods are.
func (r *rollout) ready() (n int) {
	for _, p := range r.pods {
		if p.Ready() == nil {
			n++
		}
	}
	return n
}

// step is one look of the controller: it returns whether every pod is of the revision, and ready.
func (r *rollout) step(revision int) bool {
	r.t.Helper()
	of := 0
	for _, p := range r.pods {
		if p.revision == revision {
			of++
		}
	}
	if of < r.replicas && len(r.pods) < r.replicas+r.surge {
		r.start(revision)
	}
	// Beyond those that have to be ready, and new ones that are not, an old pod ends: first one that is not ready itself.
	unready, least := 0, r.replicas-r.unavailable
	for _, p := range r.pods {
		if p.revision == revision && p.Ready() != nil {
			unready++
		}
	}
	old := slices.IndexFunc(r.pods, func(p *pod) bool { return p.revision != revision && p.Ready() != nil })
	ends := old >= 0
	if !ends {
		old = slices.IndexFunc(r.pods, func(p *pod) bool { return p.revision != revision })
		ends = old >= 0 && r.ready() > least
	}
	if ends && len(r.pods)-least-unready > 0 {
		p := r.pods[old]
		p.Drain()
		require.NoError(r.t, <-p.ended)
		r.pods = slices.Delete(r.pods, old, old+1)
	}
	return of == r.replicas && len(r.pods) == r.replicas && r.ready() == r.replicas
}

// until steps until something is so.
func (r *rollout) until(what string, revision int, is func(done bool) bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !is(r.step(revision)); pause(r.t) {
		require.True(r.t, time.Now().Before(end), what)
	}
}

// TestUpdateOverANewRevisionDoesNotStopTheStream follows deploy/kubernetes.md: the update waits with the old pods, which go on
// storing events, while the new one builds its generation. When that is live, the update goes on by itself.
func TestUpdateOverANewRevisionDoesNotStopTheStream(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology)
	r := newRollout(t, js, render(t, "")["Deployment"].(*apps.Deployment))
	require.Zero(t, r.unavailable)
	published := uint64(0)
	publish := func() {
		published++
		pipelinetest.Publish(t, js, pipelinetest.Workload(published, 10, 100)...)
	}
	before, after := normalizers.Revision, normalizers.Revision+1
	r.until("the workers are not ready", before, func(done bool) bool { return done })
	publish()
	v1, v2 := pipelinetest.Expectation{Topology: topology}, pipelinetest.Expectation{Topology: topology}
	v2.Topology.Generation = "v2"
	v1.RequireExact(t, js)

	r.until("no new pod waits", after, func(bool) bool {
		return slices.ContainsFunc(r.pods, func(p *pod) bool { return p.revision == after && errors.Is(p.Ready(), streams.ErrRevision) })
	})
	publish()
	for range 20 {
		require.False(t, r.step(after))
	}
	require.Equal(t, r.replicas, r.ready(), "the old pods stay")
	v1.RequireExact(t, js)
	_, err := replay.Start(t.Context(), js, replay.Request{Name: "v2", Revision: after})
	require.NoError(t, err)
	require.NoError(t, replay.CatchUp(t.Context(), js, v2.Topology))
	_, err = replay.Promote(t.Context(), js, "v2", true)
	require.NoError(t, err)
	publish()
	r.until("the update does not end", after, func(done bool) bool { return done })
	publish()
	v2.RequireExact(t, js)
}
