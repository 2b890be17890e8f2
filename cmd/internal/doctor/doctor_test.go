package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tributary/pipeline/events"
	"tributary/pipeline/replay"
	"tributary/pipeline/runner"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

func TestDoctorReportsFullArchives(t *testing.T) {
	t.Parallel()
	d := &Diagnosis{}
	d.Partitions = []replay.PartitionStatus{{Unarchived: 40}, {Partition: 1, Unarchived: 2}}
	d.judge()
	const want = "the archives have no room for 42 states"
	if !slices.ContainsFunc(d.Problems, func(p string) bool { return strings.HasPrefix(p, want) }) {
		t.Errorf("problems %q, want %s", d.Problems, want)
	}
}

// A worker that is not ready for a moment, as when a generation is promoted, is no problem; one that stays so is.
func TestWorkerThatStaysUnreadyIsAProblem(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int64]bool{0: false, 4: false, 5: true, 600: true} {
		d := Diagnosis{Answers: []runner.State{{Name: "ada", NotReady: "partition 3: no room", Unready: seconds, Error: "partitions lost: no room", Seconds: 1}}}
		d.judgeAnswers()
		if is := len(d.Problems) == 1 && strings.Contains(d.Problems[0], "worker ada is not ready: partition 3: no room"); is != want || !want && len(d.Problems) > 0 {
			t.Errorf("not ready for %d s: problems %q", seconds, d.Problems)
		}
	}
}

// TestDoctorSaysWhatIsAboutToExpireUnread checks what is a problem of a reader that is behind, by the age of the first event that it
// has not read.
func TestDoctorSaysWhatIsAboutToExpireUnread(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	for name, want := range map[string]struct {
		status   events.ReaderStatus
		problems int
	}{
		"kept for ever":   {events.ReaderStatus{Behind: 3, Oldest: at.Add(-time.Hour)}, 0},
		"time enough":     {events.ReaderStatus{Behind: 3, Oldest: at.Add(-time.Hour), Expires: at.Add(2 * time.Hour)}, 0},
		"about to expire": {events.ReaderStatus{Behind: 3, Oldest: at.Add(-2 * time.Hour), Expires: at.Add(time.Hour)}, 1},
	} {
		var d Diagnosis
		d.At = at
		d.judgeReader("export x", &want.status, "run it")
		if len(d.Problems) != want.problems {
			t.Errorf("%s: %q", name, d.Problems)
		}
	}
}

func TestEdgesWithABacklogAndSilentEdgesAreProblems(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		edge streams.Edge
		want string // empty for no problem
	}{
		"all is sent":            {streams.Edge{Follows: true, Seen: ago(10 * time.Second)}, ""},
		"a machine that sleeps":  {streams.Edge{Follows: true, Seen: ago(10 * time.Hour)}, ""},
		"ended":                  {streams.Edge{Follows: true, Ended: true, Seen: ago(50 * time.Hour)}, ""},
		"a timer":                {streams.Edge{Ended: true, Seen: ago(10 * time.Hour)}, ""},
		"sends":                  {streams.Edge{Follows: true, Seen: ago(time.Second), Behind: 3, Bytes: 5000, Oldest: ago(time.Minute)}, ""},
		"an error of yesterday":  {streams.Edge{Follows: true, Seen: ago(time.Second), Error: "unreadable", ErrorAt: ago(24 * time.Hour)}, ""},
		"not seen for long":      {streams.Edge{Follows: true, Seen: ago(30 * time.Hour)}, "not seen for 30h0m: start"},
		"silent with a backlog":  {streams.Edge{Follows: true, Seen: ago(time.Hour), Behind: 3, Bytes: 5000}, "had 4.9 KiB in 3 files unsent"},
		"ended with a backlog":   {streams.Edge{Ended: true, Seen: ago(time.Hour), Behind: 1, Bytes: 5}, "ended 1h0m ago with 5 B in 1 file unsent"},
		"does not get on":        {streams.Edge{Follows: true, Seen: ago(time.Second), Behind: 1, Bytes: 5, Oldest: ago(time.Hour)}, "has not sent 5 B in 1 file"},
		"an error of just now":   {streams.Edge{Follows: true, Seen: ago(time.Second), Error: "offsets cannot be saved", ErrorAt: ago(time.Minute)}, "error: offsets cannot be saved"},
		"a clock that is behind": {streams.Edge{Follows: true, Seen: now.Add(time.Second)}, ""},
	} {
		d := Diagnosis{Edges: []streams.Edge{c.edge}}
		d.At = now
		got := strings.Join(d.edgeProblems(), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if rows := edgeTable(&d).Rows; len(rows) != 1 {
			t.Errorf("%s: %v", name, rows)
		}
	}
}

func TestNumbersAreWrittenAsRanges(t *testing.T) {
	t.Parallel()
	for want, list := range map[string][]int{"none": nil, "3": {3}, "0-3 7": {0, 1, 2, 3, 7}, "1 3-4": {1, 3, 4}} {
		if got := numbers(list); got != want {
			t.Errorf("%v: %q, want %q", list, got, want)
		}
	}
}

// Doctor sums up what the workers found that no rule reads, by agent and version, and names the command that lists it.
func TestDoctorSaysDrift(t *testing.T) {
	t.Parallel()
	d := &Diagnosis{}
	if c := d.checkDrift(); c.Verdict != Unknown {
		t.Errorf("without an answer: %+v", c)
	}
	d.Answers = []runner.State{{}, {}}
	if c := d.checkDrift(); c.Verdict != OK {
		t.Errorf("of workers that found nothing: %+v", c)
	}
	d.Answers[0].Drift = []worker.Drifted{{Source: "claude_code", Version: "999.0.0", Newer: true, Items: 2}, {Source: "gemini", Version: "unknown", Items: 1}}
	d.Answers[1].Drift = []worker.Drifted{{Source: "claude_code", Version: "999.0.0", Newer: true, Items: 3}, {Source: "codex", Version: "999.0.0", Newer: true}}
	c := d.checkDrift()
	for _, want := range []string{
		"claude_code 999.0.0 is newer than ", "the last version that was checked, and has 5 items that no rule reads; codex 999.0.0 is newer than ",
		"the last version that was checked; gemini unknown has 1 item that no rule reads",
	} {
		if c.Verdict != Warning || !strings.Contains(c.Text, want) || !strings.Contains(c.Cure, "tributary drift") {
			t.Errorf("%+v, want %s", c, want)
		}
	}
}
