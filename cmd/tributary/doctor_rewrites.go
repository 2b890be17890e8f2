package main

import (
	"fmt"
	"io"

	"tributary/cmd/internal/terminal"
)

// printRewrites writes the sessions whose files had other records at places that were read before. That is no
// problem: both versions are events. Records before which the raw stream had lost what it had are named, too.
func (d *diagnosis) printRewrites(w io.Writer) {
	shown, more := 0, 0
	for _, p := range d.Partitions {
		more += p.RewrittenSessions
		for _, s := range p.Rewritten {
			if shown++; shown > maxShownGaps {
				break
			}
			more--
			where := fmt.Sprintf("session %s of %s", terminal.OneLine(s.Session), terminal.OneLine(string(s.Source)))
			if s.Rewritten > 0 {
				fmt.Fprintf(w, "rewritten\t%s: %s at places that were read before, and both are events: its log was rewritten, or goes on on two machines\n",
					where, terminal.Plural(s.Rewritten, "other record"))
			}
			if s.Undecided > 0 {
				fmt.Fprintf(w, "undecided\t%s: %s at places whose earlier records have expired, taken for duplicates\n", where, terminal.Plural(s.Undecided, "record"))
			}
		}
	}
	if more > 0 {
		fmt.Fprintf(w, "rewritten\t%s\n", terminal.Plural(more, "other session"))
	}
}
