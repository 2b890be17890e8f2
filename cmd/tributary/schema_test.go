package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/envelopes/schema"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// TestSchemasPassTheToolsOfOthers compiles every schema with Ajv in strict mode, and checks the
// AsyncAPI document with the official parser. Without Node and its packages it is skipped.
func TestSchemasPassTheToolsOfOthers(t *testing.T) {
	t.Parallel()
	node, packages := pipelinetest.NodePackages(t, "ajv@8.20.0", "ajv-formats@3.0.1", "@asyncapi/parser@3.6.3")
	dir := t.TempDir()
	for _, form := range schema.Forms {
		write(t, filepath.Join(dir, string(form)+".json"), string(form.Producer()))
		write(t, filepath.Join(dir, string(form)+".consumer.json"), string(form.Consumer()))
	}
	document, err := json.Marshal(asyncDocument(t))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "asyncapi.json"), string(document))
	out, err := exec.CommandContext(t.Context(), node, "testdata/schemas.mjs", packages, dir).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// asyncDocument returns the AsyncAPI document, as it is read.
func asyncDocument(t *testing.T) map[string]any {
	t.Helper()
	document, err := asyncAPI("nats://ada:secret@broker.example:4222")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "secret") {
		t.Error("the document has the password of the server")
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// at returns a part of a document.
func at(t *testing.T, document any, path ...string) any {
	t.Helper()
	for _, name := range path {
		document = document.(map[string]any)[name]
	}
	if document == nil {
		t.Fatalf("the document has no %s", strings.Join(path, "/"))
	}
	return document
}

// asyncMessage is a message of the document that can be checked.
type asyncMessage struct {
	name             string
	headers, payload *schema.Validator
	isJSON           bool
}

// asyncMessagesOf returns the messages of each address, as an expression for subjects. Headers that a
// message does not name are refused.
func asyncMessagesOf(t *testing.T) map[string][]asyncMessage {
	t.Helper()
	document := asyncDocument(t)
	compile := func(part any, closed bool) *schema.Validator {
		s := maps.Clone(part.(map[string]any))
		if closed {
			s["additionalProperties"] = false
		}
		s["$defs"] = at(t, document, "components", "schemas")
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		v, err := schema.NewValidator([]byte(strings.ReplaceAll(string(text), "#/components/schemas/", "#/$defs/")))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	out := map[string][]asyncMessage{}
	for _, channel := range at(t, document, "channels").(map[string]any) {
		address, ok := channel.(map[string]any)["address"].(string)
		if !ok {
			continue // of replies
		}
		subject := "^" + regexp.MustCompile(`\\\{[a-z_]+\\\}`).ReplaceAllString(regexp.QuoteMeta(address), `[^.]+`) + "$"
		for name := range at(t, channel, "messages").(map[string]any) {
			m := at(t, document, "components", "messages", name)
			out[subject] = append(out[subject], asyncMessage{
				name:    name,
				headers: compile(at(t, m, "headers"), true), payload: compile(at(t, m, "payload"), false),
				isJSON: strings.HasSuffix(at(t, m, "contentType").(string), "json"),
			})
		}
	}
	return out
}

// TestAsyncAPIDescribesEveryMessageOnTheBroker runs a worker, ships a log, publishes a record that cannot
// be read and titles a session. Each message that is stored then is one of those of its address.
func TestAsyncAPIDescribesEveryMessageOnTheBroker(t *testing.T) {
	t.Parallel()
	for _, mode := range []envelopes.Mode{envelopes.Binary, envelopes.Structured} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			server := pipelinetest.NewServer(t)
			topology := streams.DefaultTopology()
			topology.Settings.CloudEvents = mode
			js := server.Provision(topology)
			home := t.TempDir()
			startWith(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TRIBUTARY_CLOUDEVENTS="+string(mode)) }, home, server.URL(), "run")
			write(t, filepath.Join(home, "session.jsonl"), hello)
			for _, args := range [][]string{
				{"ship", "--once", filepath.Join(home, "session.jsonl")},
				{"sessions", "title", "0b6a7f58", "A title"},
				{"sessions", "pin", "0b6a7f58"},
			} {
				if args[0] == "sessions" {
					if err := replay.CatchUp(t.Context(), js, topology); err != nil {
						t.Fatal(err)
					}
				} else {
					bad := &nats.Msg{Subject: envelopes.RawSubject(envelopes.Codex, "damaged"), Data: []byte("{"), Header: nats.Header{envelopes.HeaderTime: {"2026-03-09T09:00:00Z"}}}
					if _, err := js.PublishMsg(t.Context(), bad); err != nil {
						t.Fatal(err)
					}
				}
				if code, out := finish(t, home, server.URL(), args...); code != 0 {
					t.Fatalf("%v: exit code %d\n%s", args, code, out)
				}
			}
			found := map[string]int{}
			if err := replay.CatchUp(t.Context(), js, topology); err != nil {
				t.Fatal(err)
			}
			channels := asyncMessagesOf(t)
			for _, stream := range []string{streams.RawStream, streams.EventsStream(topology.Generation), streams.SessionsStream} {
				eachStored(t, js, stream, func(m *jetstream.RawStreamMsg) {
					for subject, messages := range channels {
						if !regexp.MustCompile(subject).MatchString(m.Subject) {
							continue
						}
						name, complaints := messageOf(t, messages, m)
						if found[name]++; name == "" {
							t.Errorf("%s is no message of its address:\n%s", m.Subject, strings.Join(complaints, "\n"))
						}
						return
					}
					t.Errorf("%s is no address", m.Subject)
				})
			}
			want := []string{"deadLetter", "endOfInput", "internal", "record", "sessionMetadata"}
			if mode == envelopes.Binary {
				want = append(want, "event", "titleUpdated", "pinnedUpdated")
			} else {
				want = append(want, "structuredEvent", "structuredChange")
			}
			for _, name := range want {
				if found[name] == 0 {
					t.Errorf("no message %s was stored: %v", name, found)
				}
			}
		})
	}
}

// eachStored calls each with every message of a stream.
func eachStored(t *testing.T, js jetstream.JetStream, name string, each func(*jetstream.RawStreamMsg)) {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for sequence := info.State.FirstSeq; sequence <= info.State.LastSeq; sequence++ {
		m, err := stream.GetMsg(t.Context(), sequence)
		if err == nil { // others are gone
			each(m)
		}
	}
}

// messageOf returns the name of the message that m is, the one that wants most headers.
func messageOf(t *testing.T, messages []asyncMessage, m *jetstream.RawStreamMsg) (name string, complaints []string) {
	t.Helper()
	headers := map[string]string{}
	for key, values := range m.Header {
		headers[key] = values[0]
	}
	for _, name := range []string{jetstream.StreamHeader, jetstream.SequenceHeader, jetstream.SubjectHeader, jetstream.TimeStampHeaer} {
		delete(headers, name) // of the answer with the message
	}
	text, err := json.Marshal(headers)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(messages, func(a, b asyncMessage) int { return strings.Compare(a.name, b.name) })
	for _, candidate := range messages {
		violations := candidate.headers.Check(text)
		if candidate.isJSON {
			violations = append(violations, candidate.payload.Check(m.Data)...)
		}
		if len(violations) == 0 {
			return candidate.name, nil
		}
		complaints = append(complaints, fmt.Sprint(candidate.name, violations))
	}
	return "", complaints
}

// TestEveryHeaderOfEventsIsDescribed finds a header that is new.
func TestEveryHeaderOfEventsIsDescribed(t *testing.T) {
	t.Parallel()
	headers, err := eventHeaders()
	if err != nil {
		t.Fatal(err)
	}
	for name := range headers.properties {
		if attributeDescriptions[name] == "" {
			t.Errorf("%s has no description", name)
		}
	}
	if got := headers.properties["ce-dataschema"].(object)["const"]; got != envelopes.DataSchema {
		t.Errorf("dataschema is %v", got)
	}
}
