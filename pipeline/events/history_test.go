package events_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestHistoryHasEachRecordOnce reads the history of a session up to a record while the server sends no more of the
// later records that it has counted, as a slow one does for a while. The records that were read are still no duplicates.
func TestHistoryHasEachRecordOnce(t *testing.T) {
	t.Parallel()
	const sent = 2 * broker.ReadAhead // by the first two requests
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.Topology{Generation: "v1", Partitions: 1})
	var list []core.Record
	for i := range sent + 3 {
		list = append(list, core.Record{
			Source: envelopes.ClaudeCode, Session: "s", Sequence: uint64(i + 1), Data: fmt.Appendf(nil, `{"n":%d}`, i),
			Origin: core.Origin{File: "f", Position: int64(10 * i), Previous: int64(10*i) - 10},
		})
	}
	pipelinetest.Publish(t, js, list...)
	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	proxy := pipelinetest.NewRequestCut(t, server, 3, false)
	proxy.Only("$JS.API.CONSUMER.MSG.NEXT.")
	proxy.Before(func() {
		look := time.NewTicker(10 * time.Millisecond)
		defer look.Stop()
		for delivered := uint64(0); delivered < sent; <-look.C {
			if t.Context().Err() != nil || t.Failed() {
				return
			}
			consumers := raw.ListConsumers(t.Context())
			for c := range consumers.Info() {
				delivered = max(delivered, c.Delivered.Stream)
			}
			if err := consumers.Err(); err != nil {
				t.Error(err)
				return
			}
		}
		for _, r := range list[sent:] {
			if err := raw.DeleteMsg(t.Context(), r.Sequence); err != nil {
				t.Error(err)
			}
		}
	})
	defer proxy.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	histories := events.NewHistories(pipelinetest.Connect(t, proxy.URL()), streams.RawStream)
	for _, r := range []core.Record{list[4], list[5], list[sent-1]} {
		is, err := histories.Earlier(ctx, envelopes.PartitionSubject(0, r.Source, r.Session), r, 1)
		if err != nil {
			t.Fatal(err)
		}
		if !is.Known || is.Same || is.From != 0 {
			t.Errorf("record %d: %+v", r.Sequence, is)
		}
	}
	if !proxy.Close() {
		t.Error("the history was read without a third request")
	}
}
