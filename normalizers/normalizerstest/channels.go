package normalizerstest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// CheckChannels checks that a session that comes by its log and by telemetry is one session. exported returns what the
// agent would have exported, of the events of the log alone. The records of both come in a drawn order, that of the log
// unchanged, and the session is encoded and decoded after each. Then each prompt, answer, thought, call and result
// counts once, as in the log alone, and so do the tokens and the cost.
func CheckChannels(t *rapid.T, s Suite, session string, log [][]byte, exported func(alone []envelopes.AgentEventV1) [][]byte) {
	alone := foldRecords(t, s, session, log, everyRecord)
	telemetry := rapid.Permutation(exported(alone)).Draw(t, "telemetry")
	var both [][]byte
	for rest := slices.Clone(log); len(rest)+len(telemetry) > 0; {
		if len(telemetry) > 0 && (len(rest) == 0 || rapid.Bool().Draw(t, "telemetry is next")) {
			both, telemetry = append(both, telemetry[0]), telemetry[1:]
		} else {
			both, rest = append(both, rest[0]), rest[1:]
		}
	}
	for _, difference := range differences(alone, foldRecords(t, s, session, both, everyRecord)) {
		t.Error(difference)
	}
}

// differences returns what the events of a log and its telemetry state more or less often than those of the log alone.
func differences(alone, both []envelopes.AgentEventV1) (found Problems) {
	want, got := conversation(alone), conversation(both)
	for of := range mergeKeys(want, got) {
		if want[of] != got[of] {
			found.Errorf("%d times with the telemetry, %d times in the log alone: %s", got[of], want[of], of)
		}
	}
	if want, got := spent(alone), spent(both); want != got {
		found.Errorf("the tokens with the telemetry are\n%+v, in the log alone\n%+v", got, want)
	}
	return found
}

// Channels is a session that came by its log and by telemetry.
type Channels struct {
	File, Session  string
	Log, Telemetry [][]byte
}

// CorpusChannels returns the sessions in the logs of the corpus, and their telemetry. exported returns what the agent
// would have exported of a session of a file, by the reader of the suite; nil if it exports nothing of such a log.
func CorpusChannels(t *testing.T, s Suite, exported func(session string, lines []Line, a Account) [][]byte) (list []Channels) {
	t.Helper()
	records, exports := 0, 0
	for _, f := range Corpus(t, s) {
		lines := s.Read(f.Data)
		a := s.Interpret(f.Name, lines)
		logs := make(map[string][][]byte)
		for i, l := range lines {
			if !l.Bad {
				logs[a.Sessions[i]] = append(logs[a.Sessions[i]], l.Data)
			}
		}
		for _, session := range slices.Sorted(maps.Keys(logs)) {
			c := Channels{f.Name, session, logs[session], exported(session, lines, a)}
			if a.Trimmed || len(c.Telemetry) == 0 {
				continue
			}
			list, records, exports = append(list, c), records+len(c.Log), exports+len(c.Telemetry)
		}
	}
	if t.Logf("%d sessions, %d records and %d of telemetry", len(list), records, exports); len(list) == 0 {
		t.Error("no session of the corpus has telemetry")
	}
	return list
}

// OfEvents returns what [CorpusChannels] takes, for an agent whose exports are made of the events of the log alone.
func OfEvents(t *testing.T, s Suite, exported func(session string, alone []envelopes.AgentEventV1) [][]byte) func(string, []Line, Account) [][]byte {
	t.Helper()
	return func(session string, lines []Line, a Account) [][]byte {
		var log [][]byte
		for i, l := range lines {
			if !l.Bad && a.Sessions[i] == session {
				log = append(log, l.Data)
			}
		}
		return exported(session, foldRecords(t, s, session, log, noRecord))
	}
}

// Compare returns a check of the events of both channels, in some order: it returns what they state otherwise than the
// log alone. The tokens by model are the same, so the cost is, too.
func (c Channels) Compare(t *testing.T, s Suite) func(both []envelopes.AgentEventV1) Problems {
	t.Helper()
	alone := foldRecords(t, s, c.Session, c.Log, noRecord)
	return func(both []envelopes.AgentEventV1) Problems {
		found := differences(alone, both)
		if want, got := spentOn(alone), spentOn(both); !maps.Equal(want, got) {
			found.Errorf("the tokens by model with the telemetry are\n%+v, in the log alone\n%+v", got, want)
		}
		return found
	}
}

// CheckCorpusChannels is [CheckChannels] of the sessions of [CorpusChannels], in several orders. The session is encoded
// and decoded after every third record, in each order after others.
func CheckCorpusChannels(t *testing.T, s Suite, exported func(session string, lines []Line, a Account) [][]byte) {
	t.Helper()
	for _, c := range CorpusChannels(t, s, exported) {
		t.Run(c.File+" "+c.Session, func(t *testing.T) {
			t.Parallel()
			compare, orders := c.Compare(t, s), c.Orders()
			for n, order := range slices.Sorted(maps.Keys(orders)) {
				both := foldRecords(t, s, c.Session, orders[order], func(record int) bool { return record%3 == n%3 })
				for _, difference := range compare(both) {
					t.Errorf("%s: %s", order, difference)
				}
			}
		})
	}
}

// Orders returns the records of both channels in several orders, by name. The records of the log stay in theirs.
func (c Channels) Orders() map[string][][]byte {
	backwards := slices.Clone(c.Telemetry)
	slices.Reverse(backwards)
	out := map[string][][]byte{
		"telemetry first": slices.Concat(c.Telemetry, c.Log), "telemetry first and backwards": slices.Concat(backwards, c.Log),
		"log first": slices.Concat(c.Log, c.Telemetry),
	}
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the same orders in each run
		shuffled := slices.Clone(c.Telemetry)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		places := make([]int, len(shuffled)) // numbers of the records in front of which they come
		for i := range places {
			places[i] = random.IntN(len(c.Log) + 1)
		}
		slices.Sort(places)
		var both [][]byte
		for i := range len(c.Log) + 1 {
			for len(places) > 0 && places[0] == i {
				both, shuffled, places = append(both, shuffled[0]), shuffled[1:], places[1:]
			}
			if i < len(c.Log) {
				both = append(both, c.Log[i])
			}
		}
		out[fmt.Sprint("shuffled ", seed)] = both
	}
	return out
}

// everyRecord and noRecord are for [foldRecords].
func everyRecord(int) bool { return true }
func noRecord(int) bool    { return false }

// foldRecords returns the events of the records of a session, which is encoded and decoded after those of them that
// cut chooses by their numbers.
func foldRecords(t interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}, s Suite, session string, records [][]byte, cut func(record int) bool,
) (events []envelopes.AgentEventV1) {
	state := normalizers.NewSession(s.Source, session)
	normalize := func(r core.Record) {
		r.Source, r.Session, r.Stored = s.Source, session, Modified
		result, err := normalizers.Normalize(state, r)
		if err != nil {
			t.Fatalf("record %d: %v", r.Sequence, err)
		}
		for _, e := range result.Events {
			events = append(events, e.Event)
		}
	}
	for i, data := range records {
		normalize(core.Record{Sequence: uint64(i + 1), Data: data}) //nolint:gosec // not below 0
		if !cut(i + 1) {
			continue
		}
		var err error
		if state, err = normalizers.DecodeSession(state.Encode()); err != nil {
			t.Fatal(err)
		}
	}
	normalize(core.Record{Sequence: uint64(len(records)), Origin: core.Origin{End: true}})
	return events
}

// conversation counts what is said and done after each event has replaced the one that it supersedes.
func conversation(events []envelopes.AgentEventV1) map[string]int {
	replaced := make(map[string]bool)
	for _, e := range events {
		replaced[e.Supersedes] = true
	}
	out := make(map[string]int)
	for _, e := range events {
		switch e.EventType {
		case envelopes.UserMessage, envelopes.AssistantMessage, envelopes.Reasoning, envelopes.ToolCall, envelopes.ToolResult:
			if !replaced[e.EventID] {
				out[fmt.Sprintf("%s %s %s %s %q", e.EventType, Value(e.ToolCallID), Value(e.ToolName), Value(e.ToolStatus), strings.TrimSpace(Value(e.Text)))]++
			}
		case envelopes.SystemMessage, envelopes.FileSnapshot, envelopes.SessionSummary, envelopes.Meta, envelopes.Log:
		}
	}
	return out
}

// spent sums the tokens. What is written to a cache counts as input, which not every telemetry divides.
func spent(events []envelopes.AgentEventV1) (sum Figures) {
	for _, e := range events {
		sum.Add(FiguresOf(e))
	}
	sum.UsageInput, sum.CacheWrite = sum.UsageInput+sum.CacheWrite, 0
	return sum
}

// spentOn sums the tokens of each model, which decides what they cost.
func spentOn(events []envelopes.AgentEventV1) map[string]Figures {
	of := make(map[string][]envelopes.AgentEventV1)
	for _, e := range events {
		if e.Usage != nil {
			of[Value(e.Model)] = append(of[Value(e.Model)], e)
		}
	}
	sums := make(map[string]Figures)
	for model, list := range of {
		sums[model] = spent(list)
	}
	return sums
}

// Attributes are the attributes of something that is exported by OpenTelemetry.
type Attributes map[string]any

// list returns the attributes in the standard's form.
func (a Attributes) list() []any {
	var out []any
	for _, name := range slices.Sorted(maps.Keys(a)) {
		var value map[string]any
		switch v := a[name].(type) {
		case nil:
			continue
		case bool:
			value = map[string]any{"boolValue": v}
		case int64:
			value = map[string]any{"intValue": strconv.FormatInt(v, 10)}
		case float64:
			value = map[string]any{"doubleValue": v}
		default:
			value = map[string]any{"stringValue": fmt.Sprint(v)}
		}
		out = append(out, map[string]any{"key": name, "value": value})
	}
	return out
}

// ExportedLog returns a log record as an export request.
func ExportedLog(service, scope string, at time.Time, attributes Attributes) []byte {
	return exportRequest("Logs", service, scope, "logRecords", map[string]any{
		"timeUnixNano": strconv.FormatInt(at.UnixNano(), 10), "attributes": attributes.list(),
	})
}

// ExportedSpan returns a span as an export request.
func ExportedSpan(service, scope, name, trace, span, parent string, start, end time.Time, attributes Attributes) []byte {
	return exportRequest("Spans", service, scope, "spans", map[string]any{
		"traceId": trace, "spanId": span, "parentSpanId": parent, "name": name, "kind": 1,
		"startTimeUnixNano": strconv.FormatInt(start.UnixNano(), 10), "endTimeUnixNano": strconv.FormatInt(end.UnixNano(), 10),
		"attributes": attributes.list(), "status": map[string]any{},
	})
}

func exportRequest(kind, service, scope, list string, record map[string]any) []byte {
	data, _ := json.Marshal(map[string]any{"resource" + kind: []any{map[string]any{
		"resource": map[string]any{"attributes": Attributes{"service.name": service}.list()},
		"scope" + kind: []any{map[string]any{
			"scope": map[string]any{"name": scope}, list: []any{record},
		}},
	}}}) // never fails
	return data
}

// ExportedAttributes returns the attributes of a record that is an export request, numbers as [json.Number]; nil for
// any other record.
func ExportedAttributes(record any) map[string]any {
	for _, path := range [][]string{{"resourceLogs", "scopeLogs", "logRecords"}, {"resourceSpans", "scopeSpans", "spans"}} {
		in := []any{record}
		for _, name := range path {
			var next []any
			for _, v := range in {
				next = append(next, Member[[]any](v, name)...)
			}
			in = next
		}
		if len(in) == 1 {
			return plainAttributes(Member[[]any](in[0], "attributes"))
		}
	}
	return nil
}

func plainAttributes(list []any) map[string]any {
	out := make(map[string]any)
	for _, a := range list {
		for of, value := range Member[map[string]any](a, "value") {
			if text, ok := value.(string); ok && of == "intValue" {
				value = json.Number(text)
			}
			out[Member[string](a, "key")] = value
		}
	}
	return out
}

// ExportedNumber returns an attribute that is a number, or the text of one; 0 for none.
func ExportedNumber(attributes map[string]any, name string) int64 {
	n, ok := attributes[name].(json.Number)
	if text, isText := attributes[name].(string); !ok && isText {
		n = json.Number(text)
	}
	v, _ := n.Int64()
	return v
}

const redactedText = "[REDACTED]"

// AddExported adds what the telemetry of a session says more often than the log. said are its texts, each with its
// line; a prompt with the text [REDACTED] is the next one of the log.
func AddExported(talk []Utterance, session string, said []Utterance) []Utterance {
	left := make(map[[2]string]int) // statements of the log, by speaker and text
	bare := func(text string) string { return strings.Join(strings.Fields(text), "") }
	for _, u := range talk {
		if u.Session != session {
			continue
		}
		left[[2]string{u.Who, bare(u.Text)}]++
		left[[2]string{u.Who, redactedText}]++
	}
	for _, u := range said {
		key := [2]string{u.Who, bare(u.Text)}
		if left[key]--; left[key] >= 0 {
			continue
		}
		at := slices.IndexFunc(talk, func(o Utterance) bool { return o.Line > u.Line })
		if at < 0 {
			at = len(talk)
		}
		u.Session, u.Text = session, strings.TrimSpace(strings.Replace(u.Text, redactedText, "", 1))
		talk = slices.Insert(talk, at, u)
	}
	return talk
}
