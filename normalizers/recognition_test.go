package normalizers_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// stranger is a log of an agent without a normalizer.
type stranger struct {
	agent string // by which it is refused
	log   string // each line a record, unless it is one document
	// shared are how many of its records have nothing that is the agent's alone.
	shared int
}

// strangers are logs of the shapes that agents without a normalizer write.
var strangers = map[string]stranger{
	"Qwen Code, a run": {"Qwen Code", `{"type":"system","subtype":"init","uuid":"s1","session_id":"s1","cwd":"/w","tools":["edit"],"model":"coder-model","permission_mode":"yolo","qwen_code_version":"0.14.0","agents":[]}`, 0},
	"Amp":              {"Amp", `{"v":9,"id":"T-0198","created":1700000000000,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`, 0},
	"Amp, a run": {"Amp", `{"type":"system","subtype":"init","cwd":"/w","session_id":"T-0198","tools":["Bash"],"mcp_servers":[]}
{"type":"user","message":{"role":"user","content":[{"type":"text","text":"x"}]},"parent_tool_use_id":null,"session_id":"T-0198"}
{"type":"result","subtype":"success","duration_ms":9,"is_error":false,"num_turns":1,"result":"x","session_id":"T-0198"}`, 0},
	"Aider": {"Aider", "\n# aider chat started at 2026-04-25 20:19:21\n\n> Aider v0.86.2  \n\n#### hello  \n\nhi\n", 7},
	"messages of an API": {"", `{"role":"user","content":"x"}
{"id":"m1","role":"assistant","content":[{"type":"text","text":"x"}],"model":"m"}
[{"id":"u1","role":"user","parts":[{"type":"text","text":"x"}]}]
{"id":"u1","role":"user","parts":[{"type":"text","text":"x"}]}
{"type":"message","sessionId":"s1","id":"m1","timestamp":1767812641000,"role":"user","content":[]}
{"type":"reasoning","sessionId":"s1","summary":[]}
{"sessionId":"s1","title":"t","history":[{"message":{"role":"user","content":"x"}}]}
{"sessionId":"s1","messages":[{"role":"user","content":"x"}]}
{"type":"opened","payload":{"n":1}}
{"record_type":"span","name":"x"}`, 10},
}

// recognize returns by what the framer knows the agent of a file.
func recognize(data string) normalizers.Recognition {
	f := normalizers.NewFramer(normalizerstest.FileNamed("", "log.jsonl"))
	_, _ = f.Write([]byte(data)) // never fails by contract
	f.Close()
	return f.Recognition()
}

// A log of an agent without a normalizer is refused by the agent's name.
func TestStrangersAreRefusedByName(t *testing.T) {
	t.Parallel()
	for name, s := range strangers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line, _, _ := strings.Cut(s.log, "\n")
			for _, front := range []string{"", "\n\n", "\xef\xbb\xbf", line[len(line)/2:] + "\n"} {
				r := recognize(front + s.log)
				if r.Source != "" || r.Agent != s.agent {
					t.Errorf("behind %q: %+v, want %s", front, r, s.agent)
				}
				err := r.Err()
				if err == nil || !strings.Contains(err.Error(), r.Agent) || !strings.Contains(err.Error(), "--source") {
					t.Errorf("behind %q: refused with %v", front, err)
				}
			}
			if f := normalizers.NewFramer(normalizerstest.FileNamed("codex", "log.jsonl")); f.Recognition().Source != "codex" || f.Recognition().Err() != nil {
				t.Errorf("forced: %+v", f.Recognition())
			}
		})
	}
}

// A record of an agent without a normalizer is nobody else's, whatever stands before it.
func TestRecordsOfStrangersAreNobodyElses(t *testing.T) {
	t.Parallel()
	for name, s := range strangers {
		var shared int
		for line := range strings.SplitSeq(s.log, "\n") {
			r := recognize(line)
			if r.Source != "" {
				t.Errorf("%s: taken for %s by %s:\n%s", name, r.Source, r.Marker, line)
			}
			if r.Agent == "" {
				shared++
			}
		}
		if shared != s.shared && strings.HasPrefix(s.log, "{") {
			t.Errorf("%s: %d records have nothing that is the agent's alone, want %d", name, shared, s.shared)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		names := make([]string, 0, len(strangers))
		for name := range strangers {
			names = append(names, name)
		}
		slices.Sort(names)
		log := strangers[rapid.SampledFrom(names).Draw(rt, "agent")].log
		cut := log[rapid.IntRange(0, len(log)).Draw(rt, "from"):]
		cut = cut[:rapid.IntRange(0, len(cut)).Draw(rt, "to")]
		if r := recognize(cut); r.Source != "" {
			rt.Fatalf("taken for %s by %s:\n%s", r.Source, r.Marker, cut)
		}
	})
}

// A record of a vendor is recognized as the vendor's own, or as nobody's.
func TestRecordsOfVendorsAreTheirOwn(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		for _, g := range normalizerstest.Goldens(t, s) {
			checkOwnLines(t, s, g.Name, g.Raw)
		}
	}
}

// The same for the logs of the corpus.
func TestCorpusRecordsAreTheirOwn(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			for _, f := range normalizerstest.Corpus(t, s) {
				checkOwnLines(t, s, f.Name, f.Data)
			}
		})
	}
}

// checkOwnLines checks that no line of a vendor's log alone is taken for one of another agent.
func checkOwnLines(t *testing.T, s normalizerstest.Suite, name string, data []byte) {
	t.Helper()
	for i, line := range bytes.Split(data, []byte("\n")) {
		if r := recognize(string(line)); r.Agent != "" && r.Source != s.Source && !slices.Contains(normalizers.VendorOf(s.Source).LogOf, r.Source) {
			t.Errorf("%s, line %d: taken for %s by %s", name, i+1, r.Agent, r.Marker)
		}
	}
}

// A log in the folder of an agent that writes the log of another one is the folder's.
func TestSharedLogIsThatOfItsFolder(t *testing.T) {
	t.Parallel()
	const log = `{"type":"session","version":3,"id":"s1","timestamp":"2026-02-24T09:00:00Z","cwd":"/w"}`
	for source, want := range map[envelopes.Source]envelopes.Source{
		"": envelopes.Pi, envelopes.OpenClaw: envelopes.OpenClaw, envelopes.Pi: envelopes.Pi, envelopes.Codex: "",
	} {
		file := normalizerstest.FileNamed(source, "log.jsonl")
		file.Assumed = source != ""
		f := normalizers.NewFramer(file)
		_, _ = f.Write([]byte(log)) // never fails by contract
		f.Close()
		if got := f.Recognition().Source; got != want {
			t.Errorf("in a folder of %q it is of %q, want %q", source, got, want)
		}
	}
}

// A log that two agents write begins alike: a sign of the other one decides for the whole file, until the first record
// that is not shared.
func TestSharedLogIsThatOfItsFirstSign(t *testing.T) {
	t.Parallel()
	const (
		header = `{"type":"session","version":3,"id":"s1","timestamp":"2026-02-24T09:00:00Z","cwd":"/w"}`
		prompt = `{"type":"message","id":"m1","parentId":null,"timestamp":"2026-02-24T09:00:01Z","message":{"role":"user","content":"x","timestamp":1}}`
		answer = `{"type":"message","id":"m2","parentId":"m1","timestamp":"2026-02-24T09:00:02Z","message":{"role":"assistant","content":[],"provider":"p"}}`
		sign   = `{"type":"custom","id":"c1","parentId":null,"timestamp":"2026-02-24T09:00:01Z","customType":"model-snapshot","data":{}}`
		other  = `{"type":"session_meta","timestamp":"2026-02-24T09:00:01Z","payload":{"id":"x","cwd":"/w"}}`
	)
	for _, c := range []struct {
		lines []string
		want  envelopes.Source
		line  int // that decides
	}{
		{[]string{header, prompt}, envelopes.Pi, 1},
		{[]string{header, sign, prompt, answer}, envelopes.OpenClaw, 2},
		{[]string{header, prompt, "torn", sign, answer}, envelopes.OpenClaw, 4},
		{[]string{header, prompt, answer, sign}, envelopes.Pi, 1},
		{[]string{header, other, answer}, envelopes.Pi, 1},
	} {
		records := normalizerstest.Frame(normalizerstest.FileNamed("", "log.jsonl"), []byte(strings.Join(c.lines, "\n")))
		if is := recognize(strings.Join(c.lines, "\n")); is.Source != c.want || is.Line != c.line {
			t.Errorf("%q: %+v, want %s by line %d", c.lines, is, c.want, c.line)
		}
		for _, r := range records {
			if r.Record.Source != c.want || r.Record.Session != "s1" {
				t.Errorf("%q: line %d is of %s, session %q", c.lines, r.Line, r.Record.Source, r.Record.Session)
			}
		}
	}
}

// A recognition says which record decided, and no content of it.
func TestRecognitionIsExplained(t *testing.T) {
	t.Parallel()
	r := recognize("\n" + `{"type":"secret-type","sessionId":"s1"}` + "\n" + `{"type":"user","uuid":"u1","sessionId":"s1","message":{"role":"user","content":"secret"}}`)
	if want := (normalizers.Recognition{Source: "claude_code", Agent: "Claude Code", Marker: "type user, sessionId, message.content", Line: 3}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	if r := recognize(`{"type":"secret-type","sessionId":"s1"}`); r != (normalizers.Recognition{}) {
		t.Errorf("a session alone decides: %+v", r)
	}
}

// No log of an agent in TRIBUTARY_CORPUS_AGENTS that has no normalizer is taken for one of a vendor, and no line of it
// is.
func TestCorpusOfStrangers(t *testing.T) {
	t.Parallel()
	root := os.Getenv("TRIBUTARY_CORPUS_AGENTS")
	if root == "" {
		t.Skip("TRIBUTARY_CORPUS_AGENTS is not set")
	}
	read := make(map[string]bool)
	for _, s := range suites {
		for _, folder := range s.Folders {
			read[folder] = true
		}
	}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && read[d.Name()] && filepath.Dir(path) == root {
			return filepath.SkipDir
		}
		if err != nil || !d.Type().IsRegular() || filepath.Dir(path) == root {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		parts := []string{string(data)}
		if i := bytes.IndexByte(data, '\n'); i > 0 {
			parts = append(parts, string(data[i/2:]), string(data[i:]))
		}
		for i, part := range append(parts, strings.Split(string(data), "\n")...) {
			if r := recognize(part); r.Source != "" {
				return fmt.Errorf("%s, part %d: taken for %s by %s", path, i, r.Source, r.Marker)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
