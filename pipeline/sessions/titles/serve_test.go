package titles_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"tributary/envelopes"
	"tributary/pipeline/embedded"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions/titles"
)

func TestBadRequestsStoreNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(cfg *embedded.Config) { cfg.MaxPayload = 1 << 20 })
	f.session(t, "s1")
	serving(t, f.Service, f.js.Conn())
	const s1 = `"source":"claude_code","session_id":"s1"`
	large := strings.Repeat("x", 1<<20-400)
	for name, c := range map[string]struct{ endpoint, request, code, want string }{
		"empty":               {"set_title", ``, "400", "invalid request: the request is not a JSON object in UTF-8 with unique members"},
		"not JSON":            {"set_title", `{"title"`, "400", "invalid request: the request is not a JSON object in UTF-8 with unique members"},
		"null":                {"get", `null`, "400", "invalid request: the request is not a JSON object in UTF-8 with unique members"},
		"not UTF-8":           {"get", "{\"source\":\"codex\",\"session_id\":\"\xff\"}", "400", "invalid request: the request is not a JSON object in UTF-8 with unique members"},
		"member twice":        {"get", `{` + s1 + `,"session_id":"s2"}`, "400", "invalid request: the request is not a JSON object in UTF-8 with unique members"},
		"unknown member":      {"set_title", `{` + s1 + `,"title":"x","secret":1}`, "400", "invalid request: the request has a member that this endpoint does not know"},
		"title of a type":     {"set_title", `{` + s1 + `,"title":7}`, "400", "invalid request: member title has the wrong type"},
		"pin of a type":       {"set_pinned", `{` + s1 + `,"pinned":"yes"}`, "400", "invalid request: member pinned has the wrong type"},
		"version of a type":   {"set_pinned", `{` + s1 + `,"pinned":true,"if_match":-1}`, "400", "invalid request: member if_match has the wrong type"},
		"session of a type":   {"get", `{"source":"codex","session_id":["s1"]}`, "400", "invalid request: member session_id has the wrong type"},
		"title missing":       {"set_title", `{` + s1 + `}`, "400", "invalid request: member title is missing"},
		"pin missing":         {"set_pinned", `{` + s1 + `}`, "400", "invalid request: member pinned is missing"},
		"title null":          {"apply_generated_title", `{` + s1 + `,"title":null,"title_source":"auto"}`, "400", "invalid request: member title is missing"},
		"title source":        {"apply_generated_title", `{` + s1 + `,"title":"x","title_source":"model"}`, "400", "invalid request: title_source is not one of auto, manual, fallback"},
		"no title source":     {"apply_generated_title", `{` + s1 + `,"title":"x"}`, "400", "invalid request: title_source is not one of auto, manual, fallback"},
		"no source":           {"get", `{"session_id":"s1"}`, "400", "invalid request: source is not one of " + fmt.Sprint(envelopes.Sources)},
		"unknown source":      {"list", `{"source":"claude"}`, "400", "invalid request: source is not one of " + fmt.Sprint(envelopes.Sources)},
		"no session":          {"get", `{"source":"codex"}`, "400", "invalid request: session_id is empty"},
		"long session":        {"get", `{"source":"codex","session_id":"` + strings.Repeat("s", 1025) + `"}`, "400", "invalid request: session_id is longer than 1024 bytes"},
		"limit":               {"list", `{"limit":1001}`, "400", "invalid request: limit is not in 1 to 1000"},
		"empty title":         {"set_title", `{` + s1 + `,"title":"\u2003\n"}`, "400", "storage error: title cannot be empty"},
		"unknown session":     {"set_title", `{"source":"codex","session_id":"s1","title":"x"}`, "404", "session not found: s1"},
		"session with bytes":  {"set_pinned", `{"source":"codex","session_id":"a\u0000\r\n.*> \u001b[0m","pinned":true}`, "404", `session not found: "a\x00\r\n.*> \x1b[0m"`},
		"title over the size": {"set_title", `{` + s1 + `,"title":"` + large + `"}`, "413", "storage error: title is too large: its message has "},
	} {
		body, code := f.request(t, c.endpoint, c.request)
		var answer struct {
			Code  string `json:"code"`
			Error string `json:"error"`
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatalf("%s: %v: %.200s", name, err, body)
		}
		exact := answer.Error == c.want || c.code == "413" && strings.HasPrefix(answer.Error, c.want)
		if code != c.code || answer.Code != c.code || !exact {
			t.Errorf("%s: code %s, %.300s", name, code, body)
		}
	}
	if n := lastSequence(t, f.js); n != 0 {
		t.Errorf("%d messages are stored", n)
	}
	stats := services(t, f.js.Conn(), 1)[0]
	if e := stats.endpoint(t, "set_title"); e.Data.Answered != 8 || e.Data.Errors["400"] != 6 || e.Data.Errors["404"] != 1 || e.Data.Errors["413"] != 1 {
		t.Errorf("statistics %+v", e)
	}
}

// Any id of a session can be titled, found and watched, and no two of them meet.
func TestSessionIDsMayHaveAnyBytes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	serving(t, f.Service, f.js.Conn())
	ids := []string{"plain", "a.b", "*", ">", " ", "\x00", "a\r\nb", "~YS5i", "日本語 %41", strings.Repeat("long", 256), strings.Repeat("long", 255), "sessions.x.metadata"}
	for i, id := range ids {
		for _, source := range []envelopes.Source{envelopes.ClaudeCode, envelopes.Codex} {
			k := titles.Key{Source: source, SessionID: id}
			addEvent(t, f.js, k)
			request, err := json.Marshal(map[string]any{"source": source, "session_id": id, "title": fmt.Sprintf("%s %d", source, i)})
			if err != nil {
				t.Fatal(err)
			}
			if body, _ := f.request(t, "set_title", string(request)); !strings.Contains(body, `"title_version":1,`) {
				t.Errorf("%q: %s", id, body)
			}
		}
	}
	seen := 0
	for r, err := range f.List(t.Context(), titles.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%s %d", r.Source, seen/2); r.SessionID != ids[seen/2] || r.Title != want {
			t.Errorf("record %d: %+v, want %s", seen, r, want)
		}
		seen++
	}
	if seen != 2*len(ids) {
		t.Errorf("%d records, want %d", seen, 2*len(ids))
	}
	for i, c := range changes(t, f.js) {
		if c.SessionID != ids[i/2] {
			t.Errorf("change %d: %+v", i, c)
		}
	}
	for _, k := range []titles.Key{
		{Source: envelopes.Codex, SessionID: "\xff"}, {Source: envelopes.Codex}, {Source: "codex.s1", SessionID: "s1"}, {SessionID: "s1"},
	} {
		if _, err := f.SetPinned(t.Context(), k, true); !errors.Is(err, titles.ErrInvalid) {
			t.Errorf("%+v: %v", k, err)
		}
	}
	if _, err := f.SetTitle(t.Context(), titles.Key{Source: envelopes.Codex, SessionID: "*"}, "\xff"); !errors.Is(err, titles.ErrInvalid) {
		t.Errorf("title that is not UTF-8: %v", err)
	}
}

func TestListHasPagesAndFilters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	serving(t, f.Service, f.js.Conn())
	if body, _ := f.request(t, "list", ``); body != `{"sessions":[]}` {
		t.Errorf("empty list is %s", body)
	}
	for i := range 7 {
		f.rename(t, f.session(t, fmt.Sprintf("s%d", i)), "x")
	}
	if _, err := f.SetPinned(t.Context(), f.session(t, "s2"), true); err != nil {
		t.Fatal(err)
	}
	page := func(request string) (ids []string, next uint64) {
		t.Helper()
		body, code := f.request(t, "list", request)
		var a struct {
			Sessions []titles.Session `json:"sessions"`
			Next     uint64           `json:"next"`
		}
		if err := json.Unmarshal([]byte(body), &a); err != nil || code != "" {
			t.Fatalf("%v: %s", err, body)
		}
		for _, s := range a.Sessions {
			ids = append(ids, s.SessionID)
		}
		return ids, a.Next
	}
	var all []string
	pages := 0
	for after := uint64(0); ; pages++ {
		ids, next := page(fmt.Sprintf(`{"limit":3,"after":%d}`, after))
		if all = append(all, ids...); next == 0 {
			break
		}
		after = next
	}
	if got := strings.Join(all, " "); got != "s0 s1 s3 s4 s5 s6 s2" || pages != 2 {
		t.Errorf("%s in %d pages", got, pages+1)
	}
	for request, want := range map[string]string{
		`{"pinned":true}`: "s2", `{"pinned":false,"limit":2}`: "s0 s1", `{"source":"codex"}`: "", `{"source":"claude_code","limit":1}`: "s0",
	} {
		if ids, _ := page(request); strings.Join(ids, " ") != want {
			t.Errorf("%s: %v, want %s", request, ids, want)
		}
	}
}

// A page is a message that the broker accepts, however large the records are.
func TestPagesFitAMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(cfg *embedded.Config) { cfg.MaxPayload = 1 << 20 })
	serving(t, f.Service, f.js.Conn())
	for i := range 5 {
		f.rename(t, f.session(t, strconv.Itoa(i)), strings.Repeat("x", 400<<10))
	}
	pages := 0
	for after := uint64(0); ; {
		body, code := f.request(t, "list", fmt.Sprintf(`{"after":%d}`, after))
		var a struct {
			Sessions []titles.Session `json:"sessions"`
			Next     uint64           `json:"next"`
		}
		if err := json.Unmarshal([]byte(body), &a); err != nil || code != "" {
			t.Fatalf("%v: %.200s", err, body)
		}
		if pages++; a.Next == 0 {
			break
		}
		after = a.Next
	}
	if pages != 3 {
		t.Errorf("%d pages, want 3", pages)
	}
}

func TestDrainAnswersWhatHasArrived(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const calls = 20
	s, waits, release := f.waitingService(t, calls)
	drain := serving(t, s, f.js.Conn())
	client := f.server.JetStream().Conn()
	inbox := client.NewInbox()
	sub, err := client.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for i := range calls {
		k := f.session(t, fmt.Sprintf("s%d", i))
		if err := client.PublishRequest(titles.SubjectPrefix+"set_title", inbox, fmt.Appendf(nil, `{"source":"claude_code","session_id":%q,"title":"Mine"}`, k.SessionID)); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.FlushWithContext(deadline(t)); err != nil { // the server has sent them on
		t.Fatal(err)
	}
	var drained sync.WaitGroup
	drained.Go(drain)
	poll(t, "drain", func() bool { // no new requests
		_, err := client.Request("$SRV.PING."+titles.ServiceName, nil, time.Second)
		return errors.Is(err, nats.ErrNoResponders)
	})
	await(t, waits)
	release()
	for range calls {
		m, err := sub.NextMsgWithContext(deadline(t))
		if err != nil || !strings.Contains(string(m.Data), `"applied":true`) {
			t.Fatalf("%v, %s", err, m.Data)
		}
	}
	drained.Wait()
	if n := len(changes(t, f.js)); n != calls {
		t.Errorf("%d changes, want %d", n, calls)
	}
}

// A call that another writer always overtakes ends with the context of Serve.
func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	tries := make(chan struct{}, 2)
	s, err := titles.New(f.js, titles.Config{Now: func() time.Time { // between reading and storing
		if c, err := f.SetPinned(t.Context(), k, !f.get(t, k).Pinned); c == nil || err != nil {
			t.Errorf("%+v, %v", c, err)
		}
		select {
		case tries <- struct{}{}:
		default:
		}
		return time.Now()
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Serve(ctx) }()
	awaitServices(t, f.js.Conn(), 1)
	if err := f.js.Conn().Publish(titles.SubjectPrefix+"set_title", []byte(`{"source":"claude_code","session_id":"s1","title":"x"}`)); err != nil {
		t.Fatal(err)
	}
	for range cap(tries) {
		<-tries
	}
	cause := errors.New("enough")
	cancel(cause)
	if err := <-result; !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
	if r := f.get(t, k); r.Title != "" || s.Conflicts() < 1 {
		t.Errorf("%d conflicts, record %+v", s.Conflicts(), r)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).JetStream()
	for _, cfg := range []titles.Config{{ChangesMaxAge: time.Second}, {ChangesMaxAge: -time.Hour}, {Mode: "both"}} {
		if _, err := titles.New(js, cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
