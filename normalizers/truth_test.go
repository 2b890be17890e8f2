package normalizers_test

import (
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// TestCorpusMatchesItsBytes compares the events of every corpus file with its raw bytes, read
// with plain encoding/json and no code of the package.
func TestCorpusMatchesItsBytes(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			files := normalizerstest.Corpus(t, s)
			reports := make([]*normalizerstest.Report, len(files))
			t.Run("files", func(t *testing.T) {
				for i, f := range files {
					reports[i] = normalizerstest.NewReport()
					t.Run(f.Name, func(t *testing.T) {
						t.Parallel()
						for _, p := range normalizerstest.CheckTruth(s, normalizers.Normalize, normalizerstest.FileNamed(s.Source, f.Name), f.Data, reports[i]) {
							t.Error(p)
						}
					})
				}
			})
			all := normalizerstest.NewReport()
			for _, r := range reports {
				all.Add(r)
			}
			t.Log("\n" + all.String())
		})
	}
}

// TestGoldensMatchTheirBytes does the same for the golden files, which need no corpus.
func TestGoldensMatchTheirBytes(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			for _, g := range normalizerstest.Goldens(t, s) {
				for _, p := range normalizerstest.CheckTruth(s, normalizers.Normalize, g.File(s.Source), g.Raw, normalizerstest.NewReport()) {
					t.Errorf("%s: %s", g.Name, p)
				}
			}
		})
	}
}

// TestTruthCatches shows that each part of this comparison can fail.
func TestTruthCatches(t *testing.T) {
	t.Parallel()
	of := func(kind envelopes.EventType, change func(e *envelopes.AgentEventV1)) func() normalizerstest.NormalizeFunc {
		return normalizerstest.Each(func(e *core.Emitted) {
			if e.Event.EventType == kind {
				change(&e.Event)
			}
		})
	}
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			for name, broken := range map[string]func() normalizerstest.NormalizeFunc{
				"a prompt that is missing":    of(envelopes.UserMessage, func(e *envelopes.AgentEventV1) { e.EventType = envelopes.Meta }),
				"a prompt of an agent":        of(envelopes.UserMessage, func(e *envelopes.AgentEventV1) { e.Origin = envelopes.OriginAgent }),
				"machine text as a prompt":    of(envelopes.Meta, func(e *envelopes.AgentEventV1) { e.EventType = envelopes.UserMessage }),
				"an answer changed":           of(envelopes.AssistantMessage, func(e *envelopes.AgentEventV1) { e.Text = new("A" + normalizerstest.Value(e.Text)) }),
				"a call that is missing":      of(envelopes.ToolCall, func(e *envelopes.AgentEventV1) { e.EventType = envelopes.Meta }),
				"a call of another tool":      of(envelopes.ToolCall, func(e *envelopes.AgentEventV1) { e.ToolName = new("x") }),
				"a result that is missing":    of(envelopes.ToolResult, func(e *envelopes.AgentEventV1) { e.EventType = envelopes.Log }),
				"a success with exit code 0":  of(envelopes.ToolResult, func(e *envelopes.AgentEventV1) { e.ToolExitCode = new(normalizerstest.Value(e.ToolExitCode)) }),
				"a failure without exit code": of(envelopes.ToolResult, func(e *envelopes.AgentEventV1) { e.ToolExitCode = nil }),
				"a failure that is a success": of(envelopes.ToolResult, func(e *envelopes.AgentEventV1) { e.ToolStatus = new(envelopes.StatusSuccess) }),
				"one token too many":          of(envelopes.AssistantMessage, func(e *envelopes.AgentEventV1) { e.TokensInput = new(normalizerstest.Value(e.TokensInput) + 1) }),
				"no state of version control": normalizerstest.Each(func(e *core.Emitted) { e.Event.VCS = nil }),
				"tokens without usage":        normalizerstest.Each(func(e *core.Emitted) { e.Event.Usage = nil }),
				"an answer in another thread": of(envelopes.AssistantMessage, func(e *envelopes.AgentEventV1) { e.IsInternal, e.AgentID = !e.IsInternal, nil }),
				"a dead letter": func() normalizerstest.NormalizeFunc {
					return func(s *core.Session, r core.Record) (core.Result, error) {
						if len(r.Data) > 0 && r.Data[0] != '{' {
							return core.Result{}, core.ErrMalformed
						}
						return normalizers.Normalize(s, r)
					}
				},
				"a gap": func() normalizerstest.NormalizeFunc {
					return func(s *core.Session, r core.Record) (core.Result, error) {
						result, err := normalizers.Normalize(s, r)
						result.Gap = true
						return result, err
					}
				},
			} {
				if s.Tokenless && name == "tokens without usage" || s.VCS == nil && name == "no state of version control" {
					continue
				}
				t.Run(name, func(t *testing.T) {
					for _, g := range normalizerstest.Goldens(t, s) {
						if len(normalizerstest.CheckTruth(s, broken(), g.File(s.Source), g.Raw, normalizerstest.NewReport())) > 0 {
							return
						}
					}
					t.Error("the broken normalizer passes")
				})
			}
		})
	}
}

// TestCorpusHasOddRecords names the records of the corpus that a naive reader loses.
func TestCorpusHasOddRecords(t *testing.T) {
	t.Parallel()
	s := suites[0]
	files := make(map[string]normalizerstest.CorpusFile)
	if testing.Short() {
		t.Skip("reads single files of the corpus")
	}
	for _, f := range normalizerstest.Corpus(t, s) {
		files[f.Name] = f
	}
	get := func(t *testing.T, name string) normalizerstest.CorpusFile {
		t.Helper()
		t.Helper()
		f, ok := files[name]
		if !ok {
			t.Fatalf("%s is not in TRIBUTARY_CORPUS", name)
		}
		return f
	}
	for _, name := range []string{"8c__fa910f8ef9__0", "e5__77a6f39913__0", "37__995ebed6e4__2"} {
		t.Run("glued lines are two records/"+name, func(t *testing.T) {
			f := get(t, "claude_code/entireio__cli/"+name+"__full.jsonl")
			perLine := make(map[int]int)
			for _, st := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(s.Source, f.Name), f.Data)) {
				if st.Record.Origin.End {
					continue
				}
				perLine[st.Line]++
				if st.Failed() {
					t.Errorf("line %d: %v", st.Line, st.Err)
				}
			}
			glued := 0
			for _, n := range perLine {
				if n == 2 {
					glued++
				}
			}
			if glued == 0 {
				t.Error("no line holds two records")
			}
		})
	}
	t.Run("values that are no object are meta events", func(t *testing.T) {
		f := get(t, "claude_code/daaain__claude-code-log/edge_cases.jsonl")
		found := make(map[string]bool)
		for _, st := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed(s.Source, f.Name), f.Data)) {
			raw := string(st.Record.Data)
			if raw != `"massive error"` && raw != `42` && raw != `[1]` {
				continue
			}
			found[raw] = true
			if len(st.Result.Events) != 1 || st.Result.Events[0].Event.EventType != envelopes.Meta || string(st.Result.Events[0].Event.Raw) != raw {
				t.Errorf("%s: %s", raw, normalizerstest.Outcomes(st, false))
			}
		}
		if len(found) != 3 {
			t.Errorf("found only %v", found)
		}
	})
}
