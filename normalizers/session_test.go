package normalizers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// The state of a session stays within 128 KiB whatever its records make it remember, it counts
// what it forgot, and it may still be cut anywhere.
func TestSessionStateIsBounded(t *testing.T) {
	t.Parallel()
	const most = 128 << 10
	long := func(i, n int) string { return fmt.Sprintf("%06d", i) + strings.Repeat(" \"x", n/3) }
	lines := map[string]func(i int) map[string]any{
		"ids": func(i int) map[string]any {
			return map[string]any{"type": "user", "uuid": long(i, 240), "message": map[string]any{"role": "user", "content": "x"}}
		},
		"API calls": func(i int) map[string]any {
			return map[string]any{"type": "assistant", "uuid": strconv.Itoa(i), "message": map[string]any{
				"id": fmt.Sprint("m", i), "model": long(i%7, 200), "content": slices.Repeat([]any{map[string]any{"type": "thinking", "thinking": "x"}}, 10),
				"usage": map[string]any{"input_tokens": 1 << 40, "output_tokens": i, "cache_read_input_tokens": 1 << 50},
			}}
		},
		"calls that never end": func(i int) map[string]any {
			return map[string]any{"type": "assistant", "uuid": strconv.Itoa(i), "message": map[string]any{"content": []any{
				map[string]any{"type": "tool_use", "id": long(i, 200), "name": long(i, 200), "input": map[string]any{"file_path": "/" + long(i, 4000)}},
			}}}
		},
		"threads": func(i int) map[string]any {
			return map[string]any{"type": "user", "uuid": long(i, 240), "agentId": long(i, 300), "isSidechain": true, "message": map[string]any{"role": "user", "content": "x"}}
		},
		"a queue": func(i int) map[string]any {
			return map[string]any{"type": "queue-operation", "operation": "enqueue", "content": long(i, 20_000)}
		},
		"a queue that is taken": func(i int) map[string]any {
			return map[string]any{"type": "queue-operation", "operation": []string{"enqueue", "enqueue", "remove"}[i%3], "content": map[bool]any{true: long(i, 3000)}[i%3 < 2]}
		},
		"values that are stated": func(i int) map[string]any {
			return map[string]any{"type": []string{"ai-title", "custom-title", "mode", "permission-mode"}[i%4], "aiTitle": long(i, 5000), "permissionMode": long(i, 1900), "mode": long(i, 1900), "cwd": "/" + long(i, 4000), "gitBranch": long(i, 1900), "version": long(i, 1900)}
		},
	}
	kinds := slices.Sorted(maps.Keys(lines))
	lines["everything"] = func(i int) map[string]any { return lines[kinds[i%len(kinds)]](i / len(kinds)) }
	for name, line := range lines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const key = "a session with a long \"key\""
			whole := normalizers.NewSession(envelopes.ClaudeCode, key)
			cut := normalizers.NewSession(envelopes.ClaudeCode, key)
			largest, records := 0, 600
			switch name {
			case "ids":
				records = 4500 // 4,096 are remembered
			case "everything":
				records = 2200
			}
			if *limitsLarge {
				records = max(1500, 2*records)
			}
			for i := range records {
				data, err := json.Marshal(line(i))
				if err != nil {
					t.Fatal(err)
				}
				r := core.Record{
					Source: envelopes.ClaudeCode, Session: key, Sequence: uint64(i), Stored: normalizerstest.Modified, Data: data,
					Origin: core.Origin{File: fmt.Sprint("file", i), Position: int64(i), Previous: -1},
				}
				a, aerr := normalizers.Normalize(whole, r)
				b, berr := normalizers.Normalize(cut, r)
				if aerr != nil || berr != nil {
					t.Fatalf("record %d: %v, %v", i, aerr, berr)
				}
				if err := normalizerstest.Differ([]normalizerstest.Step{{Result: a}}, []normalizerstest.Step{{Result: b}}, true); err != nil {
					t.Fatalf("record %d, cut: %v", i, err)
				}
				if i%61 != 0 && i < records-3 {
					continue
				}
				x, y := whole.Encode(), cut.Encode()
				largest = max(largest, len(x))
				if len(x) > most || !bytes.Equal(x, y) {
					t.Fatalf("record %d: a state of %d bytes, after a cut of %d", i, len(x), len(y))
				}
				if size := whole.Size(); size < len(x)/8 || size > 4<<20 {
					t.Fatalf("record %d: states %d bytes of memory, encoded %d", i, size, len(x))
				}
				if cut, err = normalizers.DecodeSession(y); err != nil {
					t.Fatalf("record %d: %v", i, err)
				}
			}
			if whole.Forgotten() == 0 || name == "everything" && largest < most-most/128 {
				t.Errorf("the test demands too little: largest state %d bytes, forgotten %d", largest, whole.Forgotten())
			}
		})
	}
}

// An event that comes again is a duplicate within the last 4,096 ids (README.md, Identity).
func TestSessionRemembers4096IDs(t *testing.T) {
	t.Parallel()
	s := normalizers.NewSession(envelopes.ClaudeCode, "s")
	emitted := func(i int) bool {
		data := fmt.Appendf(nil, `{"type":"user","uuid":"u%d","message":{"role":"user","content":"x"}}`, i)
		result, err := normalizers.Normalize(s, core.Record{Source: envelopes.ClaudeCode, Session: "s", Stored: normalizerstest.Modified, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		return len(result.Events) > 0
	}
	const remembered = 4096
	for i := range remembered {
		if !emitted(i) {
			t.Fatalf("record %d is a duplicate", i)
		}
	}
	for i := range remembered {
		if emitted(i) {
			t.Fatalf("record %d is emitted again", i)
		}
	}
	for i := range 100 {
		emitted(remembered + i)
	}
	if emitted(remembered - 1) {
		t.Error("one of the last is emitted again")
	}
}

// The sums are right for more messages than a session remembers, while the lines of a message
// come together.
func TestTokenSumsHoldBeyondMemory(t *testing.T) {
	t.Parallel()
	s := suites[0]
	var data bytes.Buffer
	for i := range 3000 {
		for line := range 3 {
			fmt.Fprintf(&data, `{"type":"assistant","uuid":"u%d-%d","sessionId":"s","message":{"id":"m%d","role":"assistant","model":"x","content":[{"type":"thinking","thinking":"x"}],"usage":{"input_tokens":10,"output_tokens":%d,"cache_read_input_tokens":7}}}`+"\n", i, line, i, 5*line)
		}
	}
	if err := normalizerstest.LawSums(normalizerstest.Folded(s, normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(s.Source, "f.jsonl"), data.Bytes()))); err != nil {
		t.Error(err)
	}
}

// The project is that of the first cwd of a session, and its hash the SHA-256 of the root
// (README.md, Identity).
func TestProjectHashIsOfTheFirstFolder(t *testing.T) {
	t.Parallel()
	const root, want = "/Users/zawakin/agent-sample", "9126eddec7f67e038794657b4d517dd9cb5226468f30b5ee7296c27d65e84fde"
	s := normalizers.NewSession(envelopes.ClaudeCode, "s")
	normalize := func(data string) envelopes.AgentEventV1 {
		result, err := normalizers.Normalize(s, core.Record{Source: envelopes.ClaudeCode, Session: "s", Data: []byte(data)})
		if err != nil || len(result.Events) != 1 {
			t.Fatalf("%v, %d events", err, len(result.Events))
		}
		return result.Events[0].Event
	}
	if e := normalize(`{"type":"mode","mode":"normal","sessionId":"s"}`); e.ProjectRoot != nil || e.ProjectHash != normalizerstest.Sha256Hex("session:s") {
		t.Errorf("before the first cwd: %v %s", e.ProjectRoot, e.ProjectHash)
	}
	for _, cwd := range []string{root, root + "/sub", "/elsewhere"} {
		e := normalize(`{"type":"user","uuid":"` + cwd + `","sessionId":"s","cwd":"` + cwd + `","message":{"role":"user","content":"x"}}`)
		if normalizerstest.Value(e.ProjectRoot) != root || e.ProjectHash != want {
			t.Errorf("in %s: %q %s", cwd, normalizerstest.Value(e.ProjectRoot), e.ProjectHash)
		}
	}
}
