package redact_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/records"
	"tributary/pipeline/redact"
)

// digestIDs are the agents whose logs state no ids, so that those of events are digests of texts.
var digestIDs = map[envelopes.Source]bool{envelopes.Cline: true, envelopes.Roo: true, envelopes.Kilo: true, envelopes.Grok: true, envelopes.OTel: true}

// events returns the events of a log but for their texts, and what was redacted.
func events(tb testing.TB, r *redact.Redactor, mode redact.Mode, path string) (list []string, hits map[string]int) {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	f := normalizers.NewFramer(normalizers.File{Name: filepath.Base(path), Folder: filepath.ToSlash(filepath.Dir(path)), Modified: time.Unix(1767225600, 0)})
	_, _ = f.Write(data) // never fails
	f.Close()
	sessions := map[string]*core.Session{}
	hits = map[string]int{}
	for framed, ok := f.Next(); ok; framed, ok = f.Next() {
		record := framed.Record
		redacted, found := r.Record(record.Data)
		for _, h := range found {
			hits[h.Rule]++
			if testing.Verbose() && h.Rule != redact.RuleContent {
				tb.Logf("%s:%d: %s", path, framed.Line, h.Rule)
			}
		}
		record.Data = redacted
		s := sessions[record.Session]
		if s == nil {
			s = normalizers.NewSession(record.Source, record.Session)
			sessions[record.Session] = s
		}
		result, err := normalizers.Normalize(s, record)
		if err != nil {
			reason, _ := records.Reason(err)
			list = append(list, "dead letter: "+reason)
		}
		for _, emitted := range result.Events {
			e := emitted.Event
			if mode == redact.MetadataOnly { // an agent's own texts decide the type of some records
				if digestIDs[e.Source] {
					e.EventID = ""
				}
				list = append(list, fmt.Sprint(e.EventID, tokens(e.TokensInput), tokens(e.TokensOutput), tokens(e.TokensTotal)))
				continue
			}
			e.Text, e.Raw, e.ToolMetadata, e.ToolInput, e.ToolOutput, e.MessageMetadata = nil, nil, nil, nil, nil, nil
			e.Content, e.Metadata, e.TextTruncated = nil, nil, false
			encoded, err := json.Marshal(&e)
			if err != nil {
				tb.Fatal(err)
			}
			list = append(list, string(encoded))
		}
	}
	return list, hits
}

func tokens(n *int64) string {
	if n == nil {
		return " -"
	}
	return fmt.Sprint(" ", *n)
}

// Redaction changes texts alone: the events of the samples, and of every log of TRIBUTARY_CORPUS,
// have the same ids, order, types, times, tokens and exit codes. The test lists the hits.
func TestRedactedLogsHaveTheSameEvents(t *testing.T) {
	t.Parallel()
	dirs := samples(t)
	if corpus := os.Getenv("TRIBUTARY_CORPUS"); corpus != "" {
		dirs = append(dirs, corpus)
	}
	for _, mode := range []redact.Mode{redact.Secrets, redact.MetadataOnly} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := newRedactor(t, mode)
			total, files, differ := map[string]int{}, 0, 0
			for _, dir := range dirs {
				err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
					if err != nil || d.IsDir() || strings.HasSuffix(path, ".tsv") || strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".db") {
						return err
					}
					files++
					want, _ := events(t, nil, mode, path)
					got, hits := events(t, r, mode, path)
					for rule, n := range hits {
						total[rule] += n
					}
					if diff := cmp.Diff(want, got); diff != "" {
						differ++
						report := t.Errorf
						if mode == redact.MetadataOnly && !strings.HasPrefix(path, "..") {
							report = t.Logf // a fixture may have texts in the place of ids
						}
						report("%s: %.1500s", path, strings.ReplaceAll(diff, "\u00a0", " "))
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, rule := range slices.Sorted(maps.Keys(total)) {
				t.Logf("%s: %d", rule, total[rule])
			}
			if files == 0 || differ > files/200 {
				t.Errorf("%d of %d files differ", differ, files)
			}
			t.Logf("%d of %d files differ", differ, files)
		})
	}
}

// samples returns the folders of the samples of all vendors.
func samples(tb testing.TB) []string {
	tb.Helper()
	dirs, err := filepath.Glob("../../normalizers/*/samples")
	if err != nil || len(dirs) == 0 {
		tb.Fatalf("samples: %v, %v", dirs, err)
	}
	return dirs
}
