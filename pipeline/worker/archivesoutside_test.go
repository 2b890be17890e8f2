package worker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// A worker does not begin where an older version has put archives outside the broker: it would take their sessions for new.
func TestArchivesOutsideTheBrokerAreRefused(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.PublishMessages(t.Context(), t, js, &nats.Msg{Subject: "archives.v1.0.7", Data: []byte("\x02 and the name of an object")})
	err := start(t, js, worker.Config{Topology: top}).wait(t)
	if !errors.Is(err, streams.ErrState) || !strings.Contains(err.Error(), "archives of v1 are outside the broker (TRIBUTARY_ARCHIVES)") {
		t.Errorf("the worker ends with %v", err)
	}
}
