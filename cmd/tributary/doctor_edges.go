package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/streams"
)

// Limits of what is no problem with an edge.
const (
	edgeSilent = 5 * streams.EdgeHeartbeat // without a heartbeat: the edge or its way to the broker is down
	edgeAway   = 24 * time.Hour            // an edge that had sent everything may be away for so long: a machine that sleeps
	edgeLate   = 10 * time.Minute          // content may wait for so long
	edgeError  = time.Hour                 // an error counts for so long after it was noticed last
)

// edgeProblems returns the problems of the edges, each with its cure.
func (d *diagnosis) edgeProblems() []string {
	var problems []string
	for _, e := range d.Edges {
		seen := d.seen(e)
		add := func(format string, args ...any) {
			problems = append(problems, "edge "+terminal.OneLine(e.ID)+": "+fmt.Sprintf(format, args...))
		}
		switch {
		case e.Ended && e.Behind > 0:
			add("ended %v ago with %s unsent: run tributary ship there", terminal.Rough(seen), edgeBacklog(e))
		case e.Ended:
		case seen > edgeSilent && e.Behind > 0:
			add("not seen for %v, and had %s unsent: start tributary ship there, or see why it cannot reach the broker", terminal.Rough(seen), edgeBacklog(e))
		case seen > edgeAway && e.Follows:
			add("not seen for %v: start tributary ship there, or see why it cannot reach the broker", terminal.Rough(seen))
		case e.Behind > 0 && !e.Oldest.IsZero() && d.At.Sub(e.Oldest) > edgeLate:
			add("has not sent %s, which wait since %s: see its log", edgeBacklog(e), terminal.DateTime(e.Oldest))
		}
		if e.Error != "" && d.At.Sub(e.ErrorAt) < edgeError {
			add("error: %s", terminal.OneLine(e.Error))
		}
	}
	return problems
}

// printEdges writes the edges.
func (d *diagnosis) printEdges(w io.Writer) error {
	if len(d.Edges) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\n")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "EDGE\tVERSION\tSTATE\tSEEN\tFILES\tUNSENT\tHELD BACK\n")
	for _, e := range d.Edges {
		state := "following"
		switch {
		case e.Ended:
			state = "ended"
		case d.seen(e) > edgeSilent:
			state = "silent"
		case !e.Follows:
			state = "sending"
		}
		unsent := "none"
		if e.Behind > 0 {
			unsent = edgeBacklog(e)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s ago\t%d\t%s\t%d\n", terminal.OneLine(e.ID), terminal.OneLine(e.Version), state, terminal.Rough(d.seen(e)), e.Files, unsent, e.Held)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, e := range d.Edges {
		if e.Hidden > 0 {
			fmt.Fprintf(w, "edge %s: skipped %s: its log names the first, and ship sends what is in one that is named\n", terminal.OneLine(e.ID), terminal.Plural(e.Hidden, "hidden folder"))
		}
	}
	return nil
}

// seen is how long ago an edge was seen.
func (d *diagnosis) seen(e streams.Edge) time.Duration { return max(0, d.At.Sub(e.Seen)) }

// edgeBacklog is what an edge has not sent.
func edgeBacklog(e streams.Edge) string {
	return fmt.Sprintf("%s in %s", terminal.Size(e.Bytes), terminal.Plural(e.Behind, "file"))
}
