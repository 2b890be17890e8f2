package codex_test

import (
	"reflect"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/codex/codextest"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// repeated is a result that the end of its tool repeats.
type repeated struct {
	codextest.Repeat
	tool *codextest.Tool
}

// repeatedResults returns the results that an end repeats, by the number of its record. A call of long ago may be
// forgotten, and an end without a text repeats only a short output: neither counts.
func repeatedResults(records []codextest.Raw) map[uint64]repeated {
	out := make(map[uint64]repeated)
	tools := codextest.ToolsOf(records)
	for _, t := range tools {
		for _, again := range t.Repeats {
			if again.Mute {
				break
			}
			since := 0
			for _, o := range tools {
				if o.Call > t.Call && o.Call < again.At {
					since++
				}
			}
			if since < 64 {
				out[uint64(records[again.At].Number)] = repeated{again, t}
			}
		}
	}
	return out
}

// check compares a repeated result with its end: its text may lack a part of the output only if it is marked as cut.
func (r repeated) check(p *normalizerstest.Problems, e core.Emitted) {
	ev, line := e.Event, e.Sequence
	if normalizerstest.Value(ev.ToolCallID) != r.tool.ID || !reflect.DeepEqual(ev.ToolExitCode, r.Code) || !reflect.DeepEqual(ev.ToolLatencyMS, r.Latency) {
		p.Errorf("record %d: result %q again with exit code %v after %v ms, want %q, %v, %v", line, normalizerstest.Value(ev.ToolCallID),
			normalizerstest.Value(ev.ToolExitCode), normalizerstest.Value(ev.ToolLatencyMS), r.tool.ID, normalizerstest.Value(r.Code), normalizerstest.Value(r.Latency))
	}
	failed := r.Failed || r.Code != nil && *r.Code != 0
	if status := normalizerstest.Value(ev.ToolStatus); status == envelopes.StatusInProgress || failed != (status == envelopes.StatusError) {
		p.Errorf("record %d: result %q again, status %q, failed %t", line, r.tool.ID, status, failed)
	}
	if !ev.TextTruncated && !strings.Contains(normalizerstest.Value(ev.Text), strings.TrimSpace(r.tool.Body)) {
		p.Errorf("record %d: result %q again without a part of its output", line, r.tool.ID)
	}
}
