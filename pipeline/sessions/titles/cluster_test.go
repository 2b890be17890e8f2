package titles_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
)

// Three servers keep the stream. The one that leads it is killed while two services rename a
// session and a watcher follows: every call is applied once, and every change is seen once.
func TestKilledLeaderLosesNoChange(t *testing.T) {
	t.Parallel()
	cluster := pipelinetest.StartCluster(t, 3, 0)
	top := topology
	top.Replicas = 3
	js := cluster.Provision(top)
	cluster.Settle(js)
	k := titles.Key{Source: envelopes.ClaudeCode, SessionID: "s1"}
	addEvent(t, js, k)
	w := outliving(t, cluster.JetStream())
	w.expect(t, titles.Synced)

	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	const each = 20
	applied := make(chan *titles.Change, 2*each)
	warm := make(chan struct{})
	var writers sync.WaitGroup
	for n := range 2 {
		s := newService(t, cluster.JetStream())
		writers.Go(func() {
			for i := range each {
				if n == 0 && i == each/2 {
					close(warm)
				}
				c, err := s.SetTitle(ctx, k, fmt.Sprintf("Title %d of %d", i, n))
				if err != nil || c == nil {
					t.Errorf("%+v, %v", c, err)
					continue
				}
				applied <- c
			}
		})
	}
	<-warm
	leader := leaderOf(t, cluster, js)
	leader.Kill()
	cluster.Start(leader)
	writers.Wait()
	close(applied)

	stored := changes(t, js)
	requireVersions(t, stored, 2*each)
	for c := range applied {
		if s := stored[c.TitleVersion-1]; s.ID != c.ID || s.Sequence != c.Sequence {
			t.Errorf("stored %+v, returned %+v", s, c)
		}
	}
	for _, want := range stored {
		if u := w.expect(t, titles.Changed); u.Change.ID != want.ID {
			t.Fatalf("watched %+v, want %+v", u.Change, want)
		}
	}
}

// leaderOf returns the server that leads the stream.
func leaderOf(t *testing.T, cluster *pipelinetest.Cluster, js jetstream.JetStream) *pipelinetest.Node {
	t.Helper()
	s, err := js.Stream(t.Context(), streams.SessionsStream)
	if err != nil {
		t.Fatal(err)
	}
	name := s.CachedInfo().Cluster.Leader
	for _, n := range cluster.Nodes {
		if n.Name() == name {
			return n
		}
	}
	t.Fatalf("no server %q", name)
	return nil
}
