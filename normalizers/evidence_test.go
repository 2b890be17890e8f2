package normalizers_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// The row of a vendor says what its logs do not state: the other facts, and no more, are in the events of its cases, which an independent
// reader compares with the bytes.
func TestEvidenceIsInTheCases(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			found := make(map[core.Fact]bool)
			for _, g := range normalizerstest.Goldens(t, s) {
				for _, e := range normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(g.File(s.Source), g.Raw))) {
					for _, fact := range factsIn(&e) {
						found[fact] = true
					}
				}
			}
			var want []core.Fact
			for _, fact := range core.Facts {
				if found[fact] {
					want = append(want, fact)
				}
			}
			row := normalizers.VendorOf(s.Source).Evidence
			if diff := cmp.Diff(want, row.States()); diff != "" {
				t.Errorf("all facts but Evidence.Lacks (-cases +row):\n%s", diff)
			}
			if len(row.Read) == 0 {
				t.Error("Evidence.Read is empty")
			}
		})
	}
}

// factsIn returns what an event has that its log must have stated.
func factsIn(e *envelopes.AgentEventV1) (facts []core.Fact) {
	for fact, has := range map[core.Fact]bool{
		core.Texts:     slices.Contains([]envelopes.EventType{envelopes.UserMessage, envelopes.AssistantMessage}, e.EventType) && e.Text != nil,
		core.Calls:     e.EventType == envelopes.ToolResult,
		core.ExitCodes: e.ToolExitCode != nil,
		core.TokenSums: e.Usage != nil,
		core.Times:     e.TS != normalizerstest.Modified.Format(time.RFC3339) && e.TS != normalizerstest.Modified.Format("2006-01-02T15:04:05.000Z"),
		core.Models:    e.Model != nil,
		core.Subagents: e.IsInternal,
	} {
		if has {
			facts = append(facts, fact)
		}
	}
	return facts
}
