package transcript_test

import (
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/sessions/transcript"
)

var update = flag.Bool("update", false, "rewrite the outlines")

// eventsOf yields the events of the log of one session.
func eventsOf(t *testing.T, name string, log []byte) iter.Seq2[*envelopes.AgentEventV1, error] {
	t.Helper()
	return func(yield func(*envelopes.AgentEventV1, error) bool) {
		framer := normalizers.NewFramer(normalizers.File{Name: name + ".jsonl"})
		if _, err := framer.Write(log); err != nil {
			t.Fatal(err)
		}
		framer.Close()
		var session *core.Session
		for framed, ok := framer.Next(); ok; framed, ok = framer.Next() {
			if session == nil {
				session = normalizers.NewSession(framed.Record.Source, framed.Record.Session)
			}
			if session.ID() != framed.Record.Session {
				continue
			}
			result, err := normalizers.Normalize(session, framed.Record)
			if err != nil {
				t.Fatalf("line %d: %v", framed.Line, err)
			}
			for _, emitted := range result.Events {
				if !yield(&emitted.Event, nil) {
					return
				}
			}
		}
	}
}

// outline writes a transcript, a line for each turn and each item.
func outline(t *testing.T, tr *transcript.Transcript) string {
	t.Helper()
	var b strings.Builder
	sums := func(s *transcript.Section) string {
		usage := s.Usage()
		return fmt.Sprintf("%d items, %d calls, %d failed, %d errors, %d tokens, %v", s.Items, s.Calls, s.Failures, s.Errors, usage.Total(), s.End.Sub(s.Begin))
	}
	for _, turn := range tr.Turns() {
		fmt.Fprintf(&b, "turn %d: %s\n", turn.Number, sums(&turn.Section))
		for i, err := range tr.Items(turn.Number) {
			if err != nil {
				t.Fatal(err)
			}
			if i.Turn != turn.Number {
				t.Errorf("an item of turn %d says that it is of turn %d", turn.Number, i.Turn)
			}
			line := strings.Repeat("  ", i.Depth+1) + string(i.Type)
			if i.IsNoise() {
				line += " (noise)"
			}
			switch c := i.Call; {
			case i.Section != nil:
				line += fmt.Sprintf(" %s %q: %s", i.Agent, i.Title, sums(i.Section))
			case c != nil:
				line += fmt.Sprintf(" %s %s %s %q", c.Tool, c.Kind, c.Status, c.Path+c.Command+c.Query)
				if c.ExitCode != nil {
					line += " exit " + strconv.FormatInt(*c.ExitCode, 10)
				}
				if c.ElapsedMS != nil {
					line += fmt.Sprintf(" after %d ms", *c.ElapsedMS)
				}
				line += fmt.Sprintf(" arguments %d, diff %d, output %q, stderr %q", len(c.Arguments), len(c.Diff), short(c.Output), short(c.Stderr))
			default:
				line += fmt.Sprintf(" %q", short(i.Text))
			}
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

func short(text string) string { return text[:min(len(text), 60)] }

// TestOutlinesOfVendors compares the outline of a log of each vendor with that of its file, which -update rewrites. The
// log of some vendors is that of another one, but for its folder.
func TestOutlinesOfVendors(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	vendors := slices.DeleteFunc(normalizers.Vendors(), func(v *core.Vendor) bool { return len(v.LogOf) > 0 })
	if err != nil || len(files) < len(vendors) {
		t.Fatalf("%d files of %d vendors: %v", len(files), len(vendors), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tr, err := transcript.Read(eventsOf(t, name, archive.Files[0].Data), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			got := outline(t, tr)
			if *update {
				archive.Files = append(archive.Files[:1], txtar.File{Name: "outline", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(archive.Files[1].Data), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("(-want +got; -update rewrites it):\n%s", diff)
			}
		})
	}
}

// longSession yields the events of a session: a prompt, then calls with their results.
func longSession(calls, size int) iter.Seq2[*envelopes.AgentEventV1, error] {
	return func(yield func(*envelopes.AgentEventV1, error) bool) {
		begin := time.Date(2026, 3, 9, 9, 0, 0, 0, time.UTC)
		role := envelopes.RoleUser
		n := 0
		event := func(kind envelopes.EventType, text string) *envelopes.AgentEventV1 {
			n++
			return &envelopes.AgentEventV1{
				Source: envelopes.ClaudeCode, SessionID: "s", EventID: strconv.Itoa(n), TS: begin.Add(time.Duration(n) * time.Second).Format(time.RFC3339),
				EventType: kind, Role: &role, Text: &text, Sequence: uint64(n),
			}
		}
		if !yield(event(envelopes.UserMessage, "Begin."), nil) {
			return
		}
		output := strings.Repeat("0123456789", size/10)
		for i := range calls {
			call := event(envelopes.ToolCall, `{"command":"ls"}`)
			call.ToolName, call.ToolCallID = new("Bash"), new(fmt.Sprintf("call_%d", i))
			result := event(envelopes.ToolResult, fmt.Sprint(i, output))
			result.ToolName, result.ToolCallID, result.ToolStatus = call.ToolName, call.ToolCallID, new(envelopes.StatusSuccess)
			result.Usage = &envelopes.Usage{Output: 1}
			if !yield(call, nil) || !yield(result, nil) {
				return
			}
		}
	}
}

// TestMemoryDoesNotGrowWithTheTexts has 100,000 events with 100 MB of texts, which are in a file: it is removed in the end.
func TestMemoryDoesNotGrowWithTheTexts(t *testing.T) {
	const calls, size = 50_000, 1000
	dir := t.TempDir()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	tr, err := transcript.Read(longSession(calls, size), dir)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	const limit = 32 << 20
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > limit {
		t.Errorf("the transcript takes %d MiB", grown>>20)
	}
	n := 0
	for i, err := range tr.Items(1) {
		if err != nil {
			t.Fatal(err)
		}
		if c := i.Call; c != nil {
			if want := strconv.Itoa(n) + "0123456789"; !strings.HasPrefix(c.Output, want) || len(c.Output) < size {
				t.Fatalf("call %d has the output %.20s of %d bytes", n, c.Output, len(c.Output))
			}
			n++
		}
	}
	if turns := tr.Turns(); n != calls || len(turns) != 1 || turns[0].Calls != calls || turns[0].Models[""].Output != calls {
		t.Errorf("%d calls, turns %+v", n, turns)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d temporary files", len(files))
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("%d temporary files are left", len(files))
	}
}

// TestTurnsKnowTheTokensOfLargePrompts has an API call with a large prompt and one without, in a turn and in its subagent.
func TestTurnsKnowTheTokensOfLargePrompts(t *testing.T) {
	t.Parallel()
	tr, err := transcript.Read(func(yield func(*envelopes.AgentEventV1, error) bool) {
		for n, internal := range []bool{false, true, false, true} {
			e := &envelopes.AgentEventV1{
				EventType: envelopes.AssistantMessage, Text: new("Done."), Model: new("gemini"), IsInternal: internal, TS: "2026-03-09T09:00:00Z", Sequence: uint64(n + 1),
				Usage: &envelopes.Usage{Input: 1, Prompt: 1},
			}
			if n < 2 {
				e.Usage = &envelopes.Usage{Input: 250_000, Prompt: 250_000}
			}
			if !yield(e, nil) {
				return
			}
		}
	}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	got := tr.Turns()[0].Models["gemini"]
	if large := got.Large.Above(200_000); got.Input != 500_002 || large.Input != 500_000 {
		t.Errorf("%d tokens, %d of large prompts", got.Input, large.Input)
	}
}

// TestReadEndsWithTheErrorOfTheEvents covers a stream that breaks, and no events.
func TestReadEndsWithTheErrorOfTheEvents(t *testing.T) {
	t.Parallel()
	broken := fmt.Errorf("broken")
	_, err := transcript.Read(func(yield func(*envelopes.AgentEventV1, error) bool) { yield(nil, broken) }, "")
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v", err)
	}
	tr, err := transcript.Read(func(func(*envelopes.AgentEventV1, error) bool) {}, "")
	if err != nil || len(tr.Turns()) > 0 {
		t.Errorf("no events: %v, %v", tr, err)
	}
}

// TestDiffsOfSeveralFilesStandApart has a patch of two files.
func TestDiffsOfSeveralFilesStandApart(t *testing.T) {
	t.Parallel()
	e := &envelopes.AgentEventV1{
		Source: envelopes.Codex, EventType: envelopes.ToolCall, EventID: "e", TS: "2026-03-09T09:00:00Z", Sequence: 1,
		ToolName: new("apply_patch"), ToolCallID: new("call"), FilePath: new("a.go"), FileOp: new(envelopes.OpModify),
		Text: new("*** Begin Patch\n*** Update File: a.go\n@@\n-x\n+y\n*** Add File: b.go\n+z\n*** End Patch"),
	}
	tr, err := transcript.Read(func(yield func(*envelopes.AgentEventV1, error) bool) { yield(e, nil) }, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	for i, err := range tr.Items(0) {
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(i.Call.Diff, "\n")
		for _, line := range []string{"--- a/a.go", "-x", "+y", "+++ b/b.go", "+z"} {
			if !slices.Contains(lines, line) {
				t.Errorf("no line %q in\n%s", line, i.Call.Diff)
			}
		}
	}
}

// TestFold keeps the beginning and the end, or what is around a match.
func TestFold(t *testing.T) {
	t.Parallel()
	lines := strings.Split("a b c d e f g h", " ")
	for name, c := range map[string]struct {
		most  int
		match string
		want  transcript.Folded
	}{
		"all":                    {0, "", transcript.Folded{Head: lines}},
		"one more than the most": {7, "", transcript.Folded{Head: lines}},
		"ends":                   {3, "", transcript.Folded{Head: lines[:2], Left: 5, Tail: lines[7:]}},
		"a match":                {3, "e", transcript.Folded{Before: 3, Head: lines[3:6], Left: 2}},
		"a match at the end":     {3, "h", transcript.Folded{Before: 5, Head: lines[5:]}},
		"no match":               {3, "x", transcript.Folded{Head: lines[:2], Left: 5, Tail: lines[7:]}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var match *regexp.Regexp
			if c.match != "" {
				match = regexp.MustCompile(c.match)
			}
			if diff := cmp.Diff(c.want, transcript.Fold(lines, c.most, match)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAgentsThatCallEachOtherLoseNothing has an agent that calls another one, which calls the first in its second turn.
func TestAgentsThatCallEachOtherLoseNothing(t *testing.T) {
	t.Parallel()
	var events []*envelopes.AgentEventV1
	add := func(agent string, kind envelopes.EventType, calls string) {
		e := &envelopes.AgentEventV1{EventType: kind, EventID: strconv.Itoa(len(events)), Text: new("text"), TS: "2026-03-09T09:00:00Z", Sequence: uint64(len(events) + 1)}
		if agent != "" {
			e.AgentID, e.IsInternal = &agent, true
		}
		if calls != "" {
			e.ToolName, e.ToolCallID = new("Task"), &calls
		}
		events = append(events, e)
	}
	add("", envelopes.UserMessage, "")
	add("b", envelopes.ToolCall, "a")
	add("a", envelopes.UserMessage, "")
	add("a", envelopes.UserMessage, "")
	add("a", envelopes.ToolCall, "b")
	add("b", envelopes.ToolCall, "c")
	add("c", envelopes.UserMessage, "")
	tr, err := transcript.Read(func(yield func(*envelopes.AgentEventV1, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	found := map[string]int{}
	for i, err := range tr.Items(1) {
		if err != nil {
			t.Fatal(err)
		}
		if i.Type != transcript.Subagent {
			found[i.EventID]++
		}
	}
	for _, e := range events {
		if found[e.EventID] != 1 {
			t.Errorf("the item of event %s is there %d times", e.EventID, found[e.EventID])
		}
	}
}
