package main

import (
	"fmt"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// A log can state a new version, a new type and a new field in every record: the report stays small, and its
// counts add up.
func TestReportOfAHostileLogStaysSmall(t *testing.T) {
	t.Parallel()
	const records = 20_000
	p := newReport()
	s := normalizers.NewSession(envelopes.ClaudeCode, "s")
	for i := range records {
		r := core.Record{
			Source: envelopes.ClaudeCode, Session: "s", Sequence: uint64(i + 1),
			Data: fmt.Appendf(nil, `{"type":"type%d","sessionId":"s","uuid":"u%d","version":"999.0.%d","timestamp":"2026-03-09T09:00:00Z","field%d":1}`, i, i, i, i),
		}
		result, err := normalizers.NormalizeWatched(s, r)
		if err != nil {
			t.Fatal(err)
		}
		p.count(s, r, result)
	}
	d := p.Drift[envelopes.ClaudeCode]
	d.Settle()
	total := 0
	for _, u := range d.Unknown {
		total += u.Count
	}
	if total != 2*records || len(d.Unknown) > 300 || len(d.Newer) > 32 || len(d.Items()) > 400 {
		t.Errorf("%d names count %d of %d; %d newer versions", len(d.Unknown), total, records, len(d.Newer))
	}
}
