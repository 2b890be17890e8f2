package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"tributary/pipeline/claims"
	"tributary/pipeline/embedded"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// jsonLog is a session with a prompt, an answer with its tokens, a call that fails, and a record that cannot be read.
const jsonLog = hello +
	`{"type":"assistant","uuid":"a1","parentUuid":"u1","sessionId":"0b6a7f58","cwd":"/home/ada/app","timestamp":"2026-03-09T09:00:02.000Z","message":{"id":"m1","model":"claude-opus-4-5","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"go test ./..."}}],"usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":40}}}` + "\n" +
	`{"type":"user","uuid":"r1","parentUuid":"a1","sessionId":"0b6a7f58","cwd":"/home/ada/app","timestamp":"2026-03-09T09:00:09.000Z","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"FAIL"}]},"toolUseResult":{"type":"create","filePath":"/home/ada/app/a.go","content":"package a"}}` + "\n" +
	`{"type":"user",oops}` + "\n"

// TestJSONOfCommandsKeepsItsFields compares the names of the members that every command with -o json prints with
// testdata/json/fields.txt, which -update rewrites: programs read them, so a change has to be meant.
func TestJSONOfCommandsKeepsItsFields(t *testing.T) {
	t.Parallel()
	top := streams.DefaultTopology()
	server := pipelinetest.NewServer(t, func(c *embedded.Config) { c.MaxPayload = 1 << 20 })
	js := server.Provision(top)
	home := t.TempDir()
	log := filepath.Join(home, "0b6a7f58.jsonl")
	large := strings.NewReplacer(`"hello"`, `"`+strings.Repeat("x", 700<<10)+`"`, "u1", "u3").Replace(hello) // an object of its own
	write(t, log, jsonLog+large)
	unread := filepath.Join(home, "unread.jsonl")
	write(t, unread, strings.Replace(hello, `"type"`, `"moon":1,"type"`, 1))
	wrong, older, newer := filepath.Join(home, "wrong.jsonl"), filepath.Join(home, "older.json"), filepath.Join(home, "newer.json")
	write(t, wrong, `{"schema_version":"agtrace.event.v1"}`+"\n")
	write(t, older, strings.Replace(string(output(t, 0, "schema", "print")), `"session_id"`, `"session"`, 1))
	write(t, newer, string(output(t, 0, "schema", "print")))

	start(t, home, server.URL(), "run")
	for _, command := range [][]string{{"ship", "--once", log}, {"ship", "--once", claudeLog(t, "erased")}, {"replay", "start", "b", "--set", "tool_metadata=current"}, {"replay", "status", "b", "--wait"}} {
		if code, out := finish(t, home, server.URL(), command...); code != 0 {
			t.Fatalf("%v: exit code %d\n%s", command, code, out)
		}
	}
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	awaitRecords(t, js, "v1")
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == top.Partitions })
	if _, err := claims.NewStore(js).Put(t.Context(), []byte("of no record")); err != nil {
		t.Fatal(err)
	}
	if code, out := finish(t, home, server.URL(), "erase", "--session", "claude_code/one", "--yes"); code != 0 {
		t.Fatalf("erase: exit code %d\n%s", code, out)
	}
	awaitRecords(t, js, "v1")
	watch := start(t, home, server.URL(), "sessions", "watch", "-o", "json")
	commands := map[string][]string{ // the arguments of each
		"agents":          nil,
		"claims gc":       {"--older-than", "0s", "--dry-run"},
		"claims ls":       nil,
		"dlq ls":          nil,
		"dlq requeue":     {"--all", "--dry-run"},
		"dlq show":        {"4"},
		"doctor":          nil,
		"drift":           {unread},
		"erase ls":        nil,
		"replay diff":     {"v1", "b"},
		"replay ls":       nil,
		"replay status":   {"b"},
		"schema diff":     {older, newer},
		"schema validate": {wrong},
		"sessions ls":     nil,
		"sessions read":   {"0b6a7f58"},
		"sessions show":   {"0b6a7f58"},
		"sessions watch":  nil,
		"stats":           nil,
		"tail":            {"--once"},
		"trace":           {"0b6a7f58"},
	}
	requireAllWithJSON(t, commands)
	var text strings.Builder
	for _, command := range slices.Sorted(maps.Keys(commands)) {
		var out, messages string
		if command == "sessions watch" {
			write(t, log, again)
			if code, out := finish(t, home, server.URL(), "ship", "--once", log); code != 0 {
				t.Fatalf("ship: exit code %d\n%s", code, out)
			}
			lines := []string{watch.expect("{")}
			watch.signal(syscall.SIGINT)
			for line := range watch.lines {
				lines = append(lines, line)
			}
			out, messages = strings.Join(lines, "\n"), watch.stderr.String()
		} else {
			var code int
			code, out, messages = inProcess(t, home, server.URL(), slices.Concat(strings.Fields(command), commands[command], []string{"-o", "json"})...)
			if code != 0 && code != exitFailure && code != exitPartly {
				t.Fatalf("%s: exit code %d\n%s", command, code, messages)
			}
		}
		fields := jsonFields(t, []byte(out))
		if len(fields) == 0 {
			t.Errorf("%s prints no field: %s\n%s", command, out, messages)
		}
		text.WriteString("tributary " + command + " -o json\n")
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			text.WriteString("  " + field + "\n")
		}
	}
	compareWithFile(t, filepath.Join("testdata", "json", "fields.txt"), text.String())
}

// requireAllWithJSON checks that commands are all that print JSON by their flag -o.
func requireAllWithJSON(t *testing.T, commands map[string][]string) {
	t.Helper()
	c, wrong := loadConfig()
	if wrong != nil {
		t.Fatal(wrong)
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := strings.TrimPrefix(cmd.CommandPath(), "tributary ")
		if f := cmd.Flags().Lookup("output"); f != nil && strings.Contains(f.Usage, "json") {
			if _, ok := commands[path]; !ok {
				t.Errorf("%s has -o json and is not here", path)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&app{config: c, stdout: io.Discard, stderr: io.Discard}).rootCommand(new(bool)))
}

// jsonFields returns the paths of the members of JSON values, and of the elements of lists. What agents write and the headers
// of messages are not looked into, and troubles of workers are left out: a slow machine has them.
func jsonFields(t *testing.T, text []byte) map[string]bool {
	t.Helper()
	foreign := []string{"raw", "metadata", "tool_metadata", "headers"}
	fields := make(map[string]bool)
	decoder := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(false))
	var value func(path string)
	value = func(path string) {
		token, err := decoder.ReadToken()
		if err != nil {
			t.Fatalf("%v in %.500s", err, text)
		}
		switch token.Kind() {
		case jsontext.KindBeginObject:
			for decoder.PeekKind() != jsontext.KindEndObject {
				name, err := decoder.ReadToken()
				if err != nil {
					t.Fatalf("%v in %.500s", err, text)
				}
				field := strings.TrimPrefix(path+"."+name.String(), ".")
				if !strings.HasPrefix(field, "answers[].error") && !strings.HasPrefix(field, "answers[].not_ready") {
					fields[field] = true
				}
				if slices.Contains(foreign, name.String()) {
					_ = decoder.SkipValue() // the next token fails, too
					continue
				}
				value(field)
			}
			_, _ = decoder.ReadToken() // the end, which was seen
		case jsontext.KindBeginArray:
			for decoder.PeekKind() != jsontext.KindEndArray {
				value(path + "[]")
			}
			_, _ = decoder.ReadToken()
		default: // a string, a number, true, false or null
			if strings.HasSuffix(path, "[]") { // of a list, so that one that is printed as null or empty shows
				fields[path] = true
			}
		}
	}
	for {
		if decoder.PeekKind() == 0 {
			if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
				t.Fatalf("%v in %.500s", err, text)
			}
			return fields
		}
		value("")
	}
}
