package events

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/streams"
)

// SessionRewrites counts the records of a session at places in their files that it had passed: see README.md, Places
// in files.
type SessionRewrites struct {
	Source    envelopes.Source `json:"source"`
	Session   string           `json:"session"`
	Files     int              `json:"files"`     // files with such records
	Rewritten int              `json:"rewritten"` // records that differed from the earlier ones at their places; they have events
	Undecided int              `json:"undecided"` // records taken for duplicates because the earlier ones have expired
}

// ReadRewrites reads the rewrites of the sessions named in a checkpoint.
func ReadRewrites(ctx context.Context, js jetstream.JetStream, cellName string, list streams.SessionList, archivedTo uint64) (all []SessionRewrites, err error) {
	sessions, err := listedSessions(ctx, js, cellName, list, archivedTo)
	if err != nil {
		return nil, err
	}
	for _, s := range sessions {
		is := SessionRewrites{Source: s.Source(), Session: s.ID()}
		for _, r := range s.Rewrites() {
			is.Files++
			is.Rewritten += r.Rewritten
			is.Undecided += r.Undecided
		}
		if is.Files > 0 {
			all = append(all, is)
		}
	}
	return all, nil
}
