package subscribe_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/pipeline/pipelinetest"
)

// TestREADMEHasTheConsumersOfTheExamples compares the consumers of README.md with those that compile.
func TestREADMEHasTheConsumersOfTheExamples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"example_test.go", "example_nats_test.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		consumer := regexp.MustCompile(`(?s)// consume\w* passes.*?\n}\n`).Find(source)
		if len(consumer) == 0 || !bytes.Contains(page, consumer) {
			t.Errorf("README.md has not this consumer of %s:\n%s", file, consumer)
		}
	}
}

// TestNodeConsumesEvents runs the consumer of README.md. Without Node and its packages the test is
// skipped.
func TestNodeConsumesEvents(t *testing.T) {
	t.Parallel()
	node, packages := pipelinetest.NodePackages(t, "@nats-io/transport-node@3.4.0", "@nats-io/jetstream@3.4.0", "cloudevents@10.0.0")
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)<!-- node -->\n```js\n(.*?)```").FindSubmatch(page)
	if m == nil {
		t.Fatal("README.md has no consumer in Node")
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "consumer.mjs")
	if err := os.WriteFile(script, m[1], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Skip(err)
	}
	server := pipelinetest.NewServer(t)
	store(t, server.Provision(topology()), prompts("s", "héllo 100%", "two")...)
	cmd := exec.CommandContext(t.Context(), node, script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "NATS_URL="+server.URL())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "agtrace.event.v1.user_message 00000000000000000001 héllo 100%\n" +
		"agtrace.event.v1.user_message 00000000000000000002 two\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("the consumer prints (-want +got):\n%s", diff)
	}
}
