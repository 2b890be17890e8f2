package main

import (
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
)

// letterJSON is the JSON form of a dead letter.
type letterJSON struct {
	Sequence   uint64              `json:"sequence"`
	Status     core.Standing       `json:"status"`
	Source     envelopes.Source    `json:"source"`
	Session    string              `json:"session"`
	Reason     string              `json:"reason"`
	Error      string              `json:"error"`
	Stream     string              `json:"stream"`
	FirstSeen  time.Time           `json:"first_seen"`
	Generation string              `json:"generation"`
	Partition  int                 `json:"partition"`
	Position   uint64              `json:"position"`
	Stored     time.Time           `json:"stored"`
	Normalizer int                 `json:"normalizer"`
	Requeued   uint64              `json:"requeued,omitzero"`
	Size       int64               `json:"size"` // of the record, even if an object has its bytes
	InRaw      bool                `json:"only_in_raw,omitzero"`
	Edge       *envelopes.Edge     `json:"edge,omitzero"`
	Headers    map[string][]string `json:"headers"`
	Data       *[]byte             `json:"data,omitzero"`
}

// toJSON returns l and its bytes, which are left out if data is nil.
func toJSON(l *events.DeadLetter, data *[]byte) letterJSON {
	return letterJSON{
		Sequence: l.Sequence, Status: l.Standing, Source: l.Source, Session: l.Session, Reason: l.Reason, Error: l.Error,
		Stream: l.Stream, FirstSeen: l.FirstSeen, Generation: l.Generation, Partition: l.Partition, Position: l.Position,
		Stored: l.Stored, Normalizer: l.Revision, Requeued: l.Requeued, Size: l.RecordSize(), InRaw: !l.Whole, Edge: l.Edge, Headers: l.Header, Data: data,
	}
}
