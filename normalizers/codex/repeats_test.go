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
	id, status := normalizerstest.Value(ev.ToolCallID), normalizerstest.Value(ev.ToolStatus)
	if id != r.tool.ID {
		p.Errorf("record %d: result of %q again, want %q", line, id, r.tool.ID)
	}
	if code := ev.ToolExitCode; !reflect.DeepEqual(code, r.Code) {
		p.Errorf("record %d: result %q again with exit code %v, want %v",
			line, id, normalizerstest.Value(code), normalizerstest.Value(r.Code))
	}
	if latency := ev.ToolLatencyMS; !reflect.DeepEqual(latency, r.Latency) {
		p.Errorf("record %d: result %q again took %v ms, want %v",
			line, id, normalizerstest.Value(latency), normalizerstest.Value(r.Latency))
	}
	failed := r.Failed || r.Code != nil && *r.Code != 0
	if status == envelopes.StatusInProgress || failed != (status == envelopes.StatusError) {
		p.Errorf("record %d: result %q again, status %q, failed %t", line, id, status, failed)
	}
	if !ev.TextTruncated && !strings.Contains(normalizerstest.Value(ev.Text), strings.TrimSpace(r.tool.Body)) {
		p.Errorf("record %d: result %q again without a part of its output", line, id)
	}
}
