package doctor

import (
	"fmt"
	"slices"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/events"
)

// maxShownGaps limits the sessions whose gaps are separate problems.
const maxShownGaps = 10

// judgeGaps reports the sessions with gaps found since a time, whose records are missing. Expired records are no
// problem.
func (d *Diagnosis) judgeGaps(since time.Time) {
	shown, more := 0, 0
	for _, p := range d.Partitions {
		isProblem := func(s events.SessionGaps) bool { return !s.Expired && !found(s).Before(since) }
		problems := 0
		for _, s := range p.Gaps {
			if !isProblem(s) {
				continue
			}
			if problems++; shown < maxShownGaps {
				shown++
				d.Problems = append(d.Problems, gapProblem(s))
			} else {
				more++
			}
		}
		// Sessions that the partition does not name have older gaps: they are problems if all named ones are.
		if problems == len(p.Gaps) && (problems > 0 || since.IsZero()) {
			more += p.GapSessions - len(p.Gaps)
		}
	}
	if more > 0 {
		d.Problems = append(d.Problems, fmt.Sprintf("records of %s are missing in the raw stream: ship the logs again: tributary ship --again", terminal.Plural(more, "other session")))
	}
}

// found returns when the newest gap of a session was found.
func found(s events.SessionGaps) time.Time {
	return slices.MaxFunc(s.Gaps, func(a, b events.FileGap) int { return a.Found.Compare(b.Found) }).Found
}

// gapProblem describes the gaps of a session by its first gap.
func gapProblem(s events.SessionGaps) string {
	g := s.Gaps[0]
	where := fmt.Sprintf("between byte %s and the record at byte %s", terminal.Thousands(g.After), terminal.Thousands(g.Last))
	if g.After < 0 {
		where = "from the beginning to the record at byte " + terminal.Thousands(g.Last)
	}
	if g.File != "" {
		where += " of file " + terminal.OneLine(g.File)
	}
	if n := len(s.Gaps) - 1; n > 0 {
		where += fmt.Sprintf(", and %s more", terminal.Plural(n, "gap"))
	}
	return fmt.Sprintf("session %s of %s: records are missing in the raw stream, %s: ship its log again: tributary ship --again",
		terminal.OneLine(s.Session), terminal.OneLine(string(s.Source)), where)
}

// expired returns how many of the named sessions lack only expired records.
func (d *Diagnosis) expired() (n int) {
	for _, p := range d.Partitions {
		for _, s := range p.Gaps {
			if s.Expired {
				n++
			}
		}
	}
	return n
}
