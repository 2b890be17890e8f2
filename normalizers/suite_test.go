package normalizers_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
)

// suite is what the tests know of one source. Every suite passes the same laws: a new
// vendor is one more entry of suites, one folder in testdata, and what a suite names.
type suite struct {
	source envelopes.Source
	// folders of the corpus, below TRIBUTARY_CORPUS.
	folders []string
	// lines generates the lines of a file of one session: well formed, of every type
	// of record that the vendor writes.
	lines func(t *rapid.T, session string) [][]byte
	// apart says that a file is of one session.
	apart bool
	// modelled says that the vendor's protocol has a model: what breaks it is a dead letter.
	modelled bool
	// tokenless says that the vendor states no tokens.
	tokenless bool
	// read cuts a file into records, with no code of the package.
	read func(data []byte) []line
	// bad are lines that no normalizer of the vendor can read.
	bad [][]byte
	// ledger counts tokens by the vendor's own rule, with no code of the package.
	ledger func() ledger
	// interpret says what a file tells, with no code of the package.
	interpret func(name string, lines []line) account
}

var suites = []suite{
	{
		source:    envelopes.ClaudeCode,
		folders:   []string{"claude_code", "claude_sdk"},
		lines:     claudeLines,
		read:      readLines,
		bad:       malformed,
		ledger:    func() ledger { return claudeLedger{} },
		interpret: interpretClaude,
	},
	{
		source:    envelopes.Codex,
		folders:   []string{"codex"},
		lines:     codexLines,
		apart:     true,
		read:      readLines,
		bad:       torn,
		ledger:    func() ledger { return codexLedger{} },
		interpret: interpretCodex,
	},
	{
		source:    envelopes.Gemini,
		folders:   []string{"gemini"},
		lines:     geminiLines,
		read:      readGemini,
		bad:       malformed,
		ledger:    func() ledger { return geminiLedger{} },
		interpret: interpretGemini,
	},
	{
		source:    envelopes.Cursor,
		folders:   []string{"cursor"},
		lines:     cursorLines,
		read:      readCursor,
		bad:       tooDeep,
		ledger:    func() ledger { return cursorLedger{} },
		interpret: interpretCursor,
	},
	{
		source:    envelopes.Copilot,
		folders:   []string{"copilot"},
		lines:     copilotLines,
		read:      readCopilot,
		bad:       tooDeep, // words are a line of plain text, which no record of a log can undo
		ledger:    func() ledger { return copilotLedger{} },
		interpret: interpretCopilot,
	},
	{
		source:    envelopes.ACP,
		folders:   []string{"acp"},
		lines:     acpLines,
		apart:     true,
		modelled:  true,
		tokenless: true,
		read:      readACPFile,
		bad:       append(slices.Clone(malformed), acpInvalid...),
		ledger:    func() ledger { return acpLedger{} },
		interpret: interpretACP,
	},
}

// refuses reports whether a record that is JSON may be a dead letter: one that breaks the
// model of its protocol.
func (s suite) refuses(err error) bool {
	return s.modelled && errors.Is(err, envelopes.ErrInvalidACP)
}

// malformed are lines that are no JSON.
var malformed = [][]byte{
	[]byte(`{"type":"user","uuid":"torn`),
	[]byte(`{"type":"user"`),
	[]byte(`}{`),
	[]byte(`{"type":"user",}`),
	[]byte("{\"type\":\"us\x00er\"}"),
	[]byte("\x00\x01\x02\xff\xfe"),
	[]byte(`not json at all`),
	[]byte(`{"n":1e}`),
	[]byte(`{"n":01}`),
	tooDeep[0], tooDeep[1],
}

// tooDeep are lines that are nested too deep: all that cannot be read where a line that is
// no JSON is a record too.
var tooDeep = [][]byte{
	[]byte(strings.Repeat(`[`, normalizers.MaxDepth+1) + strings.Repeat(`]`, normalizers.MaxDepth+1)),
	[]byte(strings.Repeat(`{"type":`, 10_000)),
}

// torn are the malformed lines that no vendor can have meant as text.
var torn = slices.DeleteFunc(slices.Clone(malformed), func(l []byte) bool {
	return l[0] != '{' && l[0] != '[' && l[0] != 0
})

// suiteOf is the suite of a source.
func suiteOf(tb testing.TB, source envelopes.Source) suite {
	tb.Helper()
	i := slices.IndexFunc(suites, func(s suite) bool { return s.source == source })
	if i < 0 {
		tb.Fatalf("%s has no suite", source)
	}
	return suites[i]
}

// normalizeFunc is what the laws are about: [normalizers.Normalize], or a broken form of
// it that shows that a law can fail.
type normalizeFunc func(*normalizers.Session, normalizers.Record) (normalizers.Result, error)

// step is what became of one record.
type step struct {
	record normalizers.Record
	line   int
	result normalizers.Result
	err    error
}

// failed reports whether the record is a dead letter.
func (s step) failed() bool { return s.err != nil }

// tells reports whether the record has an event of its own: it may also let go events of
// records that were held.
func (s step) tells() bool {
	return slices.ContainsFunc(s.result.Events, func(e normalizers.Emitted) bool { return e.Sequence == s.record.Sequence })
}

// frame cuts the bytes of a file into records, the End records included.
func frame(file normalizers.File, data []byte) []normalizers.Framed {
	f := normalizers.NewFramer(file)
	_, _ = f.Write(bytes.Clone(data)) // never fails by contract
	f.Close()
	return drain(f)
}

// drain takes what a framer has to give.
func drain(f *normalizers.Framer) []normalizers.Framed {
	var out []normalizers.Framed
	for {
		r, ok := f.Next()
		if !ok {
			return out
		}
		out = append(out, r)
	}
}

// modified is the time of last resort of all files of the tests.
var modified = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fileNamed describes a file of a source.
func fileNamed(source envelopes.Source, name string) normalizers.File {
	return normalizers.File{Source: source, Name: filepath.Base(name), Path: name, Modified: modified}
}

// fold normalizes the records of a file in their order, with one state for each session.
func fold(normalize normalizeFunc, records []normalizers.Framed) []step {
	sessions := make(map[string]*normalizers.Session)
	steps := make([]step, 0, len(records))
	for _, r := range records {
		steps = append(steps, foldOne(normalize, sessions, r))
	}
	return steps
}

// foldOne normalizes one record with the state of its session.
func foldOne(normalize normalizeFunc, sessions map[string]*normalizers.Session, r normalizers.Framed) step {
	out := step{record: r.Record, line: r.Line, err: r.Err}
	if r.Err != nil {
		return out
	}
	s := sessions[r.Record.Session]
	if s == nil {
		s = normalizers.NewSession(r.Record.Source, r.Record.Session)
		sessions[r.Record.Session] = s
	}
	out.result, out.err = normalize(s, r.Record)
	return out
}

// events are all events of some steps, in their order.
func events(steps []step) []envelopes.AgentEventV1 {
	var out []envelopes.AgentEventV1
	for _, s := range steps {
		for _, e := range s.result.Events {
			out = append(out, e.Event)
		}
	}
	return out
}

// encode is the event as it is published: strict JSON, the same for equal events.
func encode(e envelopes.AgentEventV1) ([]byte, error) {
	b, err := json.Marshal(e, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("event %q: %w", e.EventID, err)
	}
	return b, nil
}

// told is everything that a step tells, for comparison: its events, their sequences,
// its skip, its error.
func told(s step, withSequence bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "skip=%s gap=%t error=%v\n", s.result.Skip, s.result.Gap, s.err)
	for _, e := range s.result.Events {
		raw, err := encode(e.Event)
		if err != nil {
			fmt.Fprintf(&b, "cannot be encoded: %v\n", err)
			continue
		}
		if withSequence {
			fmt.Fprintf(&b, "%d %s %s ", e.Sequence, e.Traceparent, e.Tracestate)
		}
		b.Write(raw)
		b.WriteByte('\n')
	}
	return b.String()
}

// differ compares what two folds of the same records tell; nil when they tell the same.
func differ(a, b []step, withSequence bool) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d steps against %d", len(a), len(b))
	}
	for i := range a {
		if x, y := told(a[i], withSequence), told(b[i], withSequence); x != y {
			return fmt.Errorf("record %d (line %d):\n%s\nagainst\n%s", i+1, a[i].line, clip(x), clip(y))
		}
	}
	return nil
}

// clip shortens a text for a failure message.
func clip(s string) string {
	const most = 3000
	if len(s) <= most {
		return s
	}
	return s[:most] + fmt.Sprintf("... (%d bytes more)", len(s)-most)
}

// value is what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// corpusFile is one file of the corpus.
type corpusFile struct {
	name string // below the corpus
	data []byte
}

// corpus reads the files of a suite below TRIBUTARY_CORPUS; unset, the test is skipped.
// With -short only every tenth file is read.
func corpus(tb testing.TB, s suite) []corpusFile {
	tb.Helper()
	root := os.Getenv("TRIBUTARY_CORPUS")
	if root == "" {
		tb.Skip("TRIBUTARY_CORPUS is not set")
	}
	var out []corpusFile
	for _, folder := range s.folders {
		var names []string
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				names = append(names, path)
			}
			return err
		})
		if err != nil {
			tb.Fatal(err)
		}
		if len(names) == 0 {
			tb.Fatalf("no file in %s of TRIBUTARY_CORPUS", folder)
		}
		slices.Sort(names)
		for i, path := range names {
			if testing.Short() && i%10 != 0 {
				continue
			}
			data, err := os.ReadFile(path)
			if err != nil {
				tb.Fatal(err)
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				tb.Fatal(err)
			}
			out = append(out, corpusFile{name: filepath.ToSlash(name), data: data})
		}
	}
	return out
}

// goldenFile reads a file below TRIBUTARY_GOLDENS; unset, the test is skipped.
func goldenFile(tb testing.TB, name ...string) []byte {
	tb.Helper()
	root := os.Getenv("TRIBUTARY_GOLDENS")
	if root == "" {
		tb.Skip("TRIBUTARY_GOLDENS is not set")
	}
	b, err := os.ReadFile(filepath.Join(append([]string{root}, name...)...))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// isPermanent reports whether an error makes a dead letter.
func isPermanent(err error) bool {
	_, permanent := normalizers.Reason(err)
	return permanent
}

// errNoRecord is the error of a step whose record was never read.
var errNoRecord = errors.New("no record")

// sha256Hex is the lower-case hex sha256 of a text.
func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// TestProjectHash: the vector of semantics.md section 4.
func TestProjectHash(t *testing.T) {
	t.Parallel()
	const root, want = "/Users/zawakin/agent-sample", "9126eddec7f67e038794657b4d517dd9cb5226468f30b5ee7296c27d65e84fde"
	s := normalizers.NewSession(envelopes.ClaudeCode, "s")
	normalize := func(data string) envelopes.AgentEventV1 {
		result, err := normalizers.Normalize(s, normalizers.Record{Source: envelopes.ClaudeCode, Session: "s", Data: []byte(data)})
		if err != nil || len(result.Events) != 1 {
			t.Fatalf("%v, %d events", err, len(result.Events))
		}
		return result.Events[0].Event
	}
	if e := normalize(`{"type":"mode","mode":"normal","sessionId":"s"}`); e.ProjectRoot != nil || e.ProjectHash != sha256Hex("session:s") {
		t.Errorf("before the first cwd: %v %s", e.ProjectRoot, e.ProjectHash)
	}
	for _, cwd := range []string{root, root + "/sub", "/elsewhere"} {
		e := normalize(`{"type":"user","uuid":"` + cwd + `","sessionId":"s","cwd":"` + cwd + `","message":{"role":"user","content":"x"}}`)
		if value(e.ProjectRoot) != root || e.ProjectHash != want {
			t.Errorf("in %s: %q %s", cwd, value(e.ProjectRoot), e.ProjectHash)
		}
	}
}
