package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/redact"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// TestDoctorReportsRecordsThatTakeTooMuchWorkToSearch runs doctor after a record could not be searched for secrets
// by a worker.
func TestDoctorReportsRecordsThatTakeTooMuchWorkToSearch(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	rules := filepath.Join(home, "rules.toml")
	// At each x the expression reads on to the end of the text, in vain.
	if err := os.WriteFile(rules, []byte("[[rules]]\nid = \"slow\"\nregex = 'x(?:[^y]*y|)'\nkeywords = ['slow-']\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const key = "a key of the tests, of no value"
	r, err := redact.New(redact.Config{Mode: redact.Secrets, Key: redact.Key(key), Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	top := streams.DefaultTopology()
	top.Settings.Redact, top.Settings.RedactKey, top.Settings.RedactRules = r.Mode(), r.Fingerprint(), r.RulesFingerprint()
	js := server.Provision(top)
	withKey := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TRIBUTARY_REDACT_KEY="+key) }
	startWith(t, withKey, home, server.URL(), "run", "--redact", "--redact-rules", rules)
	data := `{"type":"user","uuid":"slow","message":{"role":"user","content":"slow-` + strings.Repeat("x", 12_000) + `"}}`
	pipelinetest.Publish(t, js, core.Record{Source: envelopes.ClaudeCode, Session: "s", Data: []byte(data)})
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	code, out := finish(t, home, server.URL(), "doctor")
	const problem = "session s of claude_code, takes too much work to search for secrets and is a dead letter without its bytes: tributary dlq requeue 1"
	if code != exitFailure || !strings.Contains(out, problem) || strings.Contains(out, "xxxx") {
		t.Errorf("exit code %d, no %q in\n%s", code, problem, out)
	}
}
