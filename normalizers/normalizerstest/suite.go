// Package normalizerstest has what the tests of all vendors share: the laws that events keep, the
// comparison of events with the bytes of their log, golden files, generated and damaged logs, and
// perturbations.
//
// Start with [Suite], which a vendor's test package fills in: an independent reader of its logs, a
// ledger of its tokens and a generator. [Laws] are the properties that hold for any log,
// [CheckTruth] compares the events of a log with an [Account] of it, and [Breakages] are broken
// normalizers that show that a law can fail.
//
// The invariant: a reader, a ledger and an account use encoding/json and call no code of the
// normalizers, so that a mistake in one of them shows as a difference. README.md of package
// normalizers says when a change touches them.
package normalizerstest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// Suite is what the tests know about a vendor, independent of the tested code. Every vendor passes the same laws: a
// new vendor needs a Suite in its folder, and a line in the list of suites in the tests of package normalizers.
type Suite struct {
	Source envelopes.Source
	Room   string // the vendor's folder
	// Folders of the corpus, below TRIBUTARY_CORPUS.
	Folders []string
	// Others are suffixes of files in Folders that the suite does not read.
	Others []string
	// Lines generates well-formed lines of a file of one session, with every type of record that the vendor writes.
	Lines func(t *rapid.T, session string) [][]byte
	// Apart states that each file has one session.
	Apart bool
	// Modelled states that the vendor's protocol has a model; a record that breaks it is a dead letter.
	Modelled bool
	// Tokenless states that the vendor's logs have no tokens.
	Tokenless bool
	// StatedOnce states that no log states the tokens of an API call more than once.
	StatedOnce bool
	// Read cuts a file into records, with no code of the package.
	Read func(data []byte) []Line
	// Unknown are records of types that the vendor does not write yet, each on its own line. "$SESSION", "$TIME" and
	// "$MILLIS" in them stand for a session and a time.
	Unknown []string
	// Bad are lines that no normalizer of the vendor can read.
	Bad [][]byte
	// Ledger counts tokens by the vendor's own rule, with no code of the package.
	Ledger func() Ledger
	// Interpret returns what a file states, with no code of the package.
	Interpret func(name string, lines []Line) Account
	// Facts returns the members of metadata, among FactNames, that the events of a record have because of that record
	// alone, as JSON with unchanged numbers; with no code of the package. Nil if the vendor's records state none.
	Facts     func(record any) map[string]any
	FactNames []string
	// ResumeID returns a function that gets the records in order. It returns the id that resumes the session after
	// each record, empty while unknown. Nil if another test covers that.
	ResumeID func() func(session string, record any) string
	// VCS returns a function that gets the records in order. It returns the state of version control that the session
	// has stated last. Nil if the vendor's records state none.
	VCS func() func(session string, l Line) envelopes.VCS
	// OneThread states that a session is one thread, whichever agent speaks.
	OneThread bool
	// Raw returns a function that reports whether an event may carry raw instead of its record, because the record is a
	// document of several records or no JSON. It knows nothing about other records. Nil if all records are lines of JSON.
	Raw func(record []byte) func(raw []byte) (ok, known bool)
}

// Refuses reports whether a record that is JSON may be a dead letter, because it breaks the model of its protocol.
func (s Suite) Refuses(err error) bool {
	return s.Modelled && errors.Is(err, envelopes.ErrInvalidACP)
}

// Malformed are lines that are not JSON.
var Malformed = [][]byte{
	[]byte(`{"type":"user","uuid":"torn`),
	[]byte(`{"type":"user"`),
	[]byte(`}{`),
	[]byte(`{"type":"user",}`),
	[]byte("{\"type\":\"us\x00er\"}"),
	[]byte("\x00\x01\x02\xff\xfe"),
	[]byte(`not json at all`),
	[]byte(`{"n":1e}`),
	[]byte(`{"n":01}`),
	TooDeep[0], TooDeep[1],
}

// TooDeep are lines with too deep nesting, the only unreadable lines if a line that is not JSON is a record, too.
var TooDeep = [][]byte{
	[]byte(strings.Repeat(`[`, core.MaxDepth+1) + strings.Repeat(`]`, core.MaxDepth+1)),
	[]byte(strings.Repeat(`{"type":`, 10_000)),
}

// Torn are the malformed lines that no vendor can have meant as text.
var Torn = slices.DeleteFunc(slices.Clone(Malformed), func(l []byte) bool {
	return l[0] != '{' && l[0] != '[' && l[0] != 0
})

// NormalizeFunc is the function that laws check: [normalizers.Normalize], or a broken form that shows that a law can
// fail.
type NormalizeFunc func(*core.Session, core.Record) (core.Result, error)

// Step is the outcome of a record.
type Step struct {
	Record core.Record
	Line   int
	Result core.Result
	Err    error
}

// Failed reports whether the record is a dead letter.
func (s Step) Failed() bool { return s.Err != nil }

// emits reports whether the record has an event of its own, besides pending events of earlier records.
func (s Step) emits() bool {
	return slices.ContainsFunc(s.Result.Events, func(e core.Emitted) bool { return e.Sequence == s.Record.Sequence })
}

// Frame cuts a file into records, including the End records.
func Frame(file normalizers.File, data []byte) []normalizers.Framed {
	f := normalizers.NewFramer(file)
	_, _ = f.Write(bytes.Clone(data)) // never fails by contract
	f.Close()
	return Drain(f)
}

// Drain takes all records that a framer has.
func Drain(f *normalizers.Framer) []normalizers.Framed {
	var out []normalizers.Framed
	for {
		r, ok := f.Next()
		if !ok {
			return out
		}
		out = append(out, r)
	}
}

// Modified is the modification time of all files in tests.
var Modified = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// FileNamed describes a file of a source.
func FileNamed(source envelopes.Source, name string) normalizers.File {
	return normalizers.File{Source: source, Name: filepath.Base(name), Path: name, Modified: Modified}
}

// Fold normalizes the records of a file in order, with one state for each session.
func Fold(normalize NormalizeFunc, records []normalizers.Framed) []Step {
	sessions := make(map[string]*core.Session)
	steps := make([]Step, 0, len(records))
	for _, r := range records {
		steps = append(steps, FoldOne(normalize, sessions, r))
	}
	return steps
}

// FoldOne normalizes one record with the state of its session.
func FoldOne(normalize NormalizeFunc, sessions map[string]*core.Session, r normalizers.Framed) Step {
	out := Step{Record: r.Record, Line: r.Line, Err: r.Err}
	if r.Err != nil {
		return out
	}
	s := sessions[r.Record.Session]
	if s == nil {
		s = normalizers.NewSession(r.Record.Source, r.Record.Session)
		sessions[r.Record.Session] = s
	}
	out.Result, out.Err = normalize(s, r.Record)
	return out
}

// Events returns all events of some steps, in order.
func Events(steps []Step) []envelopes.AgentEventV1 {
	var out []envelopes.AgentEventV1
	for _, s := range steps {
		for _, e := range s.Result.Events {
			out = append(out, e.Event)
		}
	}
	return out
}

// Encode returns the event as it is published: strict JSON, the same for equal events.
func Encode(e envelopes.AgentEventV1) ([]byte, error) {
	b, err := json.Marshal(e, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("event %q: %w", e.EventID, err)
	}
	return b, nil
}

// Outcomes prints the outcome of a step for comparison: its events, with or without the sequences of their records,
// its skip and its error.
func Outcomes(s Step, withSequence bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "skip=%s gap=%t error=%v\n", s.Result.Skip, s.Result.Gap, s.Err)
	for _, e := range s.Result.Events {
		raw, err := Encode(e.Event)
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

// Differ returns the first difference between two folds of the same records, nil if events, skips and errors are
// equal.
func Differ(a, b []Step, withSequence bool) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d steps against %d", len(a), len(b))
	}
	for i := range a {
		if a[i].Err == nil && b[i].Err == nil && sameResults(a[i].Result, b[i].Result, withSequence) {
			continue // the same without their JSON
		}
		if x, y := Outcomes(a[i], withSequence), Outcomes(b[i], withSequence); x != y {
			return fmt.Errorf("record %d (line %d):\n%s\nagainst\n%s", i+1, a[i].Line, Clip(x), Clip(y))
		}
	}
	return nil
}

// sameResults reports whether two results are equal, with or without the sequences of their records.
func sameResults(a, b core.Result, withSequence bool) bool {
	if withSequence {
		return reflect.DeepEqual(a, b)
	}
	return a.Skip == b.Skip && a.Gap == b.Gap && slices.EqualFunc(a.Events, b.Events, func(x, y core.Emitted) bool {
		return reflect.DeepEqual(x.Event, y.Event)
	})
}

// Clip shortens a text for a failure message.
func Clip(s string) string {
	const most = 3000
	if len(s) <= most {
		return s
	}
	return s[:most] + fmt.Sprintf("... (%d bytes more)", len(s)-most)
}

// Value returns what p points to, or the zero value.
func Value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// CorpusFile is a file of the corpus.
type CorpusFile struct {
	Name string // below the corpus
	Data []byte
}

// Fresh begins the names of files in a folder beside the corpus.
const Fresh = "fresh/"

// Corpus reads the files of a suite below TRIBUTARY_CORPUS; if that is unset, the test is skipped. Later logs, and
// those of further agents, lie beside the corpus, in folders of the same name with -fresh and -agents. With -short
// only every tenth file is read.
func Corpus(tb testing.TB, s Suite) []CorpusFile {
	tb.Helper()
	root := os.Getenv("TRIBUTARY_CORPUS")
	if root == "" {
		tb.Skip("TRIBUTARY_CORPUS is not set")
	}
	var out []CorpusFile
	for _, folder := range s.Folders {
		found := len(out)
		for _, beside := range []string{"", "-agents", "-fresh"} {
			if _, err := os.Stat(filepath.Join(root+beside, folder)); err != nil {
				continue
			}
			prefix := Fresh
			if beside == "" {
				prefix = ""
			}
			out = append(out, s.own(filesBelow(tb, root+beside, folder, prefix))...)
		}
		if found == len(out) {
			tb.Fatalf("no folder %s in or beside TRIBUTARY_CORPUS", folder)
		}
	}
	return out
}

// own returns the files without the suffixes of Others.
func (s Suite) own(files []CorpusFile) []CorpusFile {
	return slices.DeleteFunc(files, func(f CorpusFile) bool {
		return slices.ContainsFunc(s.Others, func(suffix string) bool { return strings.HasSuffix(f.Name, suffix) })
	})
}

// filesBelow reads the files in a folder of a corpus; their names begin with prefix.
func filesBelow(tb testing.TB, root, folder, prefix string) []CorpusFile {
	tb.Helper()
	var out []CorpusFile
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
		out = append(out, CorpusFile{Name: prefix + filepath.ToSlash(name), Data: data})
	}
	return out
}

// GoldenFile reads a file below TRIBUTARY_GOLDENS; if that is unset, the test is skipped.
func GoldenFile(tb testing.TB, name ...string) []byte {
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

// IsPermanent reports whether an error makes a dead letter.
func IsPermanent(err error) bool {
	_, permanent := core.Reason(err)
	return permanent
}

// errNoRecord is the error of a step whose record was not read.
var errNoRecord = errors.New("no record")

// Sha256Hex is the lower-case hex sha256 of a text.
func Sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
