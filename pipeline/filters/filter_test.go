package filters

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
	"tributary/pipeline/events"
)

// drawBody draws the JSON of an event with a text.
func drawBody(t *rapid.T) (body []byte, text string) {
	text = rapid.StringMatching(`[A-Za-z0-9 _.-]{0,40}`).Draw(t, "text")
	e := &envelopes.AgentEventV1{
		SchemaVersion: envelopes.SchemaVersion, Source: envelopes.Codex, SessionID: "one", ProjectHash: strings.Repeat("0", 64), EventID: "e",
		TS: "2026-03-09T10:00:00Z", EventType: rapid.SampledFrom(envelopes.EventTypes).Draw(t, "type"), Text: &text, Sequence: 1,
	}
	body, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	return body, text
}

// TestAFilterHasWhatItsEventsHave looks for parts of texts that were added, also in a filter that was stored.
func TestAFilterHasWhatItsEventsHave(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := &Filter{Number: 3, Span: events.Span{Cell: 1, First: 5, Last: 9}, Erasures: 2}
		var texts []string
		counts := map[envelopes.EventType]Count{}
		for range rapid.IntRange(1, 5).Draw(t, "events") {
			body, text := drawBody(t)
			f.Add(body)
			texts = append(texts, strings.ToLower(text))
			count := counts[TypeOf(body)]
			count.Add(body)
			counts[TypeOf(body)] = count
		}
		head, data, err := f.Encode()
		if err != nil {
			t.Fatal(err)
		}
		stored, err := Decode(head, data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, stored, cmp.AllowUnexported(Filter{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("-made +stored:\n%s", diff)
		}
		if diff := cmp.Diff(counts, stored.Counts); diff != "" {
			t.Fatalf("counts (-events +stored):\n%s", diff)
		}
		for _, text := range texts {
			from := rapid.IntRange(0, len(text)).Draw(t, "from")
			if part := text[from:rapid.IntRange(from, len(text)).Draw(t, "to")]; !stored.Has([]byte(part)) {
				t.Fatalf("the filter lacks %q of %q", part, text)
			}
		}
		if word := "qzxjvkwqzxjv"; stored.Has([]byte(word)) {
			t.Fatalf("the filter has %q", word)
		}
	})
}

// TestAFilterHasEveryWordOfADocument adds a structured CloudEvent, whose text is behind escapes of its own.
func TestAFilterHasEveryWordOfADocument(t *testing.T) {
	t.Parallel()
	f := &Filter{}
	f.Add([]byte(`{"specversion":"1.0","data_base64":"e30="}`))
	if !f.Has([]byte("any word")) || len(f.Counts) > 0 {
		t.Errorf("the filter lacks a word, or counts a document: %v", f.Counts)
	}
}

// TestDecodeRefusesWhatIsNoFilter decodes data that are cut and heads of something else.
func TestDecodeRefusesWhatIsNoFilter(t *testing.T) {
	t.Parallel()
	head, data, err := (&Filter{Number: 1, Span: events.Span{First: 1, Last: 2}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		head string
		data []byte
	}{"cut": {head, data[1:]}, "no head": {"", data}, "no number": {`{"span":{"first":1,"last":2}}`, data}, "no span": {`{"number":1,"span":{"first":2,"last":1}}`, data}} {
		if _, err := Decode(c.head, c.data); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}

// BenchmarkAdd adds the events of the logs in TRIBUTARY_CORPUS to a filter:
//
//	go test ./pipeline/filters -run '^$' -bench Add
func BenchmarkAdd(b *testing.B) {
	corpus := os.Getenv("TRIBUTARY_CORPUS")
	if corpus == "" {
		b.Skip("TRIBUTARY_CORPUS is not set")
	}
	var bodies [][]byte
	size := int64(0)
	if err := filepath.WalkDir(corpus, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || size > 100<<20 {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, step := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed("", path), data)) {
			for _, e := range step.Result.Events {
				body, err := e.Event.AppendJSON(nil)
				if err != nil {
					return err
				}
				bodies, size = append(bodies, body), size+int64(len(body))
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		f := &Filter{}
		for _, body := range bodies {
			f.Add(body)
		}
	}
}
