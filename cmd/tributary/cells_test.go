package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
)

// inCells returns the configuration of a tenant for 16 partitions in four cells, as deploy/nats/README.md says: the
// mapping for producers, and the lines of the streams again for each further cell.
func inCells(file, text string) string {
	if file == "nats.conf" {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(line)
		if strings.Contains(line, `"raw.*.*"`) && !strings.Contains(line, "#") {
			b.WriteString(strings.ReplaceAll(line, `"raw.*.*"`, `"raw.*.*.*"`))
		}
		if strings.Contains(line, `STREAM.INFO.RAW"`) || strings.Contains(line, "EVENTS_v1") && !strings.Contains(line, "#") {
			for cell := 1; cell < 4; cell++ {
				again := strings.ReplaceAll(line, `STREAM.INFO.RAW"`, fmt.Sprintf(`STREAM.INFO.RAW_%d"`, cell))
				b.WriteString(strings.ReplaceAll(again, "EVENTS_v1", fmt.Sprintf("EVENTS_v1_%d", cell)))
			}
		}
	}
	return strings.NewReplacer("ACME_EDGES {", "ACME_EDGES {\n  include \"cells.conf\"", "GLOBEX_EDGES {", "GLOBEX_EDGES {\n  include \"cells.conf\"").Replace(b.String())
}

// A producer that knows nothing of cells publishes, through the mapping of its account, to the partition to which
// ship sends the same session; consumers, the operator and doctor see all cells.
func TestFourCellsBehindTheMappingOfAnAccount(t *testing.T) {
	t.Parallel()
	const sessions, partitions = 40, 16
	b := startTenants(t, inCells)
	b.more = []string{"TRIBUTARY_PARTITIONS=16", "TRIBUTARY_CELLS=4"}
	worker := b.as(t, "ACME_STAGE", "run")
	js := b.streams(t, "ACME")
	awaitSubject(t, js, "checkpoints.v1.*", 4)
	nc, denied := b.connect(t, "ACME_PRODUCER")
	dir := t.TempDir()
	for i := range sessions {
		session := fmt.Sprintf("session-%d", i)
		line := fmt.Sprintf(`{"type":"user","uuid":"u%d","sessionId":%q,"message":{"role":"user","content":"hello"}}`, i, session)
		if err := os.WriteFile(filepath.Join(dir, session+".jsonl"), []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		m := records.Message(core.Record{Source: envelopes.ClaudeCode, Session: session, Data: []byte(strings.Replace(line, "hello", "mapped", 1))})
		answer, err := nc.RequestMsg(m, patience)
		if err != nil || strings.Contains(string(answer.Data), "error") {
			t.Fatalf("%v, %v, denied %d", answer, err, len(denied))
		}
	}
	if code, out := ended(b.as(t, "ACME_PRODUCER", "ship", "--once", "--source", "claude_code", dir)); code != 0 {
		t.Fatalf("ship: exit code %d\n%s", code, out)
	}
	cells := make(map[int]int)
	for i := range sessions {
		session := fmt.Sprintf("session-%d", i)
		p := envelopes.Partition(envelopes.ClaudeCode, session, partitions)
		cells[p%4]++
		count := 0
		for next := uint64(1); ; count++ {
			m, err := broker.NextStored(t.Context(), js, streams.RawStreamOf(p%4), envelopes.PartitionSubject(p, envelopes.ClaudeCode, session), next)
			if err != nil {
				break
			}
			next = m.Sequence + 1
		}
		if count < 2 {
			t.Errorf("%s has %d records in partition %d, want those of both producers", session, count, p)
		}
	}
	if len(cells) != 4 {
		t.Errorf("sessions by cell: %v", cells)
	}
	if out := b.done(t, "ACME_OPERATOR", "doctor"); !strings.Contains(out, "16 partitions in 4 cells") || !strings.Contains(out, "EVENTS_v1_3") || !strings.Contains(out, "RAW_2") {
		t.Errorf("doctor shows no cells:\n%s", out)
	}
	seen := make(map[string]int)
	for line := range strings.Lines(b.done(t, "ACME_CONSUMER", "tail", "--since", "all", "--once", "-o", "json")) {
		var e struct {
			Session string `json:"session_id"`
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Session != "" {
			seen[e.Session]++
		}
	}
	if len(seen) != sessions || slices.ContainsFunc(slices.Collect(maps.Values(seen)), func(n int) bool { return n != 2 }) {
		t.Errorf("tail shows %d sessions: %v", len(seen), seen)
	}
	for _, command := range []string{"stats", "sessions ls", "sessions show session-7", "export --out " + filepath.Join(b.home, "events")} {
		b.done(t, "ACME_CONSUMER", strings.Fields(command)...)
	}
	for _, command := range []string{"replay start b", "replay status b --wait", "replay diff v1 b", "replay drop b --yes"} {
		b.done(t, "ACME_OPERATOR", strings.Fields(command)...)
	}
	b.more = []string{"TRIBUTARY_PARTITIONS=16"}
	if code, out := ended(b.as(t, "ACME_STAGE", "run")); code == 0 || !strings.Contains(out, "use 4 cells and 16 partitions") {
		t.Errorf("a worker of one cell: exit code %d\n%s", code, out)
	}
	if code := worker.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("run: exit code %d\n%s", code, worker.stderr.String())
	}
	if diff := cmp.Diff(0, len(denied)); diff != "" {
		t.Errorf("denied: %v", <-denied)
	}
}
