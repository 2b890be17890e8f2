package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/streams"
)

// Limits within which the state of a receiver is no problem.
const (
	receiverError   = 10 * time.Minute // how long an error counts after it last occurred: clients send again sooner
	receiverRefusal = time.Hour        // how long a refused request counts
)

// States of a receiver.
const (
	listening = "listening"
	silent    = "silent"
	ended     = "ended"
)

// receivers are the receivers of a diagnosis.
type receivers struct{ *Diagnosis }

// state returns the state of a receiver.
func (d receivers) state(r streams.Receiver) string {
	switch {
	case r.Ended:
		return ended
	case d.since(r.Seen) > edgeSilent:
		return silent
	}
	return listening
}

// alive returns the receivers that are alive.
func (d receivers) alive() []streams.Receiver {
	return slices.DeleteFunc(slices.Clone(d.Receivers), func(r streams.Receiver) bool { return d.state(r) != listening })
}

// problems returns the errors of the receivers that are alive. The check has the rest.
func (d receivers) problems() []string {
	var problems []string
	for _, r := range d.alive() {
		if r.Error != "" && d.since(r.ErrorAt) < receiverError {
			problems = append(problems, fmt.Sprintf("receiver %s: the broker did not store a request, %s ago, and none since: %s: see its log, and limits",
				terminal.OneLine(r.ID), terminal.Rough(d.since(r.ErrorAt)), terminal.OneLine(r.Error)))
		}
	}
	return problems
}

// check judges whether a receiver is alive where one was, and whether clients lose what they send.
func (d receivers) check() Check {
	const name = "receivers"
	alive := d.alive()
	switch {
	case !d.edgesRead:
		return Check{Name: name, Verdict: Unknown, Text: seeRights}
	case len(d.Receivers) == 0:
		return Check{Name: name, Verdict: OK, Text: "none was seen in the last 7 days"}
	case len(alive) == 0:
		last := slices.MaxFunc(d.Receivers, func(a, b streams.Receiver) int { return a.Seen.Compare(b.Seen) })
		verdict, how := Problem, "was last seen"
		if last.Ended {
			verdict, how = Warning, "ended"
		}
		return Check{
			name, verdict, fmt.Sprintf("none is alive: %s %s %s ago", describeReceiver(last), how, terminal.Rough(d.since(last.Seen))),
			"start tributary receive there, or see why it cannot reach the broker: what agents export and post is lost until then",
		}
	}
	const most = 5
	var named []string
	for _, r := range alive[:min(most, len(alive))] {
		named = append(named, describeReceiver(r))
	}
	c := Check{Name: name, Verdict: OK, Text: fmt.Sprintf("%d alive: %s%s", len(alive), strings.Join(named, "; "), andMore(len(alive)-len(named)))}
	for _, r := range alive {
		if reason := lastRefused(r, true); reason != "" && d.since(r.Refused[reason].Last) < receiverRefusal {
			c.Verdict, c.Cure = Warning, "deploy/receive.md, Answers: clients do not send such requests again"
			c.Text += "; " + d.describe(r, reason)
			break
		}
	}
	return c
}

// describeReceiver names a receiver with its addresses.
func describeReceiver(r streams.Receiver) string {
	return terminal.OneLine(r.ID + " at " + strings.Join(r.Addresses, " and "))
}

// lastRefused returns the reason of the request that was refused last, empty for none; if final, of those that clients
// do not send again.
func lastRefused(r streams.Receiver, final bool) string {
	last := ""
	for reason, of := range r.Refused {
		if (of.Final || !final) && (last == "" || of.Last.After(r.Refused[last].Last)) {
			last = reason
		}
	}
	return last
}

// describe counts the requests that a receiver has refused by reason, and has the text of the last of one.
func (d receivers) describe(r streams.Receiver, last string) string {
	var counts []string
	for _, reason := range slices.Sorted(maps.Keys(r.Refused)) {
		counts = append(counts, fmt.Sprintf("%s %d", terminal.OneLine(reason), r.Refused[reason].Requests))
	}
	of := r.Refused[last]
	return fmt.Sprintf("%s refused requests: %s; %s %s ago: %s", terminal.OneLine(r.ID), strings.Join(counts, ", "),
		terminal.OneLine(last), terminal.Rough(d.since(of.Last)), terminal.OneLine(of.Text))
}

// table lists the receivers.
func (d receivers) table() *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{
		{Head: "RECEIVER"}, {Head: "VERSION", Priority: 1}, {Head: "STATE"}, {Head: "SEEN"}, {Head: "ADDRESSES"}, {Head: "REQUESTS", Priority: 2}, {Head: "RECORDS"},
	}}
	for _, r := range d.Receivers {
		t.Add(terminal.OneLine(r.ID), terminal.OneLine(r.Version), d.state(r), terminal.Rough(d.since(r.Seen))+" ago",
			terminal.OneLine(strings.Join(r.Addresses, " ")), terminal.Thousands(r.Requests), terminal.Thousands(r.Records))
	}
	return t
}

// notes counts what the receivers refused.
func (d receivers) notes() []string {
	var notes []string
	for _, r := range d.Receivers {
		if len(r.Refused) > 0 {
			notes = append(notes, "receiver "+d.describe(r, lastRefused(r, false)))
		}
	}
	return notes
}
