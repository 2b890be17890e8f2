package vscode_test

import (
	"regexp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
	"tributary/normalizers/vscode/vscodetest"
)

// A chat that comes by its files and by telemetry counts once, whatever comes first.
func TestTelemetryBesideTheChat(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := slices.DeleteFunc(vscodetest.Suite.Lines(t, "s"), func(l []byte) bool {
			return normalizerstest.ExportedAttributes(normalizerstest.Parse(l)) != nil
		})
		// Only sums of input are compared, so what of it was cached depends on the order.
		for i := range log {
			log[i] = cached.ReplaceAll(log[i], []byte(`"cachedTokens":0`))
		}
		normalizerstest.CheckChannels(t, vscodetest.Suite, "s", log, func(alone []envelopes.AgentEventV1) [][]byte {
			var returned []string
			var sum normalizerstest.Figures
			for _, e := range alone {
				sum.Add(normalizerstest.FiguresOf(e))
				if id := normalizerstest.Value(e.ToolCallID); e.EventType == envelopes.ToolResult && e.Origin != envelopes.OriginCopied && !slices.Contains(returned, id) {
					returned = append(returned, id)
				}
			}
			return vscodetest.Exported("s", log, returned, sum.Input, sum.Output)
		})
	})
}

var cached = regexp.MustCompile(`"cachedTokens":\d+`)
