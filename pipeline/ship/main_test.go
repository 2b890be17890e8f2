package ship_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/ship"
)

var limitsLarge = flag.Bool("limits.large", false, "run the tests of limits at their full size: a line of 1 GiB, 64 records of 20 MB")

// TestMain runs the tests and checks that they leave no goroutine. In the processes that a
// test starts in order to kill them, it ships instead.
func TestMain(m *testing.M) {
	if path := os.Getenv(writerDatabase); path != "" {
		os.Exit(runDatabaseWriter(path))
	}
	if root := os.Getenv(victimRoot); root != "" {
		os.Exit(victim(ship.Root{Source: envelopes.ClaudeCode, Dir: root, Suffixes: []string{".jsonl"}}))
	}
	if path := os.Getenv(victimDatabase); path != "" {
		os.Exit(victim(databaseRoot(path)))
	}
	if code, is := pipelinetest.RunProgram(map[string]pipelinetest.Program{edgeProgram: runEdge}); is {
		os.Exit(code)
	}
	pipelinetest.Configure()
	goleak.VerifyTestMain(m, pipelinetest.ServerLeaks()...)
}
