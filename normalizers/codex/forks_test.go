package codex_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/codex/codextest"
	"tributary/normalizers/normalizerstest"
)

// members are the members of a JSON object.
type members = map[string]any

// envelope returns a line of a rollout.
func envelope(ts, kind string, payload members) []byte {
	line, err := json.Marshal(members{"timestamp": ts, "type": kind, "payload": payload})
	if err != nil {
		panic(err) // of a test
	}
	return line
}

// notice returns an event_msg.
func notice(ts, of string, more members) []byte {
	p := members{"type": of}
	maps.Copy(p, more)
	return envelope(ts, "event_msg", p)
}

// usageOf returns a usage of input and output tokens.
func usageOf(input, output int) members {
	return members{"input_tokens": input, "output_tokens": output}
}

// tokenCount returns a token_count of a total and an increment.
func tokenCount(ts string, total, last any) []byte {
	return notice(ts, "token_count", members{"info": members{"total_token_usage": total, "last_token_usage": last}})
}

// eventsOf returns the events of a rollout, and holds them to the independent reader of
// rollouts.
func eventsOf(t *testing.T, lines ...[]byte) []envelopes.AgentEventV1 {
	t.Helper()
	data := append(bytes.Join(lines, []byte("\n")), '\n')
	file := normalizerstest.FileNamed(envelopes.Codex, "rollout.jsonl")
	var out []envelopes.AgentEventV1
	for _, st := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(file, data)) {
		for _, e := range st.Result.Events {
			out = append(out, e.Event)
		}
	}
	found := normalizerstest.CheckTruth(codextest.Suite, normalizers.Normalize, file, data, normalizerstest.NewReport())
	for _, p := range append(found, checkCodex(normalizers.Normalize, file, data, make(map[string]int))...) {
		t.Errorf("%s\nof the file\n%s", p, data)
	}
	return out
}

// tokensOf returns the sum of the tokens of a rollout.
func tokensOf(t *testing.T, lines ...[]byte) int64 {
	t.Helper()
	var sum int64
	for _, e := range eventsOf(t, lines...) {
		if e.TokensTotal != nil {
			sum += *e.TokensTotal
		}
	}
	return sum
}

const (
	parentID = "019d0000-1000-7aaa-8aaa-aaaaaaaaaaaa"
	childID  = "019d0000-2000-7fff-8fff-ffffffffffff"
	oldTurn  = "019d0000-1001-7bbb-8bbb-bbbbbbbbbbbb"
	ownTurn  = "019d0000-2000-7000-8000-000000000000" // the millisecond of the child, and a lower tail
	oldTurn4 = "0b2f6f6e-6f0c-4b57-9c4b-2f8f3d1f7a01"
	ownTurn4 = "f1e0a5d2-94b3-4c1e-8a6d-0d6f5c2b9e02"

	forkTime = "2026-03-01T10:00:05.100Z" // of the fork, and of all that it copies
	ownTime  = "2026-03-01T10:00:09.500Z"
)

// second returns the seconds since 1970 of a time.
func second(ts string) int64 {
	at, err := time.Parse(time.RFC3339, ts)
	if err != nil {
		panic(err) // of a test
	}
	return at.Unix()
}

// forkWith returns the rollout of a fork: its session_meta, that of its parent, a copied turn
// of 90,000 tokens, and a turn of its own of 4,000.
func forkWith(meta members, old, own string) [][]byte {
	return [][]byte{
		envelope(forkTime, "session_meta", meta),
		envelope(forkTime, "session_meta", members{"id": parentID}),
		notice(forkTime, "task_started", members{"turn_id": old, "started_at": second(forkTime) - 60}),
		envelope(forkTime, "turn_context", members{"turn_id": old, "model": "gpt-5.2-codex"}),
		tokenCount(forkTime, usageOf(80_000, 10_000), usageOf(80_000, 10_000)),
		notice(ownTime, "task_started", members{"turn_id": own, "started_at": second(ownTime)}),
		envelope(ownTime, "turn_context", members{"turn_id": own, "model": "gpt-5.2-codex"}),
		tokenCount(ownTime, usageOf(83_500, 10_500), usageOf(3_500, 500)),
	}
}

func TestForkHasOnlyItsOwnTokens(t *testing.T) {
	t.Parallel()
	spawn := members{"subagent": members{"thread_spawn": members{"parent_thread_id": parentID, "depth": 1}}}
	for name, lines := range map[string][][]byte{
		"a turn in the millisecond of the child":       forkWith(members{"id": childID, "forked_from_id": parentID, "cli_version": "0.147.0"}, oldTurn, ownTurn),
		"turns of UUIDv4":                              forkWith(members{"id": childID, "forked_from_id": parentID, "cli_version": "0.147.0"}, oldTurn4, ownTurn4),
		"turns of UUIDv4 without a version":            forkWith(members{"id": childID, "forked_from_id": parentID}, oldTurn4, ownTurn4),
		"a parent of UUIDv4":                           forkWith(members{"id": childID, "forked_from_id": parentID, "cli_version": "0.147.0"}, oldTurn4, ownTurn),
		"a parent of UUIDv4 without a version":         forkWith(members{"id": childID, "forked_from_id": parentID}, oldTurn4, ownTurn),
		"a child of UUIDv4":                            forkWith(members{"id": ownTurn4, "forked_from_id": parentID}, oldTurn4, ownTurn4),
		"a spawned subagent":                           forkWith(members{"id": childID, "source": spawn}, oldTurn, ownTurn),
		"a subagent of which only the parent is known": forkWith(members{"id": childID, "thread_source": "subagent", "parent_thread_id": parentID}, oldTurn, ownTurn),
		"a subagent of UUIDv4 turns":                   forkWith(members{"id": childID, "thread_source": "subagent"}, oldTurn4, ownTurn4),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tokensOf(t, lines...); got != 4_000 {
				t.Errorf("%d tokens, want 4000", got)
			}
		})
	}
}

func TestSubagentWithoutAReplayHasAllOfItsTokens(t *testing.T) {
	t.Parallel()
	spawn := members{"subagent": members{"thread_spawn": members{"parent_thread_id": parentID, "depth": 1}}}
	for name, meta := range map[string]members{
		"spawned":     {"id": childID, "source": spawn, "cli_version": "0.147.0"},
		"named alone": {"id": childID, "thread_source": "subagent", "parent_thread_id": parentID},
	} {
		for _, turn := range []string{ownTurn, ownTurn4} {
			got := tokensOf(t,
				envelope(forkTime, "session_meta", meta),
				notice(forkTime, "task_started", members{"turn_id": turn, "started_at": second(forkTime)}),
				envelope(forkTime, "turn_context", members{"turn_id": turn}),
				tokenCount(ownTime, usageOf(40_000, 6_353), usageOf(40_000, 6_353)))
			if got != 46_353 {
				t.Errorf("%s, turn %s: %d tokens, want 46353", name, turn, got)
			}
		}
	}
}

func TestOrdinalThatTheSubagentNamesEndsTheCopy(t *testing.T) {
	t.Parallel()
	at := func(ordinal int, line []byte) []byte {
		return append(fmt.Appendf(nil, `{"ordinal":%d,`, ordinal), line[1:]...)
	}
	for _, start := range []any{4, "4"} {
		events := eventsOf(t,
			at(0, envelope(forkTime, "session_meta", members{"id": childID, "parent_thread_id": parentID, "subagent_history_start_ordinal": start})),
			at(1, envelope(forkTime, "session_meta", members{"id": parentID})),
			at(2, envelope(forkTime, "response_item", members{"type": "message", "role": "user", "content": "of the parent"})),
			at(3, tokenCount(forkTime, usageOf(80_000, 10_000), usageOf(80_000, 10_000))),
			at(4, envelope(ownTime, "response_item", members{"type": "message", "role": "user", "content": "of the child"})),
			at(5, tokenCount(ownTime, usageOf(83_500, 10_500), usageOf(3_500, 500))))
		var sum int64
		for _, e := range events {
			if e.TokensTotal != nil {
				sum += *e.TokensTotal
			}
			if e.Text != nil && (e.Origin == envelopes.OriginCopied) != (*e.Text == "of the parent") {
				t.Errorf("start %v: %q has origin %q", start, *e.Text, e.Origin)
			}
		}
		if sum != 4_000 {
			t.Errorf("start %v: %d tokens, want 4000", start, sum)
		}
	}
}

func TestTotalThatCannotBeReadChangesNothing(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]any{
		"empty":          members{},
		"negative":       members{"input_tokens": -5, "output_tokens": 10},
		"no object":      "many",
		"without output": members{"input_tokens": 150},
	} {
		got := tokensOf(t,
			envelope(ownTime, "session_meta", members{"id": childID}),
			tokenCount(ownTime, usageOf(90, 10), usageOf(90, 10)),
			tokenCount(ownTime, bad, usageOf(1, 1)),
			tokenCount(ownTime, usageOf(180, 20), usageOf(90, 10)))
		if got != 200 {
			t.Errorf("%s: %d tokens, want 200", name, got)
		}
	}
}

// response returns a token_usage_record.
func response(ts, thread, id string, use, total members) []byte {
	p := members{"thread_id": thread, "session_id": thread, "response_id": id, "usage": use, "turn_token_usage": total, "thread_token_usage": total}
	return envelope(ts, "token_usage_record", p)
}

func TestResponseIsBilledOnceWhateverRecordsStateIt(t *testing.T) {
	t.Parallel()
	meta := envelope(ownTime, "session_meta", members{"id": childID, "cli_version": "0.159.0"})
	turn := envelope(ownTime, "turn_context", members{"turn_id": ownTurn})
	first, second := usageOf(90, 10), usageOf(150, 50)
	records := [][]byte{response(ownTime, childID, "resp_1", first, first), response(ownTime, childID, "resp_2", second, usageOf(240, 60))}
	counts := [][]byte{tokenCount(ownTime, first, first), tokenCount(ownTime, usageOf(240, 60), second)}
	for name, lines := range map[string][][]byte{
		"records alone":               {records[0], records[1]},
		"each record again":           {records[0], records[0], records[1], records[0]},
		"each before its count":       {records[0], counts[0], records[1], counts[1]},
		"each behind its count":       {counts[0], records[0], counts[1], records[1]},
		"counts at the end":           {records[0], records[1], counts[0], counts[1]},
		"counts first, then records":  {counts[0], counts[1], records[0], records[1]},
		"the parent's beside its own": {response(ownTime, parentID, "resp_0", usageOf(1_000, 1_000), usageOf(1_000, 1_000)), records[0], records[1]},
		"totals of the thread alone": {
			envelope(ownTime, "token_usage_record", members{"thread_token_usage": first}),
			envelope(ownTime, "token_usage_record", members{"thread_token_usage": usageOf(240, 60)}),
		},
	} {
		if got := tokensOf(t, append([][]byte{meta, turn}, lines...)...); got != 300 {
			t.Errorf("%s: %d tokens, want 300", name, got)
		}
	}
}

func TestRecordOfAResponseHasItsIDAsKey(t *testing.T) {
	t.Parallel()
	for _, e := range eventsOf(t,
		envelope(ownTime, "session_meta", members{"id": childID}),
		envelope(ownTime, "turn_context", members{"turn_id": ownTurn, "model": "gpt-6"}),
		response(ownTime, childID, "resp_1", usageOf(90, 10), usageOf(90, 10)),
	) {
		if e.Usage == nil {
			continue
		}
		if e.Usage.Key != "resp_1" || e.Model == nil || *e.Model != "gpt-6" {
			t.Errorf("key %q, model %v", e.Usage.Key, e.Model)
		}
		return
	}
	t.Error("no event has tokens")
}

func TestCacheReadIsAnotherNameOfCached(t *testing.T) {
	t.Parallel()
	use := members{"input_tokens": 100, "cache_read_input_tokens": 60, "output_tokens": 5}
	for _, e := range eventsOf(t, envelope(ownTime, "session_meta", members{"id": childID}), tokenCount(ownTime, use, use)) {
		if e.Usage == nil {
			continue
		}
		if e.Usage.CacheRead != 60 || e.Usage.Input != 40 || e.TokensCached == nil || *e.TokensCached != 60 {
			t.Errorf("usage %+v, cached %v", *e.Usage, e.TokensCached)
		}
		return
	}
	t.Error("no event has tokens")
}

// uuid returns a UUID of a version: the 7th begins with the time in milliseconds.
func uuid(t *rapid.T, version int, at time.Time) string {
	tail := rapid.Uint64Range(0, 1<<48-1).Draw(t, "tail")
	if version == 4 {
		return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", tail&0xffffffff, tail&0xffff, tail&0xfff, tail>>12&0xfff, tail)
	}
	ms := at.UnixMilli()
	return fmt.Sprintf("%08x-%04x-7%03x-8%03x-%012x", ms>>16, ms&0xffff, tail&0xfff, tail>>12&0xfff, tail)
}

// thread is a generated rollout.
type thread struct {
	rt    *rapid.T
	now   time.Time
	ids   []int // versions of the ids that turns have; 0 is none
	lines [][]byte
	total [2]int
	spent int64
}

func (h *thread) stamp() string { return h.now.UTC().Format("2006-01-02T15:04:05.000Z") }

// turn writes a turn with some tokens. Its id has the time at which it starts.
func (h *thread) turn() {
	started := members{"started_at": h.now.Unix()}
	context := members{"model": "gpt-5.2-codex"}
	if v := rapid.SampledFrom(h.ids).Draw(h.rt, "id of the turn"); v > 0 {
		id := uuid(h.rt, v, h.now)
		started["turn_id"], context["turn_id"] = id, id
	}
	h.lines = append(h.lines, notice(h.stamp(), "task_started", started), envelope(h.stamp(), "turn_context", context))
	for range rapid.IntRange(0, 3).Draw(h.rt, "calls") {
		h.now = h.now.Add(time.Duration(rapid.IntRange(1, 9_000).Draw(h.rt, "ms of the call")) * time.Millisecond)
		in, out := rapid.IntRange(1, 900).Draw(h.rt, "input"), rapid.IntRange(1, 90).Draw(h.rt, "output")
		h.total[0], h.total[1], h.spent = h.total[0]+in, h.total[1]+out, h.spent+int64(in+out)
		count := tokenCount(h.stamp(), usageOf(h.total[0], h.total[1]), usageOf(in, out))
		h.lines = append(h.lines, count)
		if rapid.IntRange(0, 3).Draw(h.rt, "repeated") == 0 {
			h.lines = append(h.lines, count)
		}
	}
	h.now = h.now.Add(time.Duration(rapid.IntRange(1_000, 60_000).Draw(h.rt, "ms between turns")) * time.Millisecond)
}

// TestForkAndParentAreBilledOnce forks a generated thread behind any of its turns: the events
// of both files have the tokens that were spent, once.
func TestForkAndParentAreBilledOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		ids := rapid.SampledFrom([][]int{{4}, {7}, {4, 7}, {0}, {0, 4, 7}}).Draw(rt, "ids of turns")
		parent := &thread{rt: rt, now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), ids: ids}
		parentID := uuid(rt, 7, parent.now)
		parent.lines = append(parent.lines, envelope(parent.stamp(), "session_meta", members{"id": parentID}))
		var forkable []int // lines of the parent behind each turn
		for range rapid.IntRange(1, 5).Draw(rt, "turns of the parent") {
			parent.turn()
			forkable = append(forkable, len(parent.lines))
		}
		at := rapid.SampledFrom(forkable).Draw(rt, "forked behind line")

		child := &thread{rt: rt, now: parent.now.Add(time.Duration(rapid.IntRange(2, 600).Draw(rt, "s to the fork")) * time.Second), ids: ids}
		childID := uuid(rt, rapid.SampledFrom([]int{4, 7}).Draw(rt, "id of the child"), child.now)
		meta := members{"id": childID}
		switch rapid.IntRange(0, 2).Draw(rt, "kind of child") {
		case 0:
			meta["forked_from_id"] = parentID
		case 1:
			meta["source"] = members{"subagent": members{"thread_spawn": members{"parent_thread_id": parentID}}}
		default:
			meta["thread_source"], meta["parent_thread_id"] = "subagent", parentID
		}
		if v := rapid.SampledFrom([]string{"", "0.147.0", "0.159.0"}).Draw(rt, "version"); v != "" {
			meta["cli_version"] = v
		}
		child.lines = append(child.lines, envelope(child.stamp(), "session_meta", meta))
		if rapid.Bool().Draw(rt, "replay") {
			for _, l := range parent.lines[:at] { // with the time of the fork
				var r members
				if err := json.Unmarshal(l, &r); err != nil {
					rt.Fatal(err)
				}
				r["timestamp"] = child.stamp()
				line, _ := json.Marshal(r) //nolint:errchkjson // it was JSON before
				child.lines = append(child.lines, line)
				if c := strings.Contains(string(l), "token_count"); c {
					info := r["payload"].(members)["info"].(members)["total_token_usage"].(members)
					child.total = [2]int{int(info["input_tokens"].(float64)), int(info["output_tokens"].(float64))}
				}
			}
		}
		if rapid.Bool().Draw(rt, "a turn in a later millisecond") {
			child.now = child.now.Add(time.Duration(rapid.IntRange(1, 90_000).Draw(rt, "ms to the turn")) * time.Millisecond)
		}
		for range rapid.IntRange(1, 3).Draw(rt, "turns of the child") {
			child.turn()
		}
		if got, want := sumOf(rt, parent.lines)+sumOf(rt, child.lines), parent.spent+child.spent; got != want {
			rt.Fatalf("%d tokens, spent were %d; the child\n%s", got, want, bytes.Join(child.lines, []byte("\n")))
		}
	})
}

// sumOf returns the sum of the tokens of a rollout.
func sumOf(rt *rapid.T, lines [][]byte) int64 {
	data := append(bytes.Join(lines, []byte("\n")), '\n')
	file := normalizerstest.FileNamed(envelopes.Codex, "rollout.jsonl")
	var sum int64
	for _, st := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(file, data)) {
		if st.Err != nil {
			rt.Fatal(st.Err)
		}
		for _, e := range st.Result.Events {
			if e.Event.TokensTotal != nil {
				sum += *e.Event.TokensTotal
			}
		}
	}
	return sum
}
