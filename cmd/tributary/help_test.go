package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// examples returns the lines of the examples of all commands, without their explanations.
func examples(t *testing.T) []string {
	t.Helper()
	c, wrong := loadConfig()
	if wrong != nil {
		t.Fatal(wrong)
	}
	a := &app{config: c, stdout: io.Discard, stderr: io.Discard}
	explanation := regexp.MustCompile(`\s{3,}.*$`)
	var lines []string
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			lines = append(lines, explanation.ReplaceAllString(strings.TrimSpace(line), ""))
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(a.rootCommand(new(bool)))
	return lines
}

// shell returns a command line of a shell that finds tributary, with a home of its own.
func shell(ctx context.Context, t *testing.T, dir, url, line string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "tributary")); err != nil { // TestMain runs the program under this name
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TZ=UTC", "NATS_URL=" + url}
	return cmd
}

// TestExamplesOfHelpHaveValidFlags asks for the help of each example as it is written: flags are
// parsed before that. A shell divides the lines into words.
func TestExamplesOfHelpHaveValidFlags(t *testing.T) {
	t.Parallel()
	lines := examples(t)
	if len(lines) < 20 {
		t.Errorf("%d examples", len(lines))
	}
	const end = "\n\x00"
	var script strings.Builder
	script.WriteString(`tributary() { printf '%s\0' "$@"; printf '\n\0'; }`)
	for _, line := range lines {
		script.WriteString("\n" + regexp.MustCompile(` *(\||<|>|&&).*`).ReplaceAllString(line, "") + " --help") // tributary alone
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-ec", script.String()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	commands := strings.Split(strings.TrimSuffix(string(out), end), end)
	if len(commands) != len(lines) {
		t.Fatalf("%d commands of %d examples", len(commands), len(lines))
	}
	for i, words := range commands {
		c, wrong := loadConfig()
		if wrong != nil {
			t.Fatal(wrong)
		}
		root := (&app{config: c, stdout: io.Discard, stderr: io.Discard}).rootCommand(new(bool))
		root.SetArgs(strings.Split(strings.TrimSuffix(words, "\x00"), "\x00"))
		if err := root.Execute(); err != nil {
			t.Errorf("%s: %v", lines[i], err)
		}
	}
}

// TestEveryCommandRunsBesideServicesOfKubernetes checks that the script of Kubernetes has every command
// that help shows.
func TestEveryCommandRunsBesideServicesOfKubernetes(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("testdata", "script", "kubernetes.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	c, wrong := loadConfig()
	if wrong != nil {
		t.Fatal(wrong)
	}
	root := (&app{config: c, stdout: io.Discard, stderr: io.Discard}).rootCommand(new(bool))
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Runnable() && !cmd.Hidden && !cmd.HasSubCommands() && !strings.Contains(string(script), cmd.CommandPath()) {
			t.Errorf("%s is not in the script", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// TestExamplesOfHelpPrintSomething runs the examples of tail and normalize on the samples. Those that
// follow are ended when they have printed something.
func TestExamplesOfHelpPrintSomething(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip(err)
	}
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	home, dir := t.TempDir(), t.TempDir()
	start(t, home, server.URL(), "run")
	// The session of the examples, now and in their past.
	const session = "0b6a7f58-2c1d-4e0f-8a3b-9c5d7e6f1a20"
	now := time.Now().UTC().Format(time.RFC3339)
	var log strings.Builder
	for _, at := range []string{"2026-03-09T09:00:00Z", now} {
		log.WriteString(strings.NewReplacer("0b6a7f58", session, "2026-03-09T09:00:00.000Z", at, "u1", "u"+at, "hello", "an Error").Replace(hello))
		log.WriteString(`{"type":"assistant","uuid":"a` + at + `","sessionId":"` + session + `","timestamp":"` + at + `","message":{"id":"m` + at + `","role":"assistant","content":[{"type":"tool_use","id":"t` + at + `","name":"Bash","input":{"command":"ls"}}]}}` + "\n")
		log.WriteString(`{"type":"user","uuid":"r` + at + `","sessionId":"` + session + `","timestamp":"` + at + `","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t` + at + `","content":"go.mod"}]}}` + "\n")
	}
	write(t, filepath.Join(dir, "session.jsonl"), log.String())
	edge := start(t, home, server.URL(), "ship", "--once", filepath.Join(dir, "session.jsonl"))
	if code := edge.wait(); code != 0 {
		t.Fatalf("ship: exit code %d\n%s", code, &edge.stderr)
	}
	if err := replay.CatchUp(t.Context(), js, streams.DefaultTopology()); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, line := range examples(t) {
		if !strings.HasPrefix(line, "tributary tail") && !strings.HasPrefix(line, "tributary normalize") {
			continue
		}
		ran++
		if strings.Contains(line, "-n 0 -f") {
			continue // there is nothing new: see TestTailFollows
		}
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			work := t.TempDir()
			write(t, filepath.Join(work, "session.jsonl"), log.String())
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			follows := strings.HasPrefix(line, "tributary tail") && !regexp.MustCompile(`--once|-n |--until`).MatchString(line)
			if follows {
				line = "exec " + line // without a shell that outlives it
			}
			cmd := shell(ctx, t, work, server.URL(), line)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			out := make([]byte, 1)
			n, _ := io.ReadFull(stdout, out)
			if follows {
				cancel() // it would never end
			}
			rest, _ := io.ReadAll(stdout)
			printed := string(out[:n]) + string(rest)
			if err := cmd.Wait(); err != nil && !follows {
				t.Errorf("%v\n%s", err, &stderr)
			}
			if _, file, redirected := strings.Cut(line, ">"); redirected {
				data, err := os.ReadFile(filepath.Join(work, strings.TrimSpace(file)))
				if err != nil {
					t.Error(err)
				}
				n = len(data)
			}
			if n == 0 && stderr.Len() == 0 { // validate reports on standard error alone
				t.Errorf("nothing is printed\n%s", &stderr)
			}
			if strings.Contains(line, "group_by") {
				if got := strings.Count(printed, "an Error"); got != 2 {
					t.Errorf("2 prompts are printed %d times:\n%s", got, printed)
				}
				if got := strings.Count(printed, "\nls\n"); got != 2 {
					t.Errorf("2 tools are printed %d times:\n%s", got, printed)
				}
			}
		})
	}
	if ran < 10 {
		t.Errorf("%d examples", ran)
	}
}
