package subscribe_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
)

// TestNodeConsumesEvents runs consumer.mjs while a generation is promoted and the one before is dropped, with
// nothing pending in between: it begins again with the live one. Without Node and its packages the test is skipped.
func TestNodeConsumesEvents(t *testing.T) {
	t.Parallel()
	node, packages := pipelinetest.NodePackages(t, "@nats-io/transport-node@3.4.0", "@nats-io/jetstream@3.4.0", "cloudevents@10.0.0")
	source, err := os.ReadFile("consumer.mjs")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "consumer.mjs")
	if err := os.WriteFile(script, source, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Skip(err)
	}
	server := pipelinetest.NewServer(t)
	js := server.Provision(topology())
	work(t, js)
	pipelinetest.Publish(t, js, prompts("s", "héllo 100%", "two")...)
	var failed bytes.Buffer
	cmd := exec.CommandContext(deadline(t), node, script)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "NATS_URL="+server.URL()), &failed
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	prints := func(want ...string) {
		t.Helper()
		for _, line := range want {
			if !lines.Scan() || lines.Text() != line {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				t.Fatalf("the consumer prints %q, want %q\n%s", lines.Text(), line, &failed)
			}
		}
	}
	const event = "agtrace.event.v1.user_message 0000000000000000000"
	prints("live: v1", event+"1 héllo 100%", event+"2 two")
	if err := promote(deadline(t), js, "b"); err != nil {
		t.Fatal(err)
	}
	if err := replay.Drop(t.Context(), js, "v1"); err != nil {
		t.Fatal(err)
	}
	prints("live: b", event+"1 héllo 100%", event+"2 two")
	pipelinetest.Publish(t, js, prompts("s", "three")...)
	prints(event + "3 three")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}

// TestPagesNameNoGeneration: a command of a page works whichever generation is live.
func TestPagesNameNoGeneration(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"README.md", "../../README.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "    nats ") && (strings.Contains(line, "events.v1") || strings.Contains(line, "EVENTS_v1")) {
				t.Errorf("%s: %s", page, line)
			}
		}
	}
}
