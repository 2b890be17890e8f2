package ship_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/ship"
)

// prompts are the texts of the user messages that the records of the raw stream yield, in
// their order.
func (e *edge) prompts() []string {
	e.t.Helper()
	sessions, places := map[string]*core.Session{}, pipelinetest.Places{}
	var texts []string
	for _, r := range e.all() {
		if sessions[r.Session] == nil {
			sessions[r.Session] = normalizers.NewSession(r.Source, r.Session)
		}
		places.Note(sessions[r.Session], &r.Record)
		result, err := normalizers.Normalize(sessions[r.Session], r.Record)
		if err != nil {
			sessions[r.Session].Reject(r.Record) // a dead letter
			continue
		}
		if result.Gap {
			e.t.Errorf("a gap is reported before %s", r.Data)
		}
		for _, emitted := range result.Events {
			if emitted.Event.EventType == envelopes.UserMessage {
				texts = append(texts, *emitted.Event.Text)
			}
		}
	}
	return texts
}

// wantPrompts compares the user messages with those of the prompts with these numbers.
func (e *edge) wantPrompts(numbers ...int) {
	e.t.Helper()
	var want []string
	for _, n := range numbers {
		want = append(want, fmt.Sprintf("water bed %d", n))
	}
	if diff := gocmp.Diff(want, e.prompts()); diff != "" {
		e.t.Errorf("user messages (-want +got):\n%s", diff)
	}
}

// upTo returns the numbers from 1 to last, then more.
func upTo(last int, more ...int) []int {
	var numbers []int
	for n := 1; n <= last; n++ {
		numbers = append(numbers, n)
	}
	return append(numbers, more...)
}

// An agent may take back its last records. The records that it writes then have the
// positions of other records, and are still no duplicates; the records before are not
// shipped again.
func TestTruncatedFileThatGoesOnDifferentlyIsShippedFromThere(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	before := prompts("one", 1, 20)
	for _, record := range before {
		e.append("garden/one.jsonl", record+"\n")
	}
	f := e.follow()
	raw.expect(before...)
	if err := os.Truncate(e.path("garden/one.jsonl"), int64(len(lines(before[:15]...)))); err != nil {
		t.Fatal(err)
	}
	raw.expect("end of one")
	e.append("garden/one.jsonl", lines(prompt("one", 99)))
	raw.expect(prompts("one", 99, 99)...)
	f.stop()
	e.wantPrompts(upTo(20, 99)...)
}

// A log that is visited while it is empty is not another log when it is written again.
func TestEmptiedFileThatIsRewrittenIsTheSameFile(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	raw := e.tap()
	e.write("garden/one.jsonl", lines(prompts("one", 1, 20)...))
	f := e.follow()
	raw.expect(prompts("one", 1, 20)...)
	e.write("garden/one.jsonl", "")
	raw.expect("end of one")
	e.write("garden/one.jsonl", lines(prompts("one", 1, 15)...)+lines(prompt("one", 99)))
	raw.expect(prompt("one", 99))
	f.stop()
	e.wantPrompts(upTo(20, 99)...)
}

// The log is truncated and outgrows its old size between two visits.
func TestTruncatedFileThatOutgrewItsOldSizeIsRecognized(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"on its inode", "on another inode"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			e.write("garden/one.jsonl", lines(prompts("one", 1, 20)...))
			e.once()
			now := lines(prompts("one", 1, 19)...) + lines(prompts("one", 30, 35)...)
			if name == "on its inode" {
				e.write("garden/one.jsonl", now)
			} else {
				e.write("garden/other", now)
				e.rename("garden/other", "garden/one.jsonl")
			}
			if s := e.once(); s.Records != 6 {
				t.Errorf("%d records were shipped, want 6", s.Records)
			}
			e.wantPrompts(upTo(20, 30, 31, 32, 33, 34, 35)...)
			if s := e.once(); s.Records != 0 {
				t.Errorf("%d records were shipped again", s.Records)
			}
		})
	}
}

// Whatever is appended to a log, cut off it or replaced, each record that the log has during
// a visit is emitted once, in its order.
func TestEveryRecordSeenIsEmittedOnceWhateverIsTruncated(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			e := newEdge(t)
			var content []byte
			var want []int
			numbers := map[string]int{}
			last, half := 0, ""
			record := func() string {
				last++
				numbers[prompt("one", last)] = last
				return prompt("one", last)
			}
			known := map[int]bool{}
			visit := func() {
				e.once(func(c *ship.Config) { c.BatchRecords = 1 + random.IntN(50) })
				for line := range strings.Lines(string(content)) { // some are unfinished
					if n := numbers[strings.TrimSuffix(line, "\n")]; n != 0 && !known[n] {
						known[n] = true
						want = append(want, n)
					}
				}
			}
			for range 40 {
				switch random.IntN(6) {
				case 0: // truncated near its end, or anywhere
					n := cmp.Or(random.IntN(2)*len(content), min(len(content), 1000))
					if n > 0 {
						content = content[:len(content)-random.IntN(n+1)]
					}
				case 1: // half a record, later its rest or another record
					if n := bytes.LastIndexByte(content, '\n') + 1; n == len(content) {
						half = record()
						content = append(content, half[:random.IntN(len(half))]...)
					} else if rest, ok := strings.CutPrefix(half, string(content[n:])); ok {
						content = append(content, rest...)
					}
				default:
					if n := len(content); n > 0 && content[n-1] != '\n' {
						content = append(content, '\n')
					}
					for range random.IntN(40) {
						content = append(content, record()+"\n"...)
					}
				}
				if random.IntN(4) == 0 { // visited while it is empty or half written
					whole := content
					content = content[:random.IntN(2)*random.IntN(len(content)+1)]
					e.write("garden/one.jsonl", string(content))
					visit()
					content = whole
				}
				if random.IntN(3) == 0 {
					e.write("garden/other", string(content))
					e.rename("garden/other", "garden/one.jsonl")
				} else {
					e.write("garden/one.jsonl", string(content))
				}
				if random.IntN(2) == 0 {
					visit()
				}
			}
			visit()
			e.wantPrompts(want...)
			if len(want) < 100 {
				t.Errorf("the seed draws only %d records", len(want))
			}
		})
	}
}
