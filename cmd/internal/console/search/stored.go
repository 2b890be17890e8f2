package search

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/filters"
	"tributary/pipeline/sessions/summaries"
)

// How many filters of a cell are read at once. They have 64 KiB each.
const (
	firstFilters = 4
	mostFilters  = 32
)

// stored are the filters of a cell, which are read as a search goes back in time.
type stored struct {
	records func(context.Context) *summaries.View // nil if they cannot be read
	cell    int
	page    []*filters.Filter // in the order of the stream
}

// openFilters returns what reads the records of sessions, which have the filters. It opens them when it is called first,
// which a search for a frequent word does not. A search that selects events by itself has no filters, because
// these count all events.
func (s *Search) openFilters(js jetstream.JetStream, generation string) func(context.Context) *summaries.View {
	if s.Source != "" || len(s.query().Types) > 0 {
		return func(context.Context) *summaries.View { return nil }
	}
	var once sync.Once
	var records *summaries.View
	return func(ctx context.Context) *summaries.View {
		once.Do(func() {
			if v, err := summaries.Open(ctx, js, generation, func(error) {}); err == nil {
				records = v
			}
		})
		return records
	}
}

// upTo returns filters in the order of the stream, among them the one of a position if there is one. A page that cannot be
// read ends them, so that the rest is searched without.
func (s *stored) upTo(ctx context.Context, position uint64) []*filters.Filter {
	for s.records != nil && (len(s.page) == 0 || s.page[0].Span.First > position) {
		before, size := uint64(0), firstFilters
		if len(s.page) > 0 {
			before, size = s.page[0].Number, min(2*len(s.page), mostFilters)
		}
		records := s.records(ctx)
		if records == nil {
			s.records = nil
			break
		}
		page, err := records.Filters(ctx, s.cell, before, size)
		if err != nil || len(page) < size {
			s.records = nil // there are no older ones
		}
		if len(page) > 0 {
			s.page = page
		}
	}
	return s.page
}
