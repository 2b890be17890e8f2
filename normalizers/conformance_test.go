package normalizers_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
)

// TestGoldensKeepTheLaws checks the golden files against the laws.
func TestGoldensKeepTheLaws(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			for _, g := range normalizerstest.Goldens(t, s) {
				t.Run(g.Name, func(t *testing.T) {
					t.Parallel()
					normalizerstest.CheckLaws(t, s, normalizerstest.Frame(g.File(s.Source), g.Raw), true)
				})
			}
		})
	}
}

// TestCorpusKeepsTheLaws checks the files of the corpus against the laws.
func TestCorpusKeepsTheLaws(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			for _, f := range normalizerstest.Corpus(t, s) {
				t.Run(f.Name, func(t *testing.T) {
					t.Parallel()
					normalizerstest.CheckLaws(t, s, normalizerstest.Frame(normalizerstest.FileNamed(s.Source, f.Name), f.Data), true)
				})
			}
		})
	}
}

// TestGeneratedLogsKeepTheLaws checks generated files against the laws: sessions interleaved in
// one file, each with records of every type.
func TestGeneratedLogsKeepTheLaws(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				normalizerstest.CheckRapid(rt, s, normalizerstest.Generated(rt, s), true)
			})
		})
	}
}

// TestDamagedLogsKeepTheLaws checks damaged files against the laws that hold for any bytes.
func TestDamagedLogsKeepTheLaws(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				lines := normalizerstest.Damaged(rt, normalizerstest.Interleaved(rt, s))
				data := bytes.Join(lines, rapid.SampledFrom([][]byte{[]byte("\n"), []byte("\r\n"), []byte("\n\n"), []byte("")}).Draw(rt, "separator"))
				normalizerstest.CheckRapid(rt, s, normalizerstest.Frame(normalizerstest.FileNamed(s.Source, "damaged.jsonl"), data), false)
			})
		})
	}
}

// TestLawsCatch shows that every law can fail: each finds its violation in the events of a
// normalizer that is broken in this way, and none in those of the sound one.
func TestLawsCatch(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			var all []normalizers.Framed
			var cases [][]normalizers.Framed
			for _, g := range normalizerstest.Goldens(t, s) {
				records := slices.DeleteFunc(normalizerstest.Frame(g.File(s.Source), g.Raw), func(r normalizers.Framed) bool { return r.Err != nil })
				all, cases = append(all, records...), append(cases, records)
			}
			cases = append(cases, all) // a breakage may need the records of several cases
			for _, b := range normalizerstest.Breakages {
				if s.Tokenless && (b.Law == "sums" || b.Law == "parts_of_usage") {
					continue
				}
				if b.Law == "unknown_record_changes_nothing" && len(s.Unknown) == 0 || s.StatedOnce && b.Name == "the first line alone counts" {
					continue
				}
				t.Run(b.Law+"/"+b.Name, func(t *testing.T) {
					for _, l := range normalizerstest.Laws {
						if l.Name != b.Law {
							continue
						}
						caught := slices.IndexFunc(cases, func(records []normalizers.Framed) bool {
							return l.Check(normalizerstest.Folded(s, b.Make(), records)) != nil
						})
						if caught < 0 {
							t.Fatal("the broken normalizer passes")
						}
						if err := l.Check(normalizerstest.Folded(s, normalizers.Normalize, cases[caught])); err != nil {
							t.Fatalf("the sound normalizer: %v", err)
						}
						return
					}
					t.Fatalf("no law %s", b.Law)
				})
			}
			t.Run("every law has a breakage", func(t *testing.T) {
				for _, l := range normalizerstest.Laws {
					found := false
					for _, b := range normalizerstest.Breakages {
						found = found || b.Law == l.Name
					}
					if !found {
						t.Errorf("none of %s", l.Name)
					}
				}
			})
		})
	}
}
