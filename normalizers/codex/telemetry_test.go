package codex_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers/codex/codextest"
	"tributary/normalizers/normalizerstest"
)

// A session that comes by its rollout and by telemetry counts once, whatever comes first.
func TestTelemetryBesideTheRollout(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := codextest.Rollout(codextest.Suite.Lines(t, "s"))
		if len(log) > 0 && strings.Contains(string(log[0]), `"thread.started"`) {
			t.Skip("the exec stream has no ids of calls")
		}
		normalizerstest.CheckChannels(t, codextest.Suite, "s", log, func(alone []envelopes.AgentEventV1) [][]byte { return codextest.Exported("s", alone) })
	})
}

// The same of the rollouts of the corpus.
func TestCorpusTelemetryBesideTheRollouts(t *testing.T) {
	t.Parallel()
	normalizerstest.CheckCorpusChannels(t, codextest.Suite, normalizerstest.OfEvents(t, codextest.Suite, codextest.Exported))
}
