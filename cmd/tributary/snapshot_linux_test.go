package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// masks replace what is different in each run: times of the clock, ages, and names that are drawn.
// Times of events, which the samples state, stay.
var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`data in \S+`), "data in DIR"},
	{regexp.MustCompile(`(?m)^broker +\S+ \d+\.\d+\.\d+`), "broker        SERVER VERSION"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`), "YYYY-MM-DD hh:mm:ss"}, // when the broker stored something
	{regexp.MustCompile(`\b([0-9.]+(h|m|s|ms))+ ago`), "AGE ago"},
	{regexp.MustCompile(`(?m)^last error +worker-1, AGE ago: (?:.*\n {14})*?.*no\s+answer\s+of\s+the\s+broker\s+to.*\n(?: {14}.*\n)*`), ""}, // a machine may be slow for a moment
	{regexp.MustCompile(`nats://127\.0\.0\.1:\d+`), "nats://SERVER"},
	{regexp.MustCompile(`\d+(\.\d+)? [KM]iB/s`), "RATE"},
	{regexp.MustCompile(`(?m)^((?:b|v1) +(?:live|ready) +)\d+`), "${1}N"}, // the revision
	{regexp.MustCompile(`(?m)^STREAM +MESSAGES +SIZE +REPLICAS`), "STREAM  MESSAGES  SIZE  REPLICAS"},
	{regexp.MustCompile(`(?m)^((RAW|EVENTS|OBJ|SESSIONS|SUMMARIES|KV)\w*) +[\d,]+ +\S+ [KMG]?i?B +`), "$1  MESSAGES  SIZE  "},
	{regexp.MustCompile(`(?m)^EDGE +VERSION +STATE +SEEN +FILES`), "EDGE  VERSION  STATE  SEEN  FILES"},
	{regexp.MustCompile(`(?m)^\S+\.[0-9a-f]{8}  +\S+  +(\w+)  +AGE ago +`), "HOST.ID  VERSION  $1  AGE ago  "},
}

// TestTerminalShowsWhatItIsMeantTo compares what commands show on terminals of 80 columns and more,
// with colours and without, with the files of testdata/terminal, which -update rewrites. The
// escape character is written as ␛.
func TestTerminalShowsWhatItIsMeantTo(t *testing.T) {
	t.Parallel()
	top := streams.DefaultTopology()
	top.Partitions = 1 // the events have the order of the records
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	home, logs := t.TempDir(), t.TempDir()
	setup := func(c *exec.Cmd) { c.Env = append(c.Env, "TRIBUTARY_PARTITIONS=1", "TRIBUTARY_WORKER=worker-1") }
	startWith(t, setup, home, server.URL(), "run")
	if _, err := copySamples(logs); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(logs, "last", "0b6a7f58.jsonl"), hello+`{"type":"user",oops}`+"\n"+`{"type":"user","uuid":[]}`+"\n"+again)
	err := filepath.WalkDir(logs, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		edge := startWith(t, setup, home, server.URL(), "ship", "--once", path) // one after the other
		if code := edge.wait(); code != 0 {
			t.Fatalf("ship %s: exit code %d\n%s", path, code, &edge.stderr)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	awaitRecords(t, js, "v1")
	for _, command := range []string{"replay start b --set tool_metadata=current", "replay status b --wait"} {
		if code, out := ended(startWith(t, setup, home, server.URL(), strings.Fields(command)...)); code != 0 {
			t.Fatalf("%s: exit code %d\n%s", command, code, out)
		}
	}
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == 1 })
	for name, c := range map[string]struct {
		code    int
		args    []string
		columns []uint16 // 80 and 120 unless others are named
	}{
		"up":          {0, []string{"up", "--samples", "--once", "--listen", ""}, nil},
		"tail":        {0, []string{"tail", "-n", "60"}, nil},
		"dlq-ls":      {0, []string{"dlq", "ls"}, nil},
		"dlq-groups":  {0, []string{"dlq", "ls", "--group"}, nil},
		"doctor":      {0, []string{"doctor"}, nil},
		"trace":       {0, []string{"trace", "6a1f2c9e"}, nil},
		"stats":       {0, []string{"stats", "--by", "model,project", "--tz", "UTC"}, []uint16{80, 120, 140}},
		"sessions":    {0, []string{"sessions", "ls"}, []uint16{80, 120, 140}},
		"read":        {0, []string{"sessions", "read", "6a1f2c9e"}, []uint16{80, 140}},
		"read-grep":   {0, []string{"sessions", "read", "6a1f2c9e", "--grep", "balance of bob|swapped", "--full"}, []uint16{80}},
		"replay-ls":   {0, []string{"replay", "ls"}, []uint16{80, 120}},
		"replay-diff": {1, []string{"replay", "diff", "v1", "b"}, []uint16{80, 140}},
		"help-replay": {0, []string{"replay", "diff", "--help"}, []uint16{80}},
		"help-trace":  {0, []string{"trace", "--help"}, []uint16{80}},
	} {
		if c.columns == nil {
			c.columns = []uint16{80, 120}
		}
		for _, columns := range c.columns {
			for _, plain := range []bool{false, true} {
				file := fmt.Sprintf("%s-%d.txt", name, columns)
				if plain {
					file = fmt.Sprintf("%s-%d-plain.txt", name, columns)
				}
				t.Run(file, func(t *testing.T) {
					t.Parallel()
					code, got := onTerminal(t, columns, func(c *exec.Cmd) {
						setup(c)
						c.Env = append(c.Env, "PAGER=cat", "PATH="+os.Getenv("PATH"))
						if plain {
							c.Env = append(c.Env, "NO_COLOR=1")
						}
					}, home, server.URL(), c.args...)
					if code != c.code {
						t.Errorf("exit code %d, want %d", code, c.code)
					}
					if plain && strings.Contains(got, "␛") {
						t.Error("a plain terminal gets escape sequences")
					}
					compareWithFile(t, filepath.Join("testdata", "terminal", file), got)
				})
			}
		}
	}
}

// TestReadShowsTheConversationInThePager has pagers that change what they show, that the reader leaves early, and that
// are missing.
func TestReadShowsTheConversationInThePager(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	home := t.TempDir()
	none := func(*exec.Cmd) {}
	startWith(t, none, home, server.URL(), "run")
	write(t, filepath.Join(home, "0b6a7f58.jsonl"), hello)
	if code := startWith(t, none, home, server.URL(), "ship", "--once", filepath.Join(home, "0b6a7f58.jsonl")).wait(); code != 0 {
		t.Fatalf("ship: exit code %d", code)
	}
	awaitSubject(t, js, "events.v1.>", 1)
	for pager, want := range map[string]string{
		"sed 's/^Turn/TURN/'":         "TURN 1",
		"head -n 1":                   "claude_code 0b6a7f58",
		"tributary-has-no-such-pager": "", // the shell says what is missing
	} {
		t.Run(pager, func(t *testing.T) {
			t.Parallel()
			setup := func(c *exec.Cmd) { c.Env = append(c.Env, "NO_COLOR=1", "PAGER="+pager, "PATH="+os.Getenv("PATH")) }
			code, shown := onTerminal(t, 80, setup, home, server.URL(), "sessions", "read", "0b6a7f58")
			if missing := want == ""; (code != 0) != missing || !strings.Contains(shown, want) {
				t.Errorf("exit code %d, the terminal shows %q", code, shown)
			}
		})
	}
}

// TestIDsOnATerminalNameOneSession lists some of the sessions whose ids begin alike: other commands accept the ids.
func TestIDsOnATerminalNameOneSession(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	home := t.TempDir()
	start(t, home, server.URL(), "run")
	logs := filepath.Join(home, "logs")
	for _, id := range []string{"0b6a7f58-one", "0b6a7f58-two"} {
		write(t, filepath.Join(logs, id+".jsonl"), strings.ReplaceAll(hello, "0b6a7f58", id))
	}
	write(t, filepath.Join(logs, "qwen.jsonl"), `{"uuid":"u1","parentUuid":null,"sessionId":"0b6a7f58-of-qwen","timestamp":"2026-03-09T09:00:00Z","type":"user","message":{"role":"user","parts":[{"text":"x"}]}}`+"\n")
	if code, out := finish(t, home, server.URL(), "ship", "--once", logs); code != 0 {
		t.Fatalf("ship: exit code %d\n%s", code, out)
	}
	awaitSubject(t, js, "events.v1.>", 3)
	plain := func(c *exec.Cmd) { c.Env = append(c.Env, "NO_COLOR=1") }
	for _, flag := range []string{"--limit=1", "--source=qwen"} {
		_, shown := onTerminal(t, 80, plain, home, server.URL(), "sessions", "ls", flag)
		_, rows, _ := strings.Cut(shown, "\n")
		id, _, _ := strings.Cut(rows, " ")
		if code, out := finish(t, home, server.URL(), "sessions", "show", id); code != 0 || id == "" {
			t.Errorf("sessions ls %s shows %q, with which sessions show ends with %d\n%s\n%s", flag, id, code, shown, out)
		}
	}
}

// onTerminal runs a command to its end on a terminal, and returns what the terminal shows in the
// end, masked.
func onTerminal(t *testing.T, columns uint16, setup func(*exec.Cmd), home, url string, args ...string) (code int, shown string) {
	t.Helper()
	near, far := openTerminal(t)
	if err := unix.IoctlSetWinsize(int(far.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: columns}); err != nil {
		t.Fatal(err)
	}
	p := startWith(t, func(c *exec.Cmd) {
		c.Stdout, c.Stderr = far, far
		setup(c)
	}, home, url, args...)
	far.Close()
	all, _ := io.ReadAll(near) // ends with an error when the process does
	var lines strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(string(all), "\r\n", "\n")) {
		if at := strings.LastIndex(line, terminal.ClearLine); at >= 0 {
			line = line[at+len(terminal.ClearLine):]
		}
		lines.WriteString(line)
	}
	text := strings.ReplaceAll(lines.String(), "\x1b", "␛")
	for _, m := range masks {
		text = m.pattern.ReplaceAllString(text, m.with)
	}
	return p.wait(), text
}
