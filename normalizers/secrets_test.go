package normalizers_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// planted is a secret that stands in every string of a record.
const planted = "sk-PLANTED-4242424242"

// plant puts the secret into every string and name of a JSON value, except those that state the
// kind of the record, so that the normalizer reads all of it.
func plant(v any, name string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v)+1)
		for k, m := range v {
			out[k] = plant(m, k)
		}
		out["x-"+planted] = planted
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			out = append(out, plant(e, name))
		}
		return out
	case string:
		switch name {
		case "type", "subtype", "role", "kind", "status", "operation", "timestamp":
			return v
		}
		return v + planted
	default:
		return v
	}
}

// No error repeats a part of a record of any vendor, however the record is broken.
func TestErrorHoldsNoPlantedSecret(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			failed := 0
			check := func(data []byte) {
				t.Helper()
				session := normalizers.NewSession(s.Source, "s")
				_, err := normalizers.Normalize(session, core.Record{Source: s.Source, Session: "s", Sequence: 1, Stored: normalizerstest.Modified, Data: data})
				if err == nil {
					return
				}
				failed++
				if m := err.Error(); strings.Contains(m, "PLANTED") || strings.Contains(m, "4242") {
					t.Fatalf("the error repeats the record: %s", strings.ReplaceAll(m, planted, "[planted]"))
				}
			}
			for _, g := range normalizerstest.Goldens(t, s) {
				for _, l := range s.Read(g.Raw) {
					var v any
					if l.Bad || json.Unmarshal(l.Data, &v) != nil {
						continue
					}
					whole, err := json.Marshal(plant(v, ""))
					if err != nil {
						t.Fatal(err)
					}
					check(whole)
					for _, part := range []int{3, 5, 7} {
						check(whole[:len(whole)*part/8])
						flipped := bytes.Clone(whole)
						flipped[len(flipped)*part/8] ^= 0x1f
						check(flipped)
					}
					check(append(bytes.Repeat([]byte(`{"`+planted+`":`), core.MaxDepth+1), whole...))
				}
			}
			if failed == 0 {
				t.Error("no record failed")
			}
		})
	}
}

// secretForms are what the secrets of the providers that coding agents talk to look like.
var secretForms = regexp.MustCompile(`sk-ant-[A-Za-z0-9_-]{20,}|sk-(?:proj-)?[A-Za-z0-9]{32,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|AKIA[0-9A-Z]{16}|` +
	`AIza[0-9A-Za-z_-]{35}|xox[abprs]-[A-Za-z0-9-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY-----|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.`)

// No log of the project, for its tests or to try it with, holds anything in the form of a secret.
func TestDataHoldsNoSecret(t *testing.T) {
	t.Parallel()
	files := 0
	for _, dir := range []string{".", "../cmd/tributary/testdata", "../envelopes/testdata", "../pipeline"} {
		err := filepath.WalkDir(filepath.FromSlash(dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, ".go") || d.Name() == "gitleaks.toml" { // whose rules name examples that are none
				if os.IsNotExist(err) {
					return nil
				}
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files++
			if at := secretForms.FindIndex(data); at != nil {
				t.Errorf("%s: something in the form of a secret at byte %d", path, at[0])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 10 {
		t.Errorf("only %d files", files)
	}
	if !secretForms.MatchString("key: sk-ant-" + strings.Repeat("a1", 20)) {
		t.Error("the forms match nothing")
	}
}
