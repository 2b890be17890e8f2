package console

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/net/html"
	"pgregory.net/rapid"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	set "tributary/pipeline/sessions/titles"
	"tributary/pipeline/sessions/transcript"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// normalized returns a console over a broker with the events of records, which a stage of the product makes for as long as the
// test runs.
func normalized(tb testing.TB, records ...core.Record) (*Console, jetstream.JetStream, streams.Topology) {
	tb.Helper()
	top := streams.Topology{Generation: "v1", Partitions: 2}
	var js jetstream.JetStream
	c := newConsole(tb, func(cfg *Config) {
		js = pipelinetest.NewServer(tb).Provision(top)
		cfg.JetStream = js
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	stage, err := worker.New(js, worker.Config{Topology: top})
	if err != nil {
		tb.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stage.Run(ctx) }()
	tb.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			tb.Error(err)
		}
	})
	publish(tb, js, top, records...)
	return c, js, top
}

// publish publishes records and waits for their events.
func publish(tb testing.TB, js jetstream.JetStream, top streams.Topology, records ...core.Record) {
	tb.Helper()
	pipelinetest.Publish(tb, js, records...)
	if err := replay.CatchUp(tb.Context(), js, top); err != nil {
		tb.Fatal(err)
	}
}

// samples returns the records of the samples of all agents.
func samples(tb testing.TB) []core.Record {
	tb.Helper()
	var records []core.Record
	for _, v := range normalizers.Vendors() {
		err := fs.WalkDir(v.Samples(), ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := fs.ReadFile(v.Samples(), name)
			if err != nil {
				return err
			}
			framer := normalizers.NewFramer(normalizers.File{Name: path.Base(name), Path: name, Folder: path.Dir(name)})
			if _, err := framer.Write(data); err != nil {
				return err
			}
			framer.Close()
			for framed, ok := framer.Next(); ok; framed, ok = framer.Next() {
				if framed.Err == nil && framed.Line > 0 {
					records = append(records, framed.Record)
				}
			}
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	return records
}

// claude returns a record of Claude Code.
func claude(session, kind string, n int, message map[string]any, more ...map[string]any) core.Record {
	line := map[string]any{
		"type": kind, "uuid": fmt.Sprintf("u%d", n), "sessionId": session, "cwd": "/home/ada/ledger",
		"timestamp": time.Date(2026, 3, 9, 9, 0, n, 0, time.UTC).Format(time.RFC3339), "message": message,
	}
	for _, m := range more {
		maps.Copy(line, m)
	}
	data, err := json.Marshal(line, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return core.Record{Source: envelopes.ClaudeCode, Session: session, Data: data}
}

func prompt(text string) map[string]any { return map[string]any{"role": "user", "content": text} }

func answer(n int, blocks ...map[string]any) map[string]any {
	return map[string]any{
		"id": fmt.Sprintf("msg_%d", n), "role": "assistant", "model": "claude-opus-4-5", "content": blocks,
		"usage": map[string]any{"input_tokens": 10, "cache_read_input_tokens": 1000 * n, "output_tokens": 5},
	}
}

func result(call, text string, failed bool) map[string]any {
	return map[string]any{"role": "user", "content": []map[string]any{{"type": "tool_result", "tool_use_id": call, "content": text, "is_error": failed}}}
}

func toolUse(id, name string, input map[string]any) map[string]any {
	return map[string]any{"type": "tool_use", "id": id, "name": name, "input": input}
}

// sessionsOf returns the events of the sessions that a broker has.
func sessionsOf(t *testing.T, js jetstream.JetStream) map[events.SessionID][]events.Event {
	t.Helper()
	found := map[events.SessionID][]events.Event{}
	for e, err := range events.Read(t.Context(), js, "v1", events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		id := events.SessionID{Source: e.Source, Session: e.SessionID}
		found[id] = append(found[id], e)
	}
	return found
}

// pagesOf returns all pages of a session, following the links to the next ones.
func pagesOf(t *testing.T, c *Console, id events.SessionID) []string {
	t.Helper()
	var pages []string
	for address := sessionPath(id.Source, id.Session); address != ""; {
		w := get(t, c, address)
		if requireStatus(t, w, http.StatusOK); t.Failed() {
			t.FailNow()
		}
		pages = append(pages, w.Body.String())
		_, rest, more := strings.Cut(w.Body.String(), `rel="next" href="`)
		address = ""
		if more {
			address, _, _ = strings.Cut(rest, `"`)
		}
	}
	return pages
}

// anchorsOf returns the ids of the elements of a page, each once.
func anchorsOf(t *testing.T, page string) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	for tokens := html.NewTokenizer(strings.NewReader(page)); ; {
		switch tokens.Next() {
		case html.ErrorToken:
			return ids
		case html.StartTagToken:
			if id := attribute(tokens.Token(), "id"); id != "" {
				if ids[id] {
					t.Errorf("the id %s is there twice", id)
				}
				ids[id] = true
			}
		default:
		}
	}
}

// TestSessionsOfSamplesShowEveryEvent opens each sample: every event has its place in the conversation and its page, with the raw
// record, its JSON and its text.
func TestSessionsOfSamplesShowEveryEvent(t *testing.T) {
	t.Parallel()
	c, js, _ := normalized(t, samples(t)...)
	found := sessionsOf(t, js)
	if len(found) < len(envelopes.Sources) {
		t.Fatalf("%d sessions", len(found))
	}
	for id, list := range found {
		anchors := map[string]bool{}
		for _, page := range pagesOf(t, c, id) {
			for anchor := range anchorsOf(t, page) {
				anchors[anchor] = true
			}
			requirePage(t, page)
		}
		requireSameFigures(t, c, id)
		outline := get(t, c, sessionPath(id.Source, id.Session)+"/timeline")
		requireStatus(t, outline, http.StatusOK, "<h2>Turns</h2>")
		requirePage(t, outline.Body.String())
		for _, e := range list {
			if !anchors[anchorOf(e.Sequence)] {
				t.Errorf("%s %s: event %d, a %s, is on no page", id.Source, id.Session, e.Sequence, e.EventType)
			}
		}
		for _, e := range []events.Event{list[0], list[len(list)/2], list[len(list)-1]} {
			address := eventPath(e.Source, e.SessionID, e.EventID)
			page := get(t, c, address)
			requireStatus(t, page, http.StatusOK, "<h2>Raw record</h2>", "<h2>Around it</h2>", "role "+string(orZero(e.Role)))
			requirePage(t, page.Body.String())
			raw, err := e.LoadRecord(t.Context(), js)
			if err != nil {
				t.Fatal(err)
			}
			requirePlain(t, get(t, c, address+"/raw"), string(raw))
			requirePlain(t, get(t, c, address+"/text"), orZero(e.Text))
			var back envelopes.AgentEventV1
			if w := get(t, c, address+"/json"); json.Unmarshal(w.Body.Bytes(), &back) != nil || back.EventID != e.EventID {
				t.Errorf("the JSON of the event is %.200s", w.Body)
			}
			beside := get(t, c, address+"?part=beside")
			requireStatus(t, beside, http.StatusOK, `{"html":"`)
		}
	}
}

// requireSameFigures checks that the turns of a session have the same figures in the conversation and in the outline.
func requireSameFigures(t *testing.T, c *Console, id events.SessionID) {
	t.Helper()
	conversation := map[string][2]string{} // calls and tokens
	for _, page := range pagesOf(t, c, id) {
		for _, m := range regexpTurn.FindAllStringSubmatch(page, -1) {
			conversation[m[1]] = [2]string{cmp.Or(m[2], "0"), cmp.Or(m[3], "0")}
		}
	}
	w := get(t, c, sessionPath(id.Source, id.Session)+"/timeline")
	for _, m := range regexpRow.FindAllStringSubmatch(w.Body.String(), -1) {
		if got := [2]string{m[2], m[3]}; got != conversation[m[1]] {
			t.Errorf("%s %s: turn %s has the calls and tokens %v in the conversation, %v in the outline", id.Source, id.Session, m[1], conversation[m[1]], got)
		}
	}
}

// What precedes the first prompt is of its turn if it is only noise, such as the tokens of a call to a model; what has
// content is turn 0, with the results that come later. A call that is stated again counts once.
func TestTurnsOfTheOutlineAreThoseOfTheConversation(t *testing.T) {
	t.Parallel()
	title := map[string]any{"sessionId": "late", "type": "ai-title", "aiTitle": "Ledger"}
	data, err := json.Marshal(title)
	if err != nil {
		t.Fatal(err)
	}
	c, js, _ := normalized(t,
		core.Record{Source: envelopes.ClaudeCode, Session: "late", Data: data},
		claude("late", "assistant", 1, answer(1)),
		claude("late", "user", 2, prompt("one")),
		claude("late", "assistant", 3, answer(3, toolUse("a", "Bash", map[string]any{"command": "ls"}))),
		claude("late", "user", 4, prompt("two")),
		claude("late", "user", 5, result("a", "done", true)),
		claude("early", "assistant", 1, answer(1, toolUse("b", "Bash", map[string]any{"command": "ls"}))),
		claude("early", "user", 2, prompt("one")),
		claude("early", "user", 3, result("b", "done", true)),
		claude("again", "user", 1, prompt("one")),
		claude("again", "assistant", 2, answer(2, toolUse("c", "Write", map[string]any{"file_path": "/a"}))),
		claude("again", "assistant", 2, answer(2, toolUse("c", "Write", map[string]any{"file_path": "/a", "content": "x"}))),
		claude("again", "user", 3, result("c", "no", true)),
		claude("again", "user", 3, result("c", "not so", true)),
	)
	for id := range sessionsOf(t, js) {
		requireSameFigures(t, c, id)
		w := get(t, c, sessionPath(id.Source, id.Session)+"/timeline")
		var turns []string
		for _, m := range regexpRow.FindAllStringSubmatch(w.Body.String(), -1) {
			turns = append(turns, m[1]+": "+m[2]+" calls, "+m[3]+" tokens")
		}
		want := map[string][]string{
			"late":  {"1: 1 calls, 4,030 tokens", "2: 0 calls, 0 tokens"},
			"early": {"0: 1 calls, 1,015 tokens", "1: 0 calls, 0 tokens"},
			"again": {"1: 1 calls, 2,015 tokens"},
		}[id.Session]
		if !slices.Equal(turns, want) {
			t.Errorf("%s: %q, want %q", id.Session, turns, want)
		}
	}
}

var (
	regexpTurn = regexp.MustCompile(`(?s)<h2 id="t(\d+)h">.*?</h2>.*?</time>(?:[^<]*?, ([\d,]+) calls?)?(?:[^<]*?, ([\d,]+) tokens?)?[^<]*</p>`)
	regexpRow  = regexp.MustCompile(`(?s)data-label="Turn"><a [^>]*>(\d+)</a>.*?data-label="Calls">([\d,]+)<.*?data-label="Tokens">([\d,]+)<`)
)

// requirePlain checks an answer that is a text of a log.
func requirePlain(t *testing.T, w *httptest.ResponseRecorder, want string) {
	t.Helper()
	requireStatus(t, w, http.StatusOK)
	h := w.Header()
	if h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.Contains(h.Get("Content-Security-Policy"), "sandbox") || w.Body.String() != want {
		t.Errorf("%v, %d bytes, want %d", h, w.Body.Len(), len(want))
	}
}

// requirePage checks that a page has no element and no attribute that a log could have put there: its scripts and styles are
// files of the console, its links stay in the console or say nothing to the site they lead to.
func requirePage(t *testing.T, page string) {
	t.Helper()
	if i := strings.IndexFunc(page, func(r rune) bool {
		return r < 0x20 && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
	}); i >= 0 {
		t.Errorf("a control character stays: %q", page[max(0, i-40):min(len(page), i+40)])
	}
	for tokens := html.NewTokenizer(strings.NewReader(page)); ; {
		kind := tokens.Next()
		if kind == html.ErrorToken {
			return
		}
		if kind != html.StartTagToken && kind != html.SelfClosingTagToken {
			continue
		}
		tag := tokens.Token()
		switch tag.Data {
		case "script":
			if !strings.HasPrefix(attribute(tag, "src"), assetsPath) {
				t.Errorf("there is a script: %v", tag)
			}
		case "style", "img", "iframe", "object", "embed", "base", "audio", "video", "form", "button", "input", "foreignobject":
			t.Errorf("there is a <%s>", tag.Data)
		default:
		}
		for _, a := range tag.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "srcset" || a.Key == "srcdoc" || a.Key == "formaction" {
				t.Errorf("there is the attribute %s=%q", a.Key, a.Val)
			}
			if a.Key != "href" && a.Key != "src" {
				continue
			}
			local := strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "//") || strings.HasPrefix(a.Val, "#") || strings.HasPrefix(a.Val, "?")
			if !local && (!strings.HasPrefix(a.Val, "http") || tag.Data != "a" || !strings.Contains(attribute(tag, "rel"), "noreferrer")) {
				t.Errorf("<%s %s=%q>", tag.Data, a.Key, a.Val)
			}
		}
	}
}

// hostile are texts that try to be more than text.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'><svg/onload=alert(1)>`, `</pre></code></details></article><h1>forged</h1>`,
	`{{.Path}}{{template "item" .}}`, `[a](javascript:alert(1)) ![b](https://evil.example/p.png) <https://evil.example>`,
	"\x1b]8;;https://evil.example\x07link\x1b]8;;\x07 \x1b[2J\u009b1m", "abc\u202egnp.exe\u2066x\u2069", "javascript:alert(1)", "`</code>`<!--",
	`<form action=/sessions method=post><input name=x>`, "\u0000\u0007\u2028",
}

// TestHostileSessionIsText has such texts in every place of a session, its id among them.
func TestHostileSessionIsText(t *testing.T) {
	t.Parallel()
	all := strings.Join(hostile, "\n\n")
	id := `../..%2f?#&"'<script>alert(1)</script>` + "\n\x1b[31m*.>"
	records := []core.Record{
		{Source: envelopes.ClaudeCode, Session: id, Data: []byte(`{"type":"summary","summary":` + quoted(hostile[0]) + `,"leafUuid":"u9"}`)},
		claude(id, "user", 1, prompt(all), map[string]any{"cwd": hostile[1], "gitBranch": hostile[2]}),
		claude(id, "assistant", 2, answer(1, map[string]any{"type": "thinking", "thinking": all}, map[string]any{"type": "text", "text": all})),
		claude(id, "assistant", 3, answer(2, toolUse("toolu_1"+hostile[1], hostile[0], map[string]any{"command": all, "description": all}))),
		claude(id, "user", 4, result("toolu_1"+hostile[1], all, true)),
		claude(id, "assistant", 5, answer(3, toolUse("toolu_2", "Edit", map[string]any{"file_path": hostile[1], "old_string": all, "new_string": all + "\n" + hostile[3]}))),
		claude(id, "user", 6, result("toolu_2", all, false)),
		claude(id, "assistant", 7, answer(4, toolUse("toolu_3", "Bash", map[string]any{"command": all}))),
		claude(id, "user", 8, result("toolu_3", all, false), map[string]any{"toolUseResult": map[string]any{"stdout": all, "stderr": all}}),
		{Source: envelopes.ClaudeCode, Session: id, Data: []byte(`{"type":` + quoted(hostile[0]) + `,"uuid":` + quoted(hostile[1]) + `}`)},
	}
	c, js, _ := normalized(t, records...)
	list := sessionsOf(t, js)[events.SessionID{Source: envelopes.ClaudeCode, Session: id}]
	if len(list) < 10 {
		t.Fatalf("%d events", len(list))
	}
	address := sessionPath(envelopes.ClaudeCode, id)
	pages := []string{address, address + "/timeline", address + "?from=last"}
	for _, e := range list {
		pages = append(pages, eventPath(e.Source, e.SessionID, e.EventID))
		requirePlain(t, get(t, c, eventPath(e.Source, e.SessionID, e.EventID)+"/text"), orZero(e.Text))
	}
	for _, address := range pages {
		w := get(t, c, address)
		requireStatus(t, w, http.StatusOK)
		requirePage(t, w.Body.String())
		if strings.Contains(w.Body.String(), "forged</h1>") {
			t.Errorf("%s: a log has a heading of its own", address)
		}
	}
	var live map[string]string
	if w := get(t, c, address+"?part=live"); json.Unmarshal(w.Body.Bytes(), &live) != nil || len(live) != 2 {
		t.Fatalf("%.300s", w.Body)
	}
	for _, block := range live {
		requirePage(t, block)
	}
	escaped := get(t, c, "/sessions/claude_code/"+pathID(id)).Body.String()
	if !strings.Contains(escaped, "&lt;script&gt;alert(1)&lt;/script&gt;") || !strings.Contains(escaped, html.EscapeString(terminal.OneLine(hostile[4]))[:8]) {
		t.Error("a reader does not see the texts")
	}
}

func quoted(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// TestSessionsOfAnyIDOpen has ids that a browser, a proxy or a router could take for something else.
func TestSessionsOfAnyIDOpen(t *testing.T) {
	t.Parallel()
	ids := []string{".", "..", "...", "/", "a/../b", "a//b", "%2e%2e", "%", "?x=1#y", "a b", "a\\b", "\x00\n\u2028", "é\u202e", "~Lg", strings.Repeat("long/", 200), "timeline", "live"}
	var records []core.Record
	for _, id := range ids {
		records = append(records, claude(id, "user", 1, prompt("Session "+quoted(id))))
	}
	c, js, _ := normalized(t, records...)
	for _, id := range ids {
		list := sessionsOf(t, js)[events.SessionID{Source: envelopes.ClaudeCode, Session: id}]
		if len(list) == 0 {
			t.Fatalf("%q has no events", id)
		}
		address := sessionPath(envelopes.ClaudeCode, id)
		for _, page := range []string{address, address + "/timeline", eventPath(envelopes.ClaudeCode, id, list[0].EventID)} {
			w := get(t, c, page)
			requireStatus(t, w, http.StatusOK)
			requirePage(t, w.Body.String())
			if page == address && len(id) < 100 && !strings.Contains(w.Body.String(), "<code>"+html.EscapeString(terminal.OneLine(id))+"</code>") {
				t.Errorf("%q is not on its page", id)
			}
		}
	}
}

// TestConversationHasItsParts has a turn with a thought, a command that fails, an edit and a subagent.
func TestConversationHasItsParts(t *testing.T) {
	t.Parallel()
	id := "one"
	sub := map[string]any{"isSidechain": true, "agentId": "aaaa1111"}
	c, js, _ := normalized(t,
		claude(id, "user", 1, prompt("Fix the *parser*.")),
		claude(id, "assistant", 2, answer(1, map[string]any{"type": "thinking", "thinking": "Let me see."}, map[string]any{"type": "text", "text": "I run the tests."})),
		claude(id, "assistant", 3, answer(2, toolUse("toolu_1", "Bash", map[string]any{"command": "go test ./...", "description": "Run the tests"}))),
		claude(id, "user", 4, result("toolu_1", "Exit code 1\nFAIL ledger", true)),
		claude(id, "assistant", 5, answer(3, toolUse("toolu_2", "Edit", map[string]any{"file_path": "/home/ada/ledger/parse.go", "old_string": "retrun", "new_string": "return"}))),
		claude(id, "user", 6, result("toolu_2", "edited", false)),
		claude(id, "assistant", 7, answer(4, toolUse("toolu_4", "Task", map[string]any{"description": "Read the tests", "prompt": "Read all tests."}))),
		claude(id, "user", 8, prompt("Read all tests."), sub),
		claude(id, "assistant", 9, answer(5, map[string]any{"type": "text", "text": "There are *three*."}), sub),
		claude(id, "user", 20, result("toolu_4", "Three tests.\nagentId: aaaa1111", false)),
		claude(id, "assistant", 21, answer(6, map[string]any{"type": "text", "text": "Done."})),
		claude(id, "user", 60, prompt("Thanks.")),
	)
	w := get(t, c, "/sessions/claude_code/one")
	requireStatus(t, w, http.StatusOK,
		"<h1>Fix the *parser*</h1>", "<p>Fix the <em>parser</em>.</p>", "<summary>thinking</summary>", "Let me see.",
		"<strong>Bash</strong> <code>go test ./...</code>", "FAIL ledger", `<span class="del">-retrun`, `<span class="add">&#43;return`,
		"Read the tests", "There are <em>three</em>.", `<h2 id="t1h">Turn 1</h2>`, `<h2 id="t2h">Turn 2</h2>`, "context 6,010", "its result",
		"Errors here: 1", "Edits here: 1", "/home/ada/ledger")
	page := w.Body.String()
	if call, agent, result := strings.Index(page, "<strong>Task</strong>"), strings.Index(page, "<strong>Subagent</strong>"), strings.Index(page, "There are <em>three"); call > agent || agent > result {
		t.Errorf("the subagent is not below its call: %d, %d, %d", call, agent, result)
	}
	traced := regexpTrace.FindStringSubmatch(page)
	if traced == nil {
		t.Fatal("a turn has no trace")
	}
	for _, e := range sessionsOf(t, js)[events.SessionID{Source: envelopes.ClaudeCode, Session: id}] {
		page := get(t, c, eventPath(e.Source, e.SessionID, e.EventID))
		if e.EventType == envelopes.ToolResult {
			requireStatus(t, page, http.StatusOK, "execute_tool "+orZero(e.ToolName), traced[1])
		}
		at := get(t, c, "/sessions/claude_code/one?at="+strconv.FormatUint(e.Sequence, 10))
		if want := "/sessions/claude_code/one?from=1#" + anchorOf(e.Sequence); at.Code != http.StatusSeeOther || at.Header().Get("Location") != want {
			t.Errorf("%d %v, want %s", at.Code, at.Header(), want)
		}
	}
	requireStatus(t, get(t, c, "/sessions/claude_code/one/timeline"), http.StatusOK, "Fix the *parser*.", "parse.go", "Exit code 1", "<rect")
}

// regexpTrace finds the trace of the first turn.
var regexpTrace = regexp.MustCompile(`Trace <code>([0-9a-f]{32})</code>`)

// TestWhatIsNotThereIsSaid has addresses of nothing, and queries that are none.
func TestWhatIsNotThereIsSaid(t *testing.T) {
	t.Parallel()
	c, _, _ := normalized(t, claude("one", "user", 1, prompt("Hi.")))
	for address, status := range map[string]int{
		"/sessions/claude_code/another":                 http.StatusNotFound,
		"/sessions/claude_code/another/timeline":        http.StatusNotFound,
		"/sessions/claude_code/another/events/u1":       http.StatusNotFound,
		"/sessions/another/one":                         http.StatusNotFound,
		"/sessions/claude_code/one/events/another":      http.StatusNotFound,
		"/sessions/claude_code/one/events/u1":           http.StatusOK,
		"/sessions/claude_code/one/events/u1/another":   http.StatusNotFound,
		"/sessions/claude_code/one?from=x":              http.StatusBadRequest,
		"/sessions/claude_code/one?at=0":                http.StatusBadRequest,
		"/sessions/claude_code/one?from=999999":         http.StatusOK,
		"/sessions/claude_code/one/live":                http.StatusBadRequest,
		"/sessions/claude_code/~%21":                    http.StatusNotFound,
		"/sessions/claude_code/one?from=1&part=another": http.StatusOK,
	} {
		if w := get(t, c, address); w.Code != status {
			t.Errorf("%s: status %d, want %d: %.300s", address, w.Code, status, w.Body)
		}
	}
}

// TestLongTextsAreCut has an output of 10 MB, whose record travels by claim check, and a prompt of one long line.
func TestLongTextsAreCut(t *testing.T) {
	t.Parallel()
	const size = 10 << 20
	output := "begin " + strings.Repeat("é0123456", size/9) + " end"
	long := strings.Repeat("word ", 40_000)
	c, js, _ := normalized(t,
		claude("one", "user", 1, prompt(long)),
		claude("one", "assistant", 2, answer(1, toolUse("toolu_1", "Bash", map[string]any{"command": "cat " + long}))),
		claude("one", "user", 3, result("toolu_1", output, false)),
	)
	page := get(t, c, "/sessions/claude_code/one")
	requireStatus(t, page, http.StatusOK, "left out …", "All of it as text", "begin é0123456")
	requirePage(t, page.Body.String())
	if page.Body.Len() > 200<<10 {
		t.Errorf("the page has %d bytes", page.Body.Len())
	}
	for _, e := range sessionsOf(t, js)[events.SessionID{Source: envelopes.ClaudeCode, Session: "one"}] {
		address := eventPath(e.Source, e.SessionID, e.EventID)
		w := get(t, c, address)
		requireStatus(t, w, http.StatusOK)
		if w.Body.Len() > 400<<10 {
			t.Errorf("the page of a %s has %d bytes", e.EventType, w.Body.Len())
		}
		requirePlain(t, get(t, c, address+"/text"), orZero(e.Text))
		if e.EventType != envelopes.ToolResult {
			continue
		}
		if raw := get(t, c, address+"/raw"); raw.Code != http.StatusOK || raw.Body.Len() < size {
			t.Errorf("the raw record has %d bytes", raw.Body.Len())
		}
	}
}

// TestPagesHaveEveryEventOnce compares the pages of a long session with its transcript.
func TestPagesHaveEveryEventOnce(t *testing.T) {
	t.Parallel()
	id := events.SessionID{Source: envelopes.ClaudeCode, Session: "00000007-0000-4000-8000-000000000000"}
	c, js, _ := normalized(t, pipelinetest.Workload(7, 1, 900)...)
	list := sessionsOf(t, js)[id]
	pages := pagesOf(t, c, id)
	if len(pages) < 4 {
		t.Fatalf("%d pages of %d events", len(pages), len(list))
	}
	places := map[string]int{} // pages of anchors
	for n, page := range pages {
		for anchor := range anchorsOf(t, page) {
			if at, ok := places[anchor]; ok && strings.HasPrefix(anchor, "e") {
				t.Errorf("%s is on the pages %d and %d", anchor, at, n)
			}
			places[anchor] = n
		}
	}
	whole, err := transcript.Read(func(yield func(*envelopes.AgentEventV1, error) bool) {
		for i := range list {
			if !yield(&list[i].AgentEventV1, nil) {
				return
			}
		}
	}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	for _, e := range list {
		if _, ok := places[anchorOf(e.Sequence)]; !ok {
			t.Errorf("event %d, a %s, is on no page", e.Sequence, e.EventType)
		}
	}
	for _, turn := range whole.Turns() {
		if _, ok := places[fmt.Sprintf("t%d", turn.Number)]; !ok {
			t.Errorf("turn %d is on no page", turn.Number)
		}
	}
	middle := list[len(list)/2]
	w := get(t, c, sessionPath(id.Source, id.Session)+"?at="+strconv.FormatUint(middle.Sequence, 10))
	address, anchor, _ := strings.Cut(w.Header().Get("Location"), "#")
	if page := get(t, c, address); !anchorsOf(t, page.Body.String())[anchor] {
		t.Errorf("%s has no %s", address, anchor)
	}
}

// TestACallAndItsResultAreOnTwoPages has the call as the last event of a page: both pages say what it was and what came of it.
func TestACallAndItsResultAreOnTwoPages(t *testing.T) {
	t.Parallel()
	n := 0
	filler := func(most int) (records []core.Record) {
		for range most {
			records = append(records, claude("two", "assistant", n, answer(n, map[string]any{"type": "text", "text": "more"})))
			n++
		}
		return records
	}
	c, js, top := normalized(t, append([]core.Record{claude("two", "user", 1000, prompt("begin"))}, filler(pageEvents-10)...)...)
	id := events.SessionID{Source: "claude_code", Session: "two"}
	publish(t, js, top, filler(pageEvents-1-len(sessionsOf(t, js)[id]))...)
	publish(t, js, top,
		claude("two", "assistant", 1001, answer(1001, toolUse("t1", "Bash", map[string]any{"command": "make deploy"}))),
		claude("two", "user", 1002, result("t1", "deployed to staging", false)))
	publish(t, js, top, filler(10)...)
	list := sessionsOf(t, js)[id]
	if list[pageEvents-1].EventType != envelopes.ToolCall || list[pageEvents].EventType != envelopes.ToolResult {
		t.Fatalf("event %d is a %s", pageEvents, list[pageEvents-1].EventType)
	}
	pages := pagesOf(t, c, id)
	if len(pages) != 2 {
		t.Fatalf("%d pages", len(pages))
	}
	requireIn(t, "the page of the call", pages[0], "make deploy", "deployed to staging", `data-beside>its result, on another page</a>`)
	requireIn(t, "the page of the result", pages[1], "deployed to staging", `href="`+eventPath(id.Source, id.Session, list[pageEvents-1].EventID)+`" data-beside>its call, on another page</a>`)
	if strings.Contains(pages[0], "no result") {
		t.Error("the page of the call says that there is no result")
	}
}

// TestPagesStay: the pages of a session have all its events, none is too long, and those that are full stay when it grows.
func TestPagesStay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var turns []turnStart
		last := uint64(0)
		for _, length := range rapid.SliceOf(rapid.Uint64Range(1, 3*pageEvents)).Draw(t, "lengths") {
			turns = append(turns, turnStart{sequence: last + 1})
			last += length
		}
		last += rapid.Uint64Range(1, 2*pageEvents).Draw(t, "rest")
		starts := pageStarts(turns, last)
		if starts[0] != 1 || !slices.IsSorted(starts) || starts[len(starts)-1] > last {
			t.Fatalf("%v of %d events", starts, last)
		}
		for n, start := range append(starts, last+1)[1:] {
			if length := start - starts[n]; length == 0 || length > pageEvents {
				t.Fatalf("a page has %d events: %v", length, starts)
			}
		}
		early := rapid.Uint64Range(0, last).Draw(t, "early") // the end, where turns began since
		if starts := pageStarts(turns, early); len(starts) > int(last/pageEvents)+len(turns)+1 || !slices.IsSorted(starts) {
			t.Fatalf("%v of %d events", starts, early)
		}
		grown := pageStarts(turns, last+rapid.Uint64Range(1, 5*pageEvents).Draw(t, "more"))
		// The last turn may no longer fit the page on which it began.
		for n := range len(starts) - 1 {
			if grown[n] != starts[n] {
				t.Fatalf("page %d begins at %d, and later at %d", n, starts[n], grown[n])
			}
		}
	})
}

// TestPageFollowsItsSession opens the stream that a page names: it says when there is more, and the part that a script then loads
// has it.
func TestPageFollowsItsSession(t *testing.T) {
	t.Parallel()
	c, js, top := normalized(t, claude("one", "user", 1, prompt("Begin.")), claude("two", "user", 1, prompt("Another.")))
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	page := get(t, c, "/sessions/claude_code/one").Body.String()
	_, rest, _ := strings.Cut(page, `data-live="`)
	address, _, found := strings.Cut(rest, `"`)
	if !found || !strings.HasPrefix(address, "/sessions/claude_code/one/live?after=") {
		t.Fatalf("the page follows %q", address)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+html.UnescapeString(address), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for n, text := range []string{"First answer.", "Second answer."} {
		publish(t, js, top,
			claude("two", "assistant", 2+n, answer(2+n, map[string]any{"type": "text", "text": "elsewhere"})),
			claude("one", "assistant", 2+n, answer(2+n, map[string]any{"type": "text", "text": text})))
		last := sessionsOf(t, js)[events.SessionID{Source: envelopes.ClaudeCode, Session: "one"}]
		want := fmt.Sprintf(`data: {"last":%d}`, last[len(last)-1].Sequence)
		for lines.Scan() && lines.Text() != want {
			if strings.HasPrefix(lines.Text(), "data:") && !strings.HasPrefix(lines.Text(), `data: {"last":`) {
				t.Fatalf("the stream says %q", lines.Text())
			}
		}
		if lines.Text() != want {
			t.Fatalf("the stream ended before %q: %v", want, lines.Err())
		}
		var parts map[string]string
		if w := get(t, c, "/sessions/claude_code/one?part=live"); json.Unmarshal(w.Body.Bytes(), &parts) != nil || !strings.Contains(parts["turns"], "<p>"+text+"</p>") {
			t.Errorf("the page has no %q: %.500s", text, w.Body)
		}
	}
}

// TestLogsHaveNothingOfASession opens pages of a session and makes requests fail: what the console logs has no text of it.
func TestLogsHaveNothingOfASession(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	c, js, _ := normalized(t, claude("secret-session", "user", 1, prompt("secret-prompt")), claude("secret-session", "assistant", 2, answer(2, map[string]any{"type": "text", "text": "secret-answer"})))
	c.config.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	address := "/sessions/claude_code/secret-session"
	pages := []string{address, address + "/timeline", address + "?from=secret-query", address + "/events/secret-event", "/sessions/claude_code/secret-other"}
	for _, e := range sessionsOf(t, js)[events.SessionID{Source: envelopes.ClaudeCode, Session: "secret-session"}] {
		pages = append(pages, eventPath(e.Source, e.SessionID, e.EventID), eventPath(e.Source, e.SessionID, e.EventID)+"/raw")
	}
	for _, page := range pages {
		get(t, c, page)
	}
	c.limits.Duration = time.Nanosecond
	for _, page := range pages {
		if w := get(t, c, page); w.Code < http.StatusBadRequest {
			t.Errorf("%s: status %d without time", page, w.Code)
		}
	}
	if text := log.String(); strings.Contains(text, "secret") || len(text) == 0 {
		t.Errorf("the log has %q", text)
	}
}

// lockedBuffer is a buffer of several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestTitleThatWasSetIsTheHeading sets a title and a pin through the service of the workers, which the page also does without.
func TestTitleThatWasSetIsTheHeading(t *testing.T) {
	t.Parallel()
	c, js, _ := normalized(t, claude("one", "user", 1, prompt("Begin.")))
	address := "/sessions/claude_code/one"
	requireStatus(t, get(t, c, address), http.StatusOK, "<h1>Begin</h1>", "Title and pin that were set are left out: no worker ")
	service, err := set.New(js, set.Config{})
	if err != nil {
		t.Fatal(err)
	}
	key := set.Key{Source: envelopes.ClaudeCode, SessionID: "one"}
	if _, err := service.SetTitle(t.Context(), key, `<b>Fix "it"</b>`); err != nil {
		t.Fatal(err)
	}
	if _, err := service.SetPinned(t.Context(), key, true); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- service.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	poll, end := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer poll.Stop()
	for {
		w := get(t, c, address)
		requirePage(t, w.Body.String())
		if strings.Contains(w.Body.String(), "&lt;b&gt;Fix &#34;it&#34;&lt;/b&gt;</h1>") && strings.Contains(w.Body.String(), `title="pinned"`) {
			return
		}
		select {
		case <-poll.C:
		case <-end:
			t.Fatalf("the page has neither title nor pin: %.3000s", w.Body)
		}
	}
}

// TestEventsThatCannotBeReadAreCounted has an event that is no JSON, behind one that is.
func TestEventsThatCannotBeReadAreCounted(t *testing.T) {
	t.Parallel()
	c, js, _ := normalized(t, claude("one", "user", 1, prompt("Begin.")))
	subject := envelopes.EventSubject("v1", &envelopes.AgentEventV1{Source: envelopes.ClaudeCode, SessionID: "one", EventType: envelopes.AssistantMessage})
	if _, err := js.Publish(t.Context(), subject, []byte("{secret")); err != nil {
		t.Fatal(err)
	}
	requireStatus(t, get(t, c, "/sessions/claude_code/one"), http.StatusOK, "1 event of this page cannot be read.", "Begin.")
	requireStatus(t, get(t, c, "/sessions/claude_code/one/timeline"), http.StatusOK, "1 event of the session cannot be read.")
	for _, page := range []string{"/sessions/claude_code/one/events/u1", "/sessions/claude_code/one/events/another"} {
		if w := get(t, c, page); strings.Contains(w.Body.String(), "secret") || w.Code >= http.StatusInternalServerError {
			t.Errorf("%s: status %d: %.300s", page, w.Code, w.Body)
		}
	}
}
