package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
)

// follower is a process that follows the live generation.
type follower struct {
	*process

	name string
	got  func() []string // the texts of the events that it has, in their order
}

// linesOf returns a follower whose events are the texts in the lines that it prints.
func linesOf(name string, p *process) *follower {
	var texts []string
	return &follower{p, name, func() []string {
		for {
			select {
			case line, open := <-p.lines:
				if !open {
					return texts
				}
				texts = append(texts, eventText.FindAllString(line, -1)...)
			default:
				return texts
			}
		}
	}}
}

// watchOf returns a watch of sessions, whose events are the last prompts of the one that is there. Its first event is the
// one that was there before.
func watchOf(t *testing.T, home, url string) *follower {
	t.Helper()
	p := start(t, home, url, "sessions", "watch", "--every", "50ms", "-o", "json")
	prompts := []string{"event-0"}
	return &follower{p, "sessions watch", func() []string {
		for {
			select {
			case line := <-p.lines:
				var s sessionView
				if err := json.Unmarshal([]byte(line), &s); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				prompts = append(prompts, s.LastPrompt)
			default:
				return prompts
			}
		}
	}}
}

// exportOf returns an export, whose events are those in its files, in the order of their stream.
func exportOf(t *testing.T, home, url string) *follower {
	t.Helper()
	dir := filepath.Join(home, "files")
	p := start(t, home, url, "export", "--follow", "--every", "50ms", "--format", "jsonl", "--out", dir)
	return &follower{p, "export", func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "month=*", "source=*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		type row struct {
			Sequence uint64 `json:"stream_sequence"`
			Text     string `json:"text"`
		}
		var rows []row
		for _, name := range names {
			data, _ := os.ReadFile(name) // it may be removed just now
			for line := range strings.Lines(string(data)) {
				var r row
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				rows = append(rows, r)
			}
		}
		slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.Sequence, b.Sequence) })
		var texts []string
		for _, r := range rows {
			texts = append(texts, r.Text)
		}
		return texts
	}}
}

// consume is the program consumer, which subscribes to the events and prints them.
func consume() {
	run := func() error {
		nc, err := nats.Connect(os.Getenv("NATS_URL"))
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		s, err := subscribe.New(js, subscribe.Config{Name: "consumer", GenerationChanged: func(context.Context, subscribe.GenerationChanged) error {
			fmt.Println("discard")
			return nil
		}})
		if err != nil {
			return err
		}
		interrupts := make(chan os.Signal, 1)
		signal.Notify(interrupts, syscall.SIGINT)
		go func() {
			<-interrupts
			s.Drain()
		}()
		return s.Run(context.Background(), func(_ context.Context, e subscribe.Event) error {
			_, err := fmt.Println(*e.Text)
			return err
		})
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// nodeOf returns a process of the consumer in Node of the package subscribe, whose events are those that it has printed since
// it began again; nil without Node.
func nodeOf(t *testing.T, home, url string) *follower {
	t.Helper()
	var node, packages string
	t.Run("node", func(t *testing.T) {
		node, packages = pipelinetest.NodePackages(t, "@nats-io/transport-node@3.4.0", "@nats-io/jetstream@3.4.0", "cloudevents@10.0.0")
	})
	if node == "" {
		return nil
	}
	code, err := os.ReadFile(filepath.Join("..", "..", "pipeline", "subscribe", "consumer.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(home, "node", "consumer.mjs")
	write(t, script, string(code))
	if err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(home, "node", "node_modules")); err != nil {
		t.Fatal(err)
	}
	p := startWith(t, func(c *exec.Cmd) { c.Path, c.Args = node, []string{node, script} }, home, url)
	var texts []string
	return &follower{p, "node", func() []string {
		for {
			select {
			case line := <-p.lines:
				if strings.HasPrefix(line, "live: ") {
					texts = nil
				}
				texts = append(texts, eventText.FindAllString(line, -1)...)
			default:
				return texts
			}
		}
	}}
}

// consumerOf returns a process of consume, whose events are those that it has printed since it discarded some.
func consumerOf(t *testing.T, home, url string) *follower {
	t.Helper()
	p := startWith(t, func(c *exec.Cmd) { c.Args = []string{"consumer"} }, home, url)
	var texts []string
	return &follower{p, "consumer", func() []string {
		for {
			select {
			case line := <-p.lines:
				if texts = append(texts, line); line == "discard" {
					texts = nil
				}
			default:
				return texts
			}
		}
	}}
}

var eventText = regexp.MustCompile(`event-\d+`)

// has waits until the follower has exactly these events.
func (f *follower) has(want []string) {
	f.t.Helper()
	limit, look := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer look.Stop()
	for !slices.Equal(f.got(), want) {
		select {
		case <-look.C:
		case <-limit:
			f.t.Fatalf("%s has other events (-want +got):\n%s\n%s", f.name, gocmp.Diff(want, f.got()), &f.stderr)
		}
		if !f.running() {
			f.t.Fatalf("%s has ended\n%s", f.name, &f.stderr)
		}
	}
}

// TestCommandsFollowTheLiveGeneration writes to a log while a generation is promoted, the promotion is rolled back, and a
// retired generation is dropped: every process goes on with the live one, and has each event once.
func TestCommandsFollowTheLiveGeneration(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	log := filepath.Join(home, ".claude", "projects", "app", "one.jsonl")
	var sent []string
	send := func() {
		t.Helper()
		text := fmt.Sprintf("event-%d", len(sent))
		sent = append(sent, text)
		write(t, log, fmt.Sprintf(`{"type":"user","uuid":"u%d","sessionId":"one","timestamp":"2026-03-09T09:00:%02dZ","message":{"role":"user","content":%q}}`+"\n", len(sent), len(sent), text))
	}
	send()
	up := start(t, home, "", "up", "--listen", "127.0.0.1:0")
	up.awaitLogged("caught up, following: 1 event of 1 session")
	_, url, _ := strings.Cut(up.logged("broker at "), "broker at ")
	url, _, _ = strings.Cut(url, ",")
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	worker := start(t, home, url, "run")
	awaitWorkers(t, js, streams.DefaultTopology(), func(w []streams.Worker) bool { return len(w) == 2 && len(w[0].Partitions) == len(w[1].Partitions) })
	awaitRecords(t, js, "v1") // else the watch prints the session as it is now
	followers := []*follower{
		linesOf("up", up),
		linesOf("tail", start(t, home, url, "tail", "-f", "-n", "5", "-o", "json", "--fields", "text")),
		watchOf(t, home, url),
		exportOf(t, home, url),
		consumerOf(t, home, url),
	}
	if node := nodeOf(t, home, url); node != nil {
		followers = append(followers, node)
	}
	all := func() {
		t.Helper()
		for _, f := range followers {
			f.has(sent)
		}
	}
	replay := func(args ...string) {
		t.Helper()
		if code, out := finish(t, home, url, append([]string{"replay"}, args...)...); code != 0 {
			t.Fatalf("%v: exit code %d\n%s", args, code, out)
		}
	}
	all()
	awaitReader(t, js)
	send()
	all()
	replay("start", "b")
	replay("promote", "b", "--wait")
	send() // it may be that nobody has noticed yet
	all()
	replay("rollback")
	send()
	all()
	send()
	all()
	replay("start", "b")
	replay("promote", "b", "--wait")
	replay("drop", "v1", "--yes")
	send()
	all()
	send()
	all()
	if lines := strings.Count(worker.stderr.String(), "another generation is live: "); lines != 3 {
		t.Errorf("%d lines say that another generation is live\n%s", lines, &worker.stderr)
	}
	for _, p := range []*process{worker, up} {
		for line := range strings.Lines(p.stderr.String()) {
			slow := strings.Contains(line, "no answer") || strings.Contains(line, "timeout") || strings.Contains(line, "deadline exceeded") // of the broker
			if strings.Contains(line, "level=ERROR") || strings.Contains(line, "level=WARN") && !slow {
				t.Errorf("%v warns of what was meant: %s\n%s", p.cmd.Args, line, &p.stderr)
			}
		}
	}
	worker.signal(syscall.SIGTERM)
	for _, f := range slices.Backward(followers) {
		if slices.Contains([]string{"up", "tail", "sessions watch"}, f.name) && strings.Count(f.stderr.String(), " is live instead of ") != 3 {
			t.Errorf("%s does not say three times that another generation is live\n%s", f.name, &f.stderr)
		}
		if code := f.signal(syscall.SIGINT); code != 0 && code != 130 && f.name != "node" {
			t.Errorf("%s: exit code %d\n%s", f.name, code, &f.stderr)
		}
	}
}
