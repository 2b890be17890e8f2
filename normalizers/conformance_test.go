package normalizers_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
)

// TestConformanceGolden holds the golden files to the laws.
func TestConformanceGolden(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.source), func(t *testing.T) {
			t.Parallel()
			for _, g := range goldens(t, s.source) {
				t.Run(g.name, func(t *testing.T) {
					t.Parallel()
					checkLaws(t, s, frame(g.file(s.source), g.raw), true)
				})
			}
		})
	}
}

// TestConformanceCorpus holds the files of the corpus to the laws.
func TestConformanceCorpus(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.source), func(t *testing.T) {
			t.Parallel()
			for _, f := range corpus(t, s) {
				t.Run(f.name, func(t *testing.T) {
					t.Parallel()
					checkLaws(t, s, frame(fileNamed(s.source, f.name), f.data), true)
				})
			}
		})
	}
}

// TestConformanceGenerated holds generated files to the laws: sessions interleaved in one
// file, each with records of every type.
func TestConformanceGenerated(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.source), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				checkRapid(rt, s, generated(rt, s), true)
			})
		})
	}
}

// TestConformanceDamaged holds generated files that were damaged to the laws that hold
// whatever comes.
func TestConformanceDamaged(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.source), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				lines := damaged(rt, interleaved(rt, s))
				data := bytes.Join(lines, rapid.SampledFrom([][]byte{[]byte("\n"), []byte("\r\n"), []byte("\n\n"), []byte("")}).Draw(rt, "separator"))
				checkRapid(rt, s, frame(fileNamed(s.source, "damaged.jsonl"), data), false)
			})
		})
	}
}

// checkRapid is checkLaws for generated files: it prints the file that breaks a law.
func checkRapid(t *rapid.T, s suite, records []normalizers.Framed, whole bool) {
	for i := range records {
		records[i].Record.Sequence = uint64(i + 1) // records on one line are told apart
	}
	for _, l := range laws {
		if l.whole && !whole {
			continue
		}
		if err := l.check(s, normalizers.Normalize, records); err != nil {
			var file strings.Builder
			for _, r := range records {
				fmt.Fprintf(&file, "%s: %s\n", r.Record.Session, clip(string(r.Record.Data)))
			}
			t.Fatalf("law %s: %v\nof the file\n%s", l.name, err, clip(file.String()))
		}
	}
}

// generated are the records of up to three sessions that write at once: into one file, or
// each into its own where a file of the vendor is of one session.
func generated(t *rapid.T, s suite) []normalizers.Framed {
	if !s.apart {
		data := bytes.Join(interleaved(t, s), []byte("\n"))
		return frame(fileNamed(s.source, "generated.jsonl"), data)
	}
	var sessions [][]normalizers.Framed
	for i := range rapid.IntRange(1, 3).Draw(t, "sessions") {
		name := fmt.Sprintf("s%d", i+1)
		sessions = append(sessions, frame(fileNamed(s.source, name+".jsonl"), bytes.Join(s.lines(t, name), []byte("\n"))))
	}
	return mixed(t, sessions)
}

// interleaved generates the lines of a file in which up to three sessions write.
func interleaved(t *rapid.T, s suite) [][]byte {
	var sessions [][][]byte
	for i := range rapid.IntRange(1, 3).Draw(t, "sessions") {
		sessions = append(sessions, s.lines(t, fmt.Sprintf("s%d", i+1)))
	}
	return mixed(t, sessions)
}

// mixed merges lists, each in its order.
func mixed[T any](t *rapid.T, lists [][]T) []T {
	var out []T
	for len(lists) > 0 {
		i := rapid.IntRange(0, len(lists)-1).Draw(t, "next")
		if len(lists[i]) == 0 {
			lists = append(lists[:i:i], lists[i+1:]...)
			continue
		}
		out = append(out, lists[i][0])
		lists[i] = lists[i][1:]
	}
	return out
}

// damaged breaks some lines of a file: cut, flipped, doubled, swapped, or with garbage in
// front.
func damaged(t *rapid.T, lines [][]byte) [][]byte {
	out := append([][]byte(nil), lines...)
	for range rapid.IntRange(1, 6).Draw(t, "damages") {
		if len(out) == 0 {
			return out
		}
		i := rapid.IntRange(0, len(out)-1).Draw(t, "line")
		l := bytes.Clone(out[i])
		switch rapid.IntRange(0, 6).Draw(t, "damage") {
		case 0:
			out[i] = l[:rapid.IntRange(0, len(l)).Draw(t, "cut")]
		case 1:
			if len(l) > 0 {
				l[rapid.IntRange(0, len(l)-1).Draw(t, "at")] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
			}
			out[i] = l
		case 2:
			out = append(out, l)
		case 3:
			j := rapid.IntRange(0, len(out)-1).Draw(t, "with")
			out[i], out[j] = out[j], out[i]
		case 4:
			garbage := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "garbage")
			out = append(out[:i:i], append([][]byte{garbage}, out[i:]...)...)
		case 5:
			if i+1 < len(out) {
				out[i] = append(l, out[i+1]...)
			}
		case 6:
			out[i] = append([]byte("\xef\xbb\xbf \t"), l...)
		}
	}
	return out
}

// TestLawsCatch shows of every law that it can fail: each is held to a normalizer that is
// broken in the way that the law forbids, and must say so; the sound one passes.
func TestLawsCatch(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.source), func(t *testing.T) {
			t.Parallel()
			var records []normalizers.Framed
			for _, g := range goldens(t, s.source) {
				for _, r := range frame(g.file(s.source), g.raw) {
					if r.Err == nil {
						records = append(records, r)
					}
				}
			}
			for _, b := range breakages() {
				if s.tokenless && (b.law == "sums" || b.law == "parts_of_usage") {
					continue
				}
				t.Run(b.law+"/"+b.name, func(t *testing.T) {
					for _, l := range laws {
						if l.name != b.law {
							continue
						}
						if err := l.check(s, normalizers.Normalize, records); err != nil {
							t.Fatalf("the sound normalizer: %v", err)
						}
						if err := l.check(s, b.make(), records); err == nil {
							t.Fatal("the broken normalizer passes")
						}
						return
					}
					t.Fatalf("no law %s", b.law)
				})
			}
			t.Run("every law has a breakage", func(t *testing.T) {
				for _, l := range laws {
					found := false
					for _, b := range breakages() {
						found = found || b.law == l.name
					}
					if !found {
						t.Errorf("none of %s", l.name)
					}
				}
			})
		})
	}
}

// breakage is a normalizer that breaks one law.
type breakage struct {
	law, name string
	make      func() normalizeFunc
}

// each changes every event that the sound normalizer yields.
func each(change func(e *normalizers.Emitted)) func() normalizeFunc {
	return func() normalizeFunc {
		return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
			result, err := normalizers.Normalize(s, r)
			for i := range result.Events {
				change(&result.Events[i])
			}
			return result, err
		}
	}
}

func breakages() []breakage {
	return []breakage{
		{"valid", "another schema version", each(func(e *normalizers.Emitted) { e.Event.SchemaVersion = "agtrace.event.v2" })},
		{"valid", "a gap in the sequence", each(func(e *normalizers.Emitted) { e.Event.Sequence *= 2 })},
		{"valid", "the event of another session", each(func(e *normalizers.Emitted) { e.Event.SessionID = "another" })},
		{"valid", "no raw", each(func(e *normalizers.Emitted) { e.Event.Raw = nil })},
		{"valid", "raw of another record", each(func(e *normalizers.Emitted) {
			if e.Event.Raw != nil {
				e.Event.Raw = []byte(`{"another":"record"}`)
			}
		})},
		{"valid", "too large", each(func(e *normalizers.Emitted) {
			e.Event.Text = new(strings.Repeat("x", normalizers.MaxEventBytes))
		})},
		{"valid", "a time that is none", each(func(e *normalizers.Emitted) { e.Event.TS = "yesterday" })},
		{"deterministic", "a clock", func() normalizeFunc {
			return each(func(e *normalizers.Emitted) { e.Event.TS = time.Now().Format(time.RFC3339Nano) })()
		}},
		{"deterministic", "a counter outside of the session", func() normalizeFunc {
			n := 0
			return each(func(e *normalizers.Emitted) { n++; e.Event.EventID += strconv.Itoa(n) })()
		}},
		{"nothing_lost", "events dropped", func() normalizeFunc {
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				if len(result.Events) > 1 {
					result.Events = nil
				}
				return result, err
			}
		}},
		{"nothing_lost", "skipped without a name", func() normalizeFunc {
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				if result.Skip != "" {
					result.Skip = "because"
				}
				return result, err
			}
		}},
		{"nothing_lost", "an error without a reason", func() normalizeFunc {
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				if result.Skip != "" {
					return normalizers.Result{}, errNoRecord
				}
				return result, err
			}
		}},
		{"sums", "every line counts", each(func(e *normalizers.Emitted) {
			if e.Event.TokensOutput != nil {
				e.Event.TokensOutput = new(2 * *e.Event.TokensOutput)
			}
		})},
		{"sums", "the first line alone counts", func() normalizeFunc {
			seen := make(map[string]bool)
			return each(func(e *normalizers.Emitted) {
				if u := e.Event.Usage; u != nil {
					if seen[u.Key] {
						e.Event.Usage, e.Event.TokensOutput, e.Event.TokensTotal = nil, nil, nil
					}
					seen[u.Key] = true
				}
			})()
		}},
		{"parts_of_usage", "a total of its own", each(func(e *normalizers.Emitted) {
			if e.Event.TokensTotal != nil {
				e.Event.TokensTotal = new(*e.Event.TokensTotal + 1)
			}
		})},
		{"parts_of_usage", "no usage", each(func(e *normalizers.Emitted) { e.Event.Usage = nil })},
		{"ids", "one id for all", each(func(e *normalizers.Emitted) { e.Event.EventID = "one" })},
		{"ids", "calls and results apart", each(func(e *normalizers.Emitted) {
			if e.Event.EventType == envelopes.ToolResult {
				e.Event.ToolCallID = new("another")
			}
		})},
		{"ids", "the name of another tool", each(func(e *normalizers.Emitted) {
			if e.Event.EventType == envelopes.ToolResult {
				e.Event.ToolName = new("another")
			}
		})},
		{"parents", "no parents", each(func(e *normalizers.Emitted) { e.Event.ParentEventID = nil })},
		{"parents", "a user message with a parent", each(func(e *normalizers.Emitted) {
			if e.Event.EventType == envelopes.UserMessage {
				e.Event.ParentEventID = new("x")
			}
		})},
		{"parents", "the parent of another thread", func() normalizeFunc {
			var last *string
			return each(func(e *normalizers.Emitted) {
				if e.Event.EventType == envelopes.UserMessage {
					last = new(e.Event.EventID)
				} else {
					e.Event.ParentEventID = last
				}
			})()
		}},
		{"roles", "results of the user", each(func(e *normalizers.Emitted) {
			if e.Event.EventType == envelopes.ToolResult {
				e.Event.Role = new(envelopes.RoleUser)
			}
		})},
		{"roles", "no role", each(func(e *normalizers.Emitted) { e.Event.Role = nil })},
		{"cut_anywhere", "memory beside the session", func() normalizeFunc {
			records := make(map[*normalizers.Session]int)
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				records[s]++
				for i := range result.Events {
					result.Events[i].Event.Text = new(strconv.Itoa(records[s]))
				}
				return result, err
			}
		}},
		{"independent", "the last session is remembered", func() normalizeFunc {
			last := ""
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				for i := range result.Events {
					if last != "" && last != r.Session {
						result.Events[i].Event.Text = new(last)
					}
				}
				last = r.Session
				return result, err
			}
		}},
		{"independent", "the number of the record is told", func() normalizeFunc {
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				for i := range result.Events {
					result.Events[i].Event.EventID = strconv.FormatUint(r.Sequence, 10)
				}
				return result, err
			}
		}},
		{"bad_record_changes_nothing", "it counts as a record", func() normalizeFunc {
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				if err != nil {
					r.Origin, r.Data = normalizers.Origin{}, []byte(`{"type":"ai-title","aiTitle":"x"}`)
					_, _ = normalizers.Normalize(s, r)
				}
				return result, err
			}
		}},
		{"bad_record_changes_nothing", "it is remembered elsewhere", func() normalizeFunc {
			bad := false
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				for i := range result.Events {
					if bad {
						result.Events[i].Event.Text = new("after a bad record")
					}
				}
				bad = err != nil
				return result, err
			}
		}},
		{"bad_record_changes_nothing", "it is taken for a record", func() normalizeFunc {
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				if isPermanent(err) {
					return normalizers.Result{Skip: normalizers.SkipEmpty}, nil
				}
				return result, err
			}
		}},
	}
}
