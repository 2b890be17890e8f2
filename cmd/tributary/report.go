package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/cmd/internal/drift"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// report is the outcome of the records of a log. At any time Records is the sum of RecordsWithEvents, all of Skipped,
// and DeadLetters: each record is in exactly one of them. It moves from Skipped to RecordsWithEvents if its event is
// emitted later.
type report struct {
	Records           int                               `json:"records"`
	RecordsWithEvents int                               `json:"records_with_events"`
	Events            int                               `json:"events"`
	Skipped           map[core.SkipReason]int           `json:"skipped"`
	DeadLetters       []deadLetter                      `json:"dead_letters"`
	Drift             map[envelopes.Source]*drift.Agent `json:"drift"` // of each agent of the log

	drift *drift.Counter // counts Drift

	waiting map[uint64]core.SkipReason // skipped records whose events may still be emitted
	oldest  []uint64                   // keys of waiting, oldest first
}

// deadLetter is a record that could not be read.
type deadLetter struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}

// maxWaiting limits the skipped records whose events may follow: far more than the state of a session can have
// pending.
const maxWaiting = 1 << 16

func newReport() *report { return newReportOf(drift.NewCounter()) }

// newReportOf returns a report whose drift is counted by counter, which may count other logs, too.
func newReportOf(counter *drift.Counter) *report {
	return &report{
		Skipped:     map[core.SkipReason]int{},
		DeadLetters: []deadLetter{},
		Drift:       counter.Agents,
		drift:       counter,
		waiting:     map[uint64]core.SkipReason{},
	}
}

// deadLetter counts a record that failed with err. It returns err if the record is not at fault.
func (p *report) deadLetter(line int, err error) error {
	reason, permanent := core.Reason(err)
	if !permanent {
		return err
	}
	p.Records++
	p.DeadLetters = append(p.DeadLetters, deadLetter{line, reason})
	return nil
}

// count counts a record of a session, and the earlier records whose events were emitted with it.
func (p *report) count(s *core.Session, r core.Record, result core.Result) {
	if !r.Origin.End || len(result.Unknown) > 0 {
		p.drift.Count(s.Source(), normalizers.VersionOf(s), result.Unknown)
	}
	p.Events += len(result.Events)
	own := false
	for i := range result.Events {
		sequence := result.Events[i].Sequence
		if !r.Origin.End && sequence == r.Sequence {
			own = true
		} else {
			p.settle(sequence)
		}
	}
	if r.Origin.End {
		return
	}
	p.Records++
	if own {
		p.RecordsWithEvents++
		return
	}
	reason := result.Skip
	if reason == "" { // all events belong to earlier records: its own may follow
		reason = core.SkipHeld
	}
	p.skip(r.Sequence, reason)
}

// settle counts an earlier record whose event was emitted now.
func (p *report) settle(sequence uint64) {
	reason, ok := p.waiting[sequence]
	if !ok {
		return
	}
	delete(p.waiting, sequence)
	if p.Skipped[reason]--; p.Skipped[reason] == 0 {
		delete(p.Skipped, reason)
	}
	p.RecordsWithEvents++
}

// skip counts a record without an event.
func (p *report) skip(sequence uint64, reason core.SkipReason) {
	p.Skipped[reason]++
	if reason != core.SkipHeld && reason != core.SkipProgress {
		return
	}
	p.waiting[sequence] = reason
	p.oldest = append(p.oldest, sequence)
	if len(p.oldest) > maxWaiting {
		delete(p.waiting, p.oldest[0])
		p.oldest = p.oldest[1:]
	}
}

// fileReport is the report of a file.
type fileReport struct {
	File string `json:"file"`
	*report
}

// fileReports are the reports of files in the order of the arguments.
type fileReports []fileReport

// write writes the reports as JSON: as a list, or without list the only one by itself.
func (f fileReports) write(w io.WriteCloser, list bool) error {
	for _, p := range f {
		for _, d := range p.Drift {
			d.Settle()
		}
	}
	var value any = struct {
		Files fileReports `json:"files"`
	}{f}
	if !list {
		value = f[0].report
	}
	return errors.Join(terminal.WriteJSON(w, value, jsontext.WithIndent("  ")), w.Close())
}

// verdict prints the first dead letters and returns their error, nil if there are none. In a list each line names its
// file.
func (f fileReports) verdict(w io.Writer, list bool) error {
	const most = 5
	letters, records := 0, 0
	for _, p := range f {
		records += p.Records
		for _, d := range p.DeadLetters {
			if letters++; letters > most {
				continue
			}
			if list {
				fmt.Fprintf(w, "%s: ", p.File)
			}
			fmt.Fprintf(w, "line %d: %s\n", d.Line, d.Reason)
		}
	}
	if letters == 0 {
		return nil
	}
	if letters > most {
		fmt.Fprintf(w, "and %d more: --report FILE lists them all\n", letters-most)
	}
	return partlyError(fmt.Sprintf("%s of %s could not be read", terminal.Thousands(int64(letters)), terminal.Plural(records, "record")))
}
