package ship_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/claims"
	"tributary/pipeline/embedded"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
)

func TestOnceShipsEveryRecordAndTheEnds(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	one, two := prompts("one", 1, 3), prompts("two", 1, 2)
	e.write("garden/one.jsonl", lines(one...))
	e.write("garden/two.jsonl", lines(two...))
	e.write("garden/notes.txt", "not a log\n")
	e.write("garden/.hidden.jsonl", lines(prompts("hidden", 1, 1)...))

	got := e.once(func(c *ship.Config) { c.Parallel = 1 })
	want := ship.Summary{
		Files: 2, Sessions: 2, Agents: map[envelopes.Source]ship.Counts{envelopes.ClaudeCode: {Records: 5, Sessions: 2}}, Records: 5, Bytes: int64(len(strings.Join(append(one, two...), ""))),
		Refused:  map[ship.Reason]int{},
		Backfill: ship.Backfill{Files: 2, Done: 2, Bytes: int64(len(lines(append(one, two...)...))), BytesDone: int64(len(lines(append(one, two...)...))), Over: true},
	}
	if got.Shipped.IsZero() {
		t.Error("the time of the last acknowledgement is missing")
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(ship.Summary{}, "Shipped")); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}

	all := e.wantStored(append(append(append(slices.Clone(one), "end of one"), two...), "end of two")...)
	position, previous := int64(0), int64(-1)
	for i, r := range all[:3] {
		if r.Source != envelopes.ClaudeCode || r.Session != "one" {
			t.Errorf("record %d has session %s of %s", i, r.Session, r.Source)
		}
		if r.Origin.Position != position || r.Origin.Previous != previous {
			t.Errorf("record %d has position %d after %d, want %d after %d", i, r.Origin.Position, r.Origin.Previous, position, previous)
		}
		if r.Origin.File == "" || r.Origin.File != all[3].Origin.File || r.Origin.File == all[4].Origin.File {
			t.Errorf("record %d has file %q", i, r.Origin.File)
		}
		if want := time.Date(2026, 3, 1, 10, 0, i+1, 0, time.UTC); !r.Origin.Time.Equal(want) {
			t.Errorf("record %d has time %v, want %v", i, r.Origin.Time, want)
		}
		previous = position
		position += int64(len(r.Data)) + 1
	}
}

func TestSecondRunShipsOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompts("one", 1, 2)...))
	e.once()
	if got := e.once(); got.Records != 0 || got.Duplicates != 0 || e.count() != 3 {
		t.Fatalf("nothing is new, but %+v was shipped", got)
	}
	e.append("garden/one.jsonl", lines(prompt("one", 3)))
	if got := e.once(); got.Records != 1 || got.Duplicates != 0 {
		t.Fatalf("one record is new, but %+v was shipped", got)
	}
	all := e.wantStored(prompt("one", 1), prompt("one", 2), "end of one", prompt("one", 3), "end of one")
	if last := all[3].Origin; last.Previous != all[1].Origin.Position || last.File != all[0].Origin.File {
		t.Errorf("the new record does not follow the old records: %+v", last)
	}
}

// The log is shorter than the head that identifies it, so that its head changes as it grows.
func TestShortLogKeepsItsIdentityAsItGrows(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	var want []string
	for n := 1; n <= 12; n++ {
		e.append("garden/one.jsonl", lines(prompt("one", n)))
		if got := e.once(); got.Records != 1 || got.Duplicates != 0 {
			t.Fatalf("record %d: shipped %+v", n, got)
		}
		want = append(want, prompt("one", n), "end of one")
	}
	e.wantStored(want...)
}

func TestLastLineWithoutEndIsARecord(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", prompt("one", 1)+"\n"+prompt("one", 2))
	if got := e.once(); got.Records != 2 || got.Waiting != 0 {
		t.Fatalf("shipped %+v", got)
	}
	e.append("garden/one.jsonl", "\n"+lines(prompt("one", 3)))
	if got := e.once(); got.Records != 1 || got.Duplicates != 0 {
		t.Fatalf("then shipped %+v", got)
	}
	e.wantStored(prompt("one", 1), prompt("one", 2), "end of one", prompt("one", 3), "end of one")
}

// If the first half were shipped as a record, the second half would be lost.
func TestHalfWrittenLastLineWaits(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	half := prompt("one", 2)
	e.write("garden/one.jsonl", prompt("one", 1)+"\n"+half[:40])
	if got := e.once(); got.Records != 1 || got.Waiting != 1 {
		t.Fatalf("shipped %+v", got)
	}
	if got := e.once(); got.Records != 0 || got.Waiting != 1 {
		t.Fatalf("%+v was shipped again", got)
	}
	e.append("garden/one.jsonl", half[40:]+"\n")
	if got := e.once(); got.Records != 1 || got.Waiting != 0 {
		t.Fatalf("then shipped %+v", got)
	}
	e.wantStored(prompt("one", 1), "end of one", half, "end of one")
}

func TestOnlyLineOfAFileIsShippedWhenComplete(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/whole.jsonl", prompt("one", 1))
	e.write("garden/half.jsonl", prompt("two", 1)[:40])
	if got := e.once(); got.Records != 1 || got.Waiting != 1 {
		t.Fatalf("shipped %+v", got)
	}
	e.wantStored(prompt("one", 1), "end of one")
}

func TestHalfWrittenLineOfAnIdleFileIsShipped(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", prompt("one", 1)+"\n"+prompt("one", 2)[:40])
	e.aged("garden/one.jsonl")
	if got := e.once(); got.Records != 2 || got.Waiting != 0 {
		t.Fatalf("shipped %+v", got)
	}
	e.wantStored(prompt("one", 1), prompt("one", 2)[:40], "end of one")
}

// The file of a subagent is named after the subagent, but its records state the session of
// its parent.
func TestSubagentBelongsToTheSessionOfItsParent(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.mkdir("garden/parent/subagents")
	side := strings.Replace(prompt("parent", 1), `"type":`, `"isSidechain":true,"agentId":"a1","type":`, 1)
	e.write("garden/parent/subagents/agent-a1.jsonl", lines(side))
	e.once()
	for _, r := range e.wantStored(side, "end of parent") {
		if r.Session != "parent" {
			t.Errorf("the record has session %s", r.Session)
		}
	}
}

// The file of a resumed session starts with records of the previous session.
func TestTwoSessionsInOneFileKeepTheirOrder(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	mixed := []string{prompt("old", 1), prompt("new", 1), prompt("old", 2), prompt("new", 2)}
	e.write("garden/new.jsonl", lines(mixed...))
	e.once()
	all := e.wantStored(append(mixed, "end of old", "end of new")...)
	for i, session := range []string{"old", "new", "old", "new", "old", "new"} {
		if all[i].Session != session {
			t.Errorf("message %d has session %s, want %s", i, all[i].Session, session)
		}
	}
	for i, previous := range []int64{-1, -1, all[0].Origin.Position, all[1].Origin.Position} {
		if got := all[i].Origin.Previous; got != previous {
			t.Errorf("the record before record %d of its session has position %d, want %d", i, got, previous)
		}
	}
}

// An id that is no subject token travels whole in a header.
func TestSessionIDMayBeAnyText(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	long := strings.Repeat("grün.*> ", 40)
	e.write("garden/one.jsonl", lines(prompt("a.b c", 1), prompt(long, 1)))
	e.once(func(c *ship.Config) { c.BatchRecords = 1 })
	all := e.wantStored(prompt("a.b c", 1), prompt(long, 1), "end of a.b c", "end of "+long)
	if all[0].Session != "a.b c" || all[1].Session != long {
		t.Errorf("sessions %q and %q", all[0].Session, all[1].Session)
	}
}

func TestRecordLargerThanAMessageTravelsByClaimCheck(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	e := newEdge(t, func(c *embedded.Config) { c.MaxPayload = limit })
	large := strings.Replace(prompt("one", 2), "water", strings.Repeat("w", 10*limit), 1)
	e.write("garden/one.jsonl", lines(prompt("one", 1), large, prompt("one", 3)))
	e.write("garden/two.jsonl", lines(prompt("two", 1)))

	dry := e.once(func(c *ship.Config) { c.DryRun = true })
	got := e.once(func(c *ship.Config) { c.Parallel = 1 })
	if got.Records != 4 || len(got.Refused) != 0 || got.Bytes < 10*limit {
		t.Fatalf("shipped %+v", got)
	}
	if dry.Records != got.Records || dry.Bytes != got.Bytes {
		t.Errorf("a dry run announced %+v", dry)
	}
	all := e.wantStored(prompt("one", 1), large, prompt("one", 3), "end of one", prompt("two", 1), "end of two")
	for i, r := range all {
		want := ""
		if i == 1 {
			want = claims.Of([]byte(large)).String()
		}
		if claim := r.header.Get(envelopes.HeaderClaim); claim != want {
			t.Errorf("record %d has claim %q, want %q", i, claim, want)
		}
	}
	if p := all[2].Origin.Previous; p != all[1].Origin.Position {
		t.Errorf("the record before is at %d, want %d", p, all[1].Origin.Position)
	}
	if again := e.once(); again.Records != 0 {
		t.Errorf("%+v was shipped again", again)
	}
}

// No size falls between the two ways to send a record: too large for a message and too small
// for a claim check. That holds for messages in a batch and alone.
func TestRecordsOfEverySizeAreStored(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	var records []string
	for _, around := range []int{limit / 2, limit} {
		for n := around - 700; n < around+100; n += 23 {
			records = append(records, strings.Replace(prompt("one", 1), "water", strings.Repeat("w", n), 1))
		}
	}
	for _, batch := range []int{1, 7, 1000} {
		e := newEdge(t, func(c *embedded.Config) { c.MaxPayload = limit })
		e.write("garden/one.jsonl", lines(records...))
		got := e.once(func(c *ship.Config) { c.BatchRecords = batch })
		if got.Records != len(records) || len(got.Refused) != 0 {
			t.Fatalf("of %d records %+v was shipped", len(records), got)
		}
		claimed := 0
		for i, r := range e.wantStored(append(slices.Clone(records), "end of one")...) {
			inline := r.header.Get(envelopes.HeaderClaim) == ""
			if want := i == len(records) || len(records[i]) <= limit/2; inline != want {
				t.Errorf("record %d is in its message: %v, want %v", i, inline, want)
			}
			if !inline {
				claimed++
			}
		}
		if claimed == 0 || claimed == len(records) {
			t.Errorf("%d of %d records travel by claim check", claimed, len(records))
		}
	}
}

// The limit of the stream is below that of the server, and shows only in the answer to a
// message.
func TestRecordTooLargeForTheStreamIsRefused(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	s, err := e.js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.MaxMsgSize = 4 << 10
	if _, err := e.js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	large := strings.Replace(prompt("one", 2), "water", strings.Repeat("w", 8<<10), 1)
	e.write("garden/one.jsonl", lines(prompt("one", 1), large, prompt("one", 3)))
	got := e.once()
	if got.Records != 2 || got.Refused[ship.ReasonTooLarge] != 1 || got.Refusals[0].Line != 2 {
		t.Fatalf("shipped %+v", got)
	}
	e.wantStored(prompt("one", 1), prompt("one", 3), "end of one")
}

// The record is dropped as it is read.
func TestRecordOverTheLimitIsDropped(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes 70 MB")
	}
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1), `{"sessionId":"one","x":"`+strings.Repeat("x", 70<<20)+`"}`, prompt("one", 3)))
	got := e.once()
	if got.Records != 2 || got.Refused[ship.ReasonTooLarge] != 1 || got.Refusals[0].Line != 2 {
		t.Fatalf("shipped %d records, refused %v", got.Records, got.Refusals)
	}
	e.wantStored(prompt("one", 1), prompt("one", 3), "end of one")
}

func TestUnreadableFileDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.unreadable("garden/bad.jsonl")
	e.write("garden/good.jsonl", lines(prompt("good", 1)))
	got := e.once()
	if got.Files != 2 || got.Records != 1 || got.Refused[ship.ReasonUnreadable] != 1 || got.Refusals[0].Path != e.path("garden/bad.jsonl") {
		t.Fatalf("shipped %+v", got)
	}
	e.wantStored(prompt("good", 1), "end of good")
}

// unreadable makes a file that not even root can read.
func (e *edge) unreadable(name string) {
	e.t.Helper()
	if runtime.GOOS != "linux" {
		e.t.Skip("needs a file of Linux that cannot be read at its start")
	}
	if err := os.Symlink("/proc/self/mem", e.path(name)); err != nil {
		e.t.Fatal(err)
	}
}

func TestFileOfAnUnknownAgentIsRefused(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "shopping list")
	if err := os.WriteFile(path, []byte("{\"bread\": 2}\n{\"milk\": 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := e.once(func(c *ship.Config) { c.Paths = []string{path} })
	if got.Records != 0 || got.Refused[ship.ReasonUnknownSource] != 1 {
		t.Fatalf("shipped %+v", got)
	}
	r := got.Refusals[0]
	if r.Path != path || !strings.Contains(r.Error(), "--source") {
		t.Errorf("refusal does not name file and cure: %v", &r)
	}
	got = e.once(func(c *ship.Config) { c.Paths, c.Source = []string{path}, envelopes.ClaudeCode })
	if got.Records != 2 || len(got.Refusals) != 0 {
		t.Fatalf("with a source shipped %+v", got)
	}
	e.wantStored(`{"bread": 2}`, `{"milk": 1}`, "end of shopping list")
}

// A log of an agent without a normalizer is not taken for another's: the refusal names its agent.
func TestFileOfAnAgentWithoutNormalizerIsRefused(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	log := lines(`{"type":"system","subtype":"init","uuid":"u1","session_id":"one","cwd":"/w","tools":[],"qwen_code_version":"0.14.0"}`, prompt("one", 1))
	e.write("garden/one.jsonl", log)
	named := func(c *ship.Config) { c.Roots, c.Paths = nil, []string{e.path("garden/one.jsonl")} }
	got := e.once(named)
	if got.Records != 0 || got.Refused[ship.ReasonUnknownSource] != 1 {
		t.Fatalf("shipped %+v", got)
	}
	if err := got.Refusals[0].Error(); !strings.Contains(err, "Qwen Code") || !strings.Contains(err, "--source") {
		t.Errorf("refusal does not name agent and cure: %v", err)
	}
	if got = e.once(named, func(c *ship.Config) { c.Source = envelopes.ClaudeCode }); got.Records != 2 {
		t.Errorf("with a source shipped %+v", got)
	}
}

// A log of another agent in an agent's own folder is not taken for one of that agent: the refusal names both.
func TestLogOfAnotherAgentInAFolderIsRefused(t *testing.T) {
	t.Parallel()
	for agent, line := range map[string]string{
		"Qwen Code": `{"uuid":"u1","parentUuid":null,"sessionId":"one","timestamp":"2026-08-05T18:47:42Z","type":"user","message":{"role":"user","parts":[{"text":"x"}]}}`,
		"Codex":     `{"timestamp":"2026-03-01T10:00:00.000Z","type":"session_meta","payload":{"id":"one","timestamp":"2026-03-01T10:00:00.000Z","cwd":"/w","originator":"codex_cli_rs","cli_version":"0.42.0"}}`,
	} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			e.write("garden/one.jsonl", lines(line, prompt("one", 1)))
			e.write("garden/two.jsonl", lines(prompt("two", 1)))
			got := e.once()
			if got.Records != 1 || got.Refused[ship.ReasonUnknownSource] != 1 {
				t.Fatalf("shipped %+v", got)
			}
			if err := got.Refusals[0].Error(); !strings.Contains(err, "a log of "+agent) || !strings.Contains(err, "in a folder of Claude Code") || !strings.Contains(err, "--source") {
				t.Errorf("refusal does not name both agents and the cure: %v", err)
			}
			if got = e.once(func(c *ship.Config) { c.Source = envelopes.ClaudeCode }); got.Records != 2 {
				t.Errorf("with a source shipped %+v", got)
			}
		})
	}
}

// The identity is the same whether the user names the file, its folder, a link, or nothing.
func TestIdentityOfAFileIsTheSameByAnyPath(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(e.path("garden"), link); err != nil {
		t.Skip(err)
	}
	for _, paths := range [][]string{nil, {e.path("garden/one.jsonl")}, {e.path("garden")}, {link}, {filepath.Join(link, "one.jsonl")}} {
		got := e.once(func(c *ship.Config) { c.Paths, c.Offsets = paths, "" })
		if got.Files != 1 || got.Records != 1 {
			t.Errorf("%v: shipped %+v", paths, got)
		}
	}
	e.wantStored(prompt("one", 1), "end of one")
}

func TestNamedFolderMayHaveLogsOfAnyName(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.log": lines(prompt("a", 1)), "deep/down/b": lines(prompt("b", 1)), ".git/c.jsonl": lines(prompt("c", 1)),
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	got := e.once(func(c *ship.Config) { c.Paths, c.Parallel = []string{dir}, 1 })
	if got.Files != 2 || got.Records != 2 {
		t.Fatalf("shipped %+v", got)
	}
	e.wantStored(prompt("a", 1), "end of a", prompt("b", 1), "end of b")
}

func TestOtherSourcesAndOldFilesAreSkipped(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/old.jsonl", lines(prompt("old", 1)))
	e.aged("garden/old.jsonl")
	e.write("garden/new.jsonl", lines(prompt("new", 1)))
	if got := e.once(func(c *ship.Config) { c.Source = envelopes.Codex }); got.Files != 0 {
		t.Errorf("with another source shipped %+v", got)
	}
	if got := e.once(func(c *ship.Config) { c.Since = time.Now().Add(-time.Hour) }); got.Files != 1 || got.Records != 1 {
		t.Errorf("since an hour shipped %+v", got)
	}
	e.wantStored(prompt("new", 1), "end of new")
}

func TestDryRunSendsAndStoresNothing(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompts("one", 1, 2)...))
	e.once()
	e.append("garden/one.jsonl", lines(prompts("one", 3, 5)...))
	e.write("garden/two.jsonl", lines(prompts("two", 1, 4)...))
	before, err := os.ReadFile(e.offsets)
	if err != nil {
		t.Fatal(err)
	}
	c := e.config()
	c.DryRun = true
	s, err := ship.New(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := s.Summary()
	if got.Files != 2 || got.Records != 7 || got.Sessions != 2 || got.Bytes == 0 {
		t.Errorf("would ship %+v", got)
	}
	after, err := os.ReadFile(e.offsets)
	if err != nil {
		t.Fatal(err)
	}
	if e.count() != 3 || string(before) != string(after) {
		t.Error("a dry run has stored records or offsets")
	}
}

func TestPathThatDoesNotExistIsAnError(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	c := e.config()
	c.Once, c.Paths = true, []string{e.path("garden/none.jsonl")}
	s, err := ship.New(e.js.Conn(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none.jsonl") {
		t.Errorf("error is %v", err)
	}
	if _, err := ship.New(e.js.Conn(), ship.Config{}); !errors.Is(err, ship.ErrNothingToShip) {
		t.Errorf("error is %v", err)
	}
}

func TestPathThatIsNoFileIsRefused(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	got := e.once(func(c *ship.Config) { c.Paths = []string{os.DevNull} })
	if got.Files != 0 || got.Refused[ship.ReasonUnreadable] != 1 {
		t.Errorf("shipped %+v", got)
	}
}

// The folders of some agents, as they are by default and as their variables say.
func TestRootsFollowTheEnvironment(t *testing.T) {
	t.Parallel()
	claude := func(dir string) ship.Root {
		return ship.Root{Source: envelopes.ClaudeCode, Dir: filepath.FromSlash(dir), Suffixes: []string{".jsonl"}}
	}
	codex := func(dir string) ship.Root {
		return ship.Root{Source: envelopes.Codex, Dir: filepath.FromSlash(dir), Suffixes: []string{".jsonl"}, Moved: true}
	}
	gemini := func(dir string) ship.Root {
		return ship.Root{Source: envelopes.Gemini, Dir: filepath.FromSlash(dir), Suffixes: []string{".json", ".jsonl"}}
	}
	cursor := func(dir string) ship.Root {
		return ship.Root{Source: envelopes.Cursor, Dir: filepath.FromSlash(dir), Suffixes: []string{".jsonl"}, Within: "agent-transcripts"}
	}
	copilot := func(dir, suffix string) ship.Root {
		return ship.Root{Source: envelopes.Copilot, Dir: filepath.FromSlash(dir), Suffixes: []string{suffix}}
	}
	var editor []ship.Root // whatever the environment says
	for _, settings := range []string{".config", "Library/Application Support", "AppData/Roaming"} {
		editor = append(editor, ship.Root{
			Source: envelopes.Cursor, Dir: filepath.Join("/home/ada", settings, "Cursor/User/globalStorage"), Suffixes: []string{"state.vscdb"}, Flat: true,
		})
	}
	for name, c := range map[string]struct {
		env  map[string]string
		want []ship.Root
	}{
		"default folders": {nil, []ship.Root{
			claude("/home/ada/.claude/projects"),
			codex("/home/ada/.codex/sessions"), codex("/home/ada/.codex/archived_sessions"),
			gemini("/home/ada/.gemini/tmp"),
			cursor("/home/ada/.cursor/projects"),
			copilot("/home/ada/.copilot/session-state", ".jsonl"), copilot("/home/ada/.copilot/history-session-state", ".json"),
		}},
		"folders of the environment": {map[string]string{
			"CLAUDE_CONFIG_DIR": "/a, /b c,", "CODEX_HOME": "/x", "GEMINI_CLI_HOME": "/g", "CURSOR_DATA_DIR": "/c", "COPILOT_HOME": "/p",
		}, []ship.Root{
			claude("/a/projects"), claude("/b c/projects"),
			codex("/x/sessions"), codex("/x/archived_sessions"),
			gemini("/g/.gemini/tmp"),
			cursor("/c/projects"),
			copilot("/p/session-state", ".jsonl"), copilot("/p/history-session-state", ".json"),
		}},
	} {
		getenv := func(name string) string { return c.env[name] }
		all := ship.Roots("/home/ada", getenv)
		for _, v := range normalizers.Vendors() {
			if n := len(v.Logs.Folders); n > 0 && !slices.ContainsFunc(all, func(r ship.Root) bool { return r.Source == v.Source }) {
				t.Errorf("%s: none of the %d folders of %s", name, n, v.Source)
			}
		}
		got := slices.DeleteFunc(all, func(r ship.Root) bool {
			return !slices.ContainsFunc(c.want, func(want ship.Root) bool { return want.Source == r.Source })
		})
		if diff := cmp.Diff(slices.Concat(c.want, editor), got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestRootThatDoesNotExistYetIsNoError(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	if err := os.RemoveAll(e.root); err != nil {
		t.Fatal(err)
	}
	if got := e.once(); got.Files != 0 || len(got.Refusals) != 0 {
		t.Errorf("shipped %+v", got)
	}
}

func TestInterruptedOnceReturnsTheErrorOfTheContext(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1)))
	c := e.config()
	c.Once = true
	s, err := ship.New(e.js.Conn(), c)
	if err != nil {
		t.Fatal(err)
	}
	e.server.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

// A folder that an agent hides and keeps its logs in is searched, and no other hidden folder.
func TestHiddenFolderOfLogsIsSearched(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.mkdir("s1/.system/logs")
	e.mkdir("s1/.cache/logs")
	e.write("s1/.system/logs/one.jsonl", lines(prompt("one", 1)))
	e.write("s1/.cache/logs/two.jsonl", lines(prompt("two", 1)))
	e.write("s1/three.jsonl", lines(prompt("three", 1)))
	got := e.once(func(c *ship.Config) { c.Roots[0].Within = ".system" })
	if got.Files != 1 || got.Sessions != 1 || got.Records != 1 {
		t.Errorf("%d files, %d sessions, %d records", got.Files, got.Sessions, got.Records)
	}
}

// The same in a folder that the user names.
func TestHiddenFolderOfLogsIsSearchedBelowAPath(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	copied := t.TempDir()
	for _, name := range []string{".system", ".cache"} {
		if err := os.MkdirAll(filepath.Join(copied, "s1", name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, "s1", name, "log.jsonl"), []byte(lines(prompt(name[1:], 1))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := e.once(func(c *ship.Config) { c.Roots[0].Within, c.Paths = ".system", []string{copied} })
	if got.Files != 1 || got.Records != 1 || got.Hidden != 1 {
		t.Errorf("%d files, %d records, %d hidden folders", got.Files, got.Records, got.Hidden)
	}
}

// The folder of Cursor's projects has other files, too.
func TestOnlyTranscriptsOfCursorAreShipped(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for _, name := range []string{"app/agent-transcripts/s1/s1.jsonl", "app/agent-transcripts/s2.jsonl", "app/agent-transcripts/s1/notes.txt", "app/terminals/other.jsonl", "agent-transcripts.jsonl"} {
		path := filepath.Join(home, ".cursor", "projects", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(`{"role":"user","message":{"content":[{"type":"text","text":"hello"}]}}`+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := newEdge(t).once(func(c *ship.Config) { c.Roots = ship.Roots(home, func(string) string { return "" }) })
	if got.Files != 2 || got.Sessions != 2 || got.Records != 2 {
		t.Errorf("%d files, %d sessions, %d records", got.Files, got.Sessions, got.Records)
	}
}
