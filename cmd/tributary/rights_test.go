package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline"
	"tributary/pipeline/sessionmeta"
)

// TestRightsOfEachRoleSuffice runs each role with the rights of deploy/README.md alone: it does
// its work, and the server rejects nothing.
func TestRightsOfEachRoleSuffice(t *testing.T) {
	t.Parallel()
	options := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	for user, subjects := range rights(t) {
		subscribe := []string{"_INBOX.>"}
		if user == "run" {
			subscribe = append(subscribe, "tributary.sessions.*", "$SRV.>")
		}
		options.Users = append(options.Users, &server.User{Username: user, Password: "p", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: subjects},
			Subscribe: &server.SubjectPermission{Allow: subscribe},
		}})
	}
	options.Users = append(options.Users, &server.User{Username: "test", Password: "p"})
	broker, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	broker.Start()
	t.Cleanup(func() {
		broker.Shutdown()
		broker.WaitForShutdown()
	})
	home := t.TempDir()
	as := func(user string, args ...string) *process {
		set := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "NATS_USER="+user, "NATS_PASSWORD=p") }
		return startWith(t, set, home, broker.ClientURL(), args...)
	}
	worker := as("run", "run")
	nc, err := nats.Connect(broker.ClientURL(), nats.UserInfo("test", "p"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stored := func(subject string, count uint64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := awaitStored(ctx, js, pipeline.EventsStream("v1"), subject, count); err != nil {
			t.Fatal(err)
		}
	}
	stored("checkpoints.v1.*", 16)
	log := filepath.Join(home, "log.jsonl")
	text := `{"type":"user","uuid":"u1","sessionId":"one","message":{"role":"user","content":"small"}}` + "\n" +
		`{"type":"user","uuid":"u2","sessionId":"one","message":{"role":"user","content":"` + strings.Repeat("large ", 200_000) + `"}}` + "\n" +
		`{"type":"user","uuid":"u3","torn` + "\n"
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	done := func(user string, args ...string) {
		t.Helper()
		p := as(user, args...)
		if code, out := ended(p); code != 0 || strings.Contains(out, "ermissions") {
			t.Errorf("%v: exit code %d\n%.2000s", args, code, out)
		}
	}
	done("ship", "ship", "--once", "--source", "claude_code", log)
	stored("events.v1.>", 2)
	stored("deadletters.v1.>", 1)
	done("tail", "tail", "--once", "-o", "json")
	done("tail", "stats")
	done("tail", "export", "--out", filepath.Join(home, "events"))
	done("tail", "sessions", "ls")
	done("tail", "sessions", "show", "one")
	top := pipeline.DefaultTopology()
	awaitWorkers(t, js, top, func(w []pipeline.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == top.Partitions })
	done("doctor", "doctor")
	done("doctor", "dlq", "show", "3")
	done("doctor", "claims", "ls")
	done("doctor", "dlq", "requeue", "--all")
	stored("deadletters.v1.>", 2)
	done("doctor", "dlq", "purge", "--all", "--yes")
	done("doctor", "claims", "gc", "--older-than", "0s")
	done("replay", "replay", "start", "b")
	done("replay", "replay", "status", "b", "--wait")
	done("replay", "replay", "diff", "v1", "b")
	done("replay", "replay", "promote", "b")
	done("replay", "replay", "rollback")
	done("replay", "replay", "ls")
	done("replay", "replay", "drop", "b", "--yes")
	titleAndWatch(t, broker.ClientURL())
	if code := worker.signal(syscall.SIGTERM); code != 0 || strings.Contains(worker.stderr.String(), "ermissions") {
		t.Errorf("run: exit code %d\n%s", code, worker.stderr.String())
	}
}

// titleAndWatch sets a title, reads it from a snapshot, and finds the service, with the rights
// of a program that does so.
func titleAndWatch(t *testing.T, url string) {
	t.Helper()
	refused := make(chan error, 10)
	nc, err := nats.Connect(url, nats.UserInfo("sessions", "p"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for subject, want := range map[string]string{
		sessionmeta.SubjectPrefix + "set_title": `"applied":true`,
		"$SRV.PING." + sessionmeta.ServiceName:  sessionmeta.ServiceName,
	} {
		m, err := nc.RequestWithContext(ctx, subject, []byte(`{"source":"claude_code","session_id":"one","title":"Mine"}`))
		if err != nil || !strings.Contains(string(m.Data), want) {
			t.Fatalf("%s: %v, %s", subject, err, m.Data)
		}
	}
	for u, err := range sessionmeta.Watch(ctx, js, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if u.Kind == sessionmeta.Snapshot && u.Session.Title != "Mine" {
			t.Errorf("record %+v", u.Session)
		}
		if u.Kind == sessionmeta.Changed {
			break
		}
		if u.Kind == sessionmeta.Synced {
			if _, err := nc.RequestWithContext(ctx, sessionmeta.SubjectPrefix+"set_pinned", []byte(`{"source":"claude_code","session_id":"one","pinned":true}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case err := <-refused:
		t.Error(err)
	default:
	}
}

// rights returns the subjects of deploy/README.md, by the first command of each row.
func rights(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(deployPage)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "| role | publishes to |\n|---|---|\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	code := regexp.MustCompile("`([^`]+)`")
	all := map[string][]string{}
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		role := code.FindStringSubmatch(cells[1])[1]
		for _, subject := range code.FindAllStringSubmatch(cells[2], -1) {
			all[role] = append(all[role], subject[1])
		}
	}
	if len(all) != 6 {
		t.Fatalf("rights of %d, want 6: %v", len(all), all)
	}
	return all
}
