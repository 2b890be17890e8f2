package titles_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
)

func changeHasTheKeysOfItsType(t *testing.T) {
	t.Parallel()
	const id = `a b"%` + "\n"
	for _, mode := range []envelopes.Mode{envelopes.Binary, envelopes.Structured} {
		t.Run(string(mode), func(t *testing.T) {
			f := newFixture(t)
			k := f.session(t, id)
			s, err := titles.New(f.js, titles.Config{Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			title, err := s.ApplyGeneratedTitle(t.Context(), k, `A "title"`, titles.SourceFallback, false)
			if err != nil {
				t.Fatal(err)
			}
			pin, err := s.SetPinned(t.Context(), k, true)
			if err != nil {
				t.Fatal(err)
			}
			at := title.UpdatedAt.Format("2006-01-02T15:04:05.999999Z07:00")
			f.requireCloudEvent(t, title, `{"type":"session_title_updated","session_id":"a b\"%\n","title":"A \"title\"","title_version":1,"source":"fallback","updated_at":"`+at+`"}`)
			at = pin.UpdatedAt.Format("2006-01-02T15:04:05.999999Z07:00")
			f.requireCloudEvent(t, pin, `{"type":"session_pinned_updated","session_id":"a b\"%\n","pinned":true,"updated_at":"`+at+`"}`)
		})
	}
	t.Run("as_recorded", func(t *testing.T) {
		root := os.Getenv("TRIBUTARY_GOLDENS")
		if root == "" {
			t.Skip("TRIBUTARY_GOLDENS is not set")
		}
		data, err := os.ReadFile(filepath.Join(root, "session_metadata", "origin", "events.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		f := newFixture(t)
		k := f.session(t, "s1")
		for line := range strings.Lines(string(data)) {
			var want map[string]jsontext.Value
			if err := json.Unmarshal([]byte(line), &want); err != nil {
				t.Fatal(err)
			}
			var c *titles.Change
			if want["pinned"] != nil {
				c, err = f.SetPinned(t.Context(), k, true)
			} else {
				var title string
				var source titles.TitleSource
				convert(t, want["title"], &title)
				convert(t, want["source"], &source)
				c, err = f.ApplyGeneratedTitle(t.Context(), k, title, source, true)
			}
			if err != nil || c == nil {
				t.Fatalf("%+v, %v", c, err)
			}
			convert(t, want["updated_at"], &c.UpdatedAt)
			members(t, "change", c, want)
			var got map[string]jsontext.Value
			convert(t, c, &got)
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// requireCloudEvent requires the message of a change, in its attributes and its data.
func (f *fixture) requireCloudEvent(t *testing.T, c *titles.Change, data string) {
	t.Helper()
	m, err := broker.NextStored(t.Context(), f.js, streams.SessionsStream, "sessions.*.*.changes", c.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	ce, err := envelopes.Decode(m.Header, m.Data)
	if err != nil {
		t.Fatal(err)
	}
	if err := ce.Validate(); err != nil {
		t.Error(err)
	}
	if got := string(ce.Data()); got != data {
		t.Errorf("data %s, want %s", got, data)
	}
	const session = `a b"%25%0A`
	got := []any{ce.ID(), ce.Source(), ce.Type(), ce.Subject(), ce.Time().Equal(c.UpdatedAt), ce.DataContentType(), ce.Extensions()}
	want := []any{
		c.ID, "/sessions/claude_code/a%20b%22%25%0A", "agtrace.session.v1." + string(c.Type), session, true, "application/json",
		map[string]any{"sessionid": session, "partitionkey": session, "sequence": fmt.Sprintf("%020d", c.MetadataVersion)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	read, err := titles.DecodeChange(m)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, read, cmp.AllowUnexported(titles.Change{})); diff != "" {
		t.Errorf("what is read differs:\n%s", diff)
	}
}

// configuredBroker starts a server with the accounts of deploy/nats/acme.conf, and returns how a role
// connects to it.
func configuredBroker(t *testing.T) (as func(role string, more ...nats.Option) jetstream.JetStream) {
	t.Helper()
	page, err := os.ReadFile("../../../deploy/nats/acme.conf")
	if err != nil {
		t.Fatal(err)
	}
	conf, keys := string(page), map[string]nkeys.KeyPair{}
	for _, role := range []string{"STAGE", "OPERATOR", "PRODUCER", "CONSUMER", "SESSIONS"} {
		pair, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		keys[role], conf = pair, strings.ReplaceAll(conf, "$ACME_"+role, public)
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	conf = fmt.Sprintf("listen: \"127.0.0.1:-1\"\njetstream { store_dir: %q }\naccounts {\nSYS { exports: [ { service: \"$SYS.REQ.SERVER.PING.STATSZ\", response_type: stream } ] }\n%s\n}\nsystem_account: SYS\n", t.TempDir(), conf)
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	broker := pipelinetest.StartConfigured(t, file)
	return func(role string, more ...nats.Option) jetstream.JetStream {
		public, err := keys[role].PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return pipelinetest.Connect(t, broker.ClientURL(), append(more,
			nats.Nkey(public, keys[role].Sign), nats.CustomInboxPrefix("_INBOX_"+strings.ToLower(role)))...)
	}
}

// onlyTheServiceMayWrite runs a server with the rights of deploy/nats/acme.conf.
func onlyTheServiceMayWrite(t *testing.T) {
	t.Parallel()
	as := configuredBroker(t)
	js := as("STAGE")
	if err := streams.Provision(t.Context(), js, topology); err != nil {
		t.Fatal(err)
	}
	f := &fixture{js: js, Service: newService(t, js)}
	k := f.session(t, "s1")
	if _, err := f.SetTitle(t.Context(), k, "Mine"); err != nil {
		t.Fatalf("with the rights of run: %v", err)
	}
	serving(t, f.Service, as("SESSIONS").Conn())
	for _, role := range []string{"OPERATOR", "PRODUCER", "CONSUMER", "SESSIONS"} {
		refused := make(chan error, 1)
		client := as(role, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case refused <- err:
			default:
			}
		}))
		if err := client.Conn().Publish("sessions.claude_code.s1.metadata", []byte(`{"title":"Not mine"}`)); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", role, err)
			}
		case <-deadline(t).Done():
			t.Errorf("%s may write metadata", role)
		}
	}
	client := &fixture{js: as("SESSIONS")}
	if body, _ := client.request(t, "set_title", `{"source":"claude_code","session_id":"s1","title":"By the service"}`); !strings.Contains(body, `"applied":true`) {
		t.Error(body)
	}
	w := watching(t, client.js, 0)
	if u := w.expect(t, titles.Snapshot); u.Session.Title != "By the service" || u.Session.MetadataVersion != 2 {
		t.Errorf("%+v", u.Session)
	}
	w.expect(t, titles.Synced)
}
