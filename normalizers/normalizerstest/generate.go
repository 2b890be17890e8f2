package normalizerstest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
)

// CheckRapid is [CheckLaws] for generated files: it prints the file that breaks a law.
func CheckRapid(t *rapid.T, s Suite, records []normalizers.Framed, whole bool) {
	for i := range records {
		records[i].Record.Sequence = uint64(i + 1) // several records of one line have one number
	}
	if broken := violations(s, records, whole); len(broken) > 0 {
		var file strings.Builder
		for _, r := range records {
			fmt.Fprintf(&file, "%s: %s\n", r.Record.Session, Clip(string(r.Record.Data)))
		}
		t.Fatalf("%v\nof the file\n%s", broken[0], Clip(file.String()))
	}
}

// Generated are the records of up to three sessions that write at once: into one file, or
// each into its own where a file of the vendor is of one session.
func Generated(t *rapid.T, s Suite) []normalizers.Framed {
	if !s.Apart {
		data := bytes.Join(Interleaved(t, s), []byte("\n"))
		return Frame(FileNamed(s.Source, "generated.jsonl"), data)
	}
	var sessions [][]normalizers.Framed
	for i := range rapid.IntRange(1, 3).Draw(t, "sessions") {
		name := fmt.Sprintf("s%d", i+1)
		sessions = append(sessions, Frame(FileNamed(s.Source, name+".jsonl"), bytes.Join(s.Lines(t, name), []byte("\n"))))
	}
	return Mixed(t, sessions)
}

// Interleaved generates the lines of a file in which up to three sessions write.
func Interleaved(t *rapid.T, s Suite) [][]byte {
	var sessions [][][]byte
	for i := range rapid.IntRange(1, 3).Draw(t, "sessions") {
		sessions = append(sessions, s.Lines(t, fmt.Sprintf("s%d", i+1)))
	}
	return Mixed(t, sessions)
}

// Mixed merges lists, each in its order.
func Mixed[T any](t *rapid.T, lists [][]T) []T {
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

// Damaged breaks some lines of a file: cut, flipped, doubled, swapped, or with garbage in
// front.
func Damaged(t *rapid.T, lines [][]byte) [][]byte {
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

// Breakage is a normalizer that breaks one law.
type Breakage struct {
	Law, Name string
	Make      func() NormalizeFunc
}

// Each changes every event that the sound normalizer yields.
func Each(change func(e *normalizers.Emitted)) func() NormalizeFunc {
	return func() NormalizeFunc {
		return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
			result, err := normalizers.Normalize(s, r)
			for i := range result.Events {
				change(&result.Events[i])
			}
			return result, err
		}
	}
}

// Breakages returns broken forms of Normalize, each with the law that it breaks.
func Breakages() []Breakage {
	return []Breakage{
		{"valid", "another schema version", Each(func(e *normalizers.Emitted) { e.Event.SchemaVersion = "agtrace.event.v2" })},
		{"valid", "a gap in the sequence", Each(func(e *normalizers.Emitted) { e.Event.Sequence *= 2 })},
		{"valid", "the event of another session", Each(func(e *normalizers.Emitted) { e.Event.SessionID = "another" })},
		{"valid", "no raw", Each(func(e *normalizers.Emitted) { e.Event.Raw = nil })},
		{"valid", "raw of another record", Each(func(e *normalizers.Emitted) {
			if e.Event.Raw != nil {
				e.Event.Raw = []byte(`{"another":"record"}`)
			}
		})},
		{"valid", "too large", Each(func(e *normalizers.Emitted) {
			e.Event.Text = new(strings.Repeat("x", normalizers.MaxEventBytes))
		})},
		{"valid", "a time that is none", Each(func(e *normalizers.Emitted) { e.Event.TS = "yesterday" })},
		{"deterministic", "a clock", func() NormalizeFunc {
			return Each(func(e *normalizers.Emitted) { e.Event.TS = time.Now().Format(time.RFC3339Nano) })()
		}},
		{"deterministic", "a counter outside of the session", func() NormalizeFunc {
			n := 0
			return Each(func(e *normalizers.Emitted) { n++; e.Event.EventID += strconv.Itoa(n) })()
		}},
		{"nothing_lost", "events dropped", func() NormalizeFunc {
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				if len(result.Events) > 1 {
					result.Events = nil
				}
				return result, err
			}
		}},
		{"nothing_lost", "skipped without a name", func() NormalizeFunc {
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				if result.Skip != "" {
					result.Skip = "because"
				}
				return result, err
			}
		}},
		{"nothing_lost", "an error without a reason", func() NormalizeFunc {
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				if result.Skip != "" {
					return normalizers.Result{}, errNoRecord
				}
				return result, err
			}
		}},
		{"sums", "every line counts", Each(func(e *normalizers.Emitted) {
			if e.Event.TokensOutput != nil {
				e.Event.TokensOutput = new(2 * *e.Event.TokensOutput)
			}
		})},
		{"sums", "the first line alone counts", func() NormalizeFunc {
			seen := make(map[string]bool)
			return Each(func(e *normalizers.Emitted) {
				if u := e.Event.Usage; u != nil {
					if seen[u.Key] {
						e.Event.Usage, e.Event.TokensOutput, e.Event.TokensTotal = nil, nil, nil
					}
					seen[u.Key] = true
				}
			})()
		}},
		{"parts_of_usage", "a total of its own", Each(func(e *normalizers.Emitted) {
			if e.Event.TokensTotal != nil {
				e.Event.TokensTotal = new(*e.Event.TokensTotal + 1)
			}
		})},
		{"parts_of_usage", "no usage", Each(func(e *normalizers.Emitted) { e.Event.Usage = nil })},
		{"ids", "one id for all", Each(func(e *normalizers.Emitted) { e.Event.EventID = "one" })},
		{"ids", "calls and results apart", Each(func(e *normalizers.Emitted) {
			if e.Event.EventType == envelopes.ToolResult {
				e.Event.ToolCallID = new("another")
			}
		})},
		{"ids", "the name of another tool", Each(func(e *normalizers.Emitted) {
			if e.Event.EventType == envelopes.ToolResult {
				e.Event.ToolName = new("another")
			}
		})},
		{"parents", "no parents", Each(func(e *normalizers.Emitted) { e.Event.ParentEventID = nil })},
		{"parents", "a user message with a parent", Each(func(e *normalizers.Emitted) {
			if e.Event.EventType == envelopes.UserMessage {
				e.Event.ParentEventID = new("x")
			}
		})},
		{"parents", "the parent of another thread", func() NormalizeFunc {
			var last *string
			return Each(func(e *normalizers.Emitted) {
				if e.Event.EventType == envelopes.UserMessage {
					last = new(e.Event.EventID)
				} else {
					e.Event.ParentEventID = last
				}
			})()
		}},
		{"roles", "results of the user", Each(func(e *normalizers.Emitted) {
			if e.Event.EventType == envelopes.ToolResult {
				e.Event.Role = new(envelopes.RoleUser)
			}
		})},
		{"roles", "no role", Each(func(e *normalizers.Emitted) { e.Event.Role = nil })},
		{"cut_anywhere", "memory beside the session", func() NormalizeFunc {
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
		{"independent", "the last session is remembered", func() NormalizeFunc {
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
		{"independent", "the number of the record is emitted", func() NormalizeFunc {
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				for i := range result.Events {
					result.Events[i].Event.EventID = strconv.FormatUint(r.Sequence, 10)
				}
				return result, err
			}
		}},
		{"bad_record_changes_nothing", "it counts as a record", func() NormalizeFunc {
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				if err != nil {
					r.Origin, r.Data = normalizers.Origin{}, []byte(`{"type":"ai-title","aiTitle":"x"}`)
					_, _ = normalizers.Normalize(s, r)
				}
				return result, err
			}
		}},
		{"bad_record_changes_nothing", "it is remembered elsewhere", func() NormalizeFunc {
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
		{"unknown_record_changes_nothing", "it names the model", func() NormalizeFunc {
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				if bytes.Contains(r.Data, []byte("tomorrow")) {
					s.SetModel("of tomorrow")
				}
				return result, err
			}
		}},
		{"bad_record_changes_nothing", "it is taken for a record", func() NormalizeFunc {
			return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
				result, err := normalizers.Normalize(s, r)
				if IsPermanent(err) {
					return normalizers.Result{Skip: normalizers.SkipEmpty}, nil
				}
				return result, err
			}
		}},
	}
}
