package doctor

import (
	"fmt"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/streams"
)

// Limits within which the state of an edge is no problem.
const (
	edgeSilent = 5 * streams.HeartbeatInterval // without a heartbeat: then the edge, or receiver, or its way to the broker is down
	edgeAway   = 24 * time.Hour                // without a heartbeat, if everything was sent: the machine may sleep
	edgeLate   = 10 * time.Minute              // the wait of unsent content
	edgeError  = time.Hour                     // how long an error counts after it last occurred
)

// edgeProblems returns the problems of the edges, each with its cure.
func (d *Diagnosis) edgeProblems() []string {
	var problems []string
	for _, e := range d.Edges {
		seen := d.since(e.Seen)
		add := func(format string, args ...any) {
			problems = append(problems, "edge "+terminal.OneLine(e.ID)+": "+fmt.Sprintf(format, args...))
		}
		switch {
		case e.Ended && e.Behind > 0:
			add("ended %v ago with %s unsent: run tributary ship there", terminal.Rough(seen), EdgeBacklog(e))
		case e.Ended:
		case seen > edgeSilent && e.Behind > 0:
			add("not seen for %v, and had %s unsent: start tributary ship there, or see why it cannot reach the broker", terminal.Rough(seen), EdgeBacklog(e))
		case seen > edgeAway && e.Follows:
			add("not seen for %v: start tributary ship there, or see why it cannot reach the broker", terminal.Rough(seen))
		case e.Behind > 0 && !e.Oldest.IsZero() && d.At.Sub(e.Oldest) > edgeLate:
			add("has not sent %s, which wait since %s: see its log", EdgeBacklog(e), terminal.DateTime(e.Oldest))
		}
		if e.Error != "" && d.At.Sub(e.ErrorAt) < edgeError {
			add("error: %s", terminal.OneLine(e.Error))
		}
	}
	return problems
}

// since returns how long ago t was, by a clock that may differ from that of the broker.
func (d *Diagnosis) since(t time.Time) time.Duration { return max(0, d.At.Sub(t)) }

// EdgeBacklog describes what an edge has not sent.
func EdgeBacklog(e streams.Edge) string {
	return fmt.Sprintf("%s in %s", terminal.Size(e.Bytes), terminal.Plural(e.Behind, "file"))
}
