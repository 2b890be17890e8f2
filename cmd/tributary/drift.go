package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"tributary/cmd/internal/terminal"
)

// printDrift prints a line for each agent whose log has items of unknown types, or whose version is newer than the last
// checked one. In a list each line names its file.
func (f fileReports) printDrift(w io.Writer, list bool) {
	for _, p := range f {
		name := ""
		if list {
			name = p.File + ": "
		}
		p.printDrift(w, name)
	}
}

// printDrift prints the lines of one report, each after name.
func (p *report) printDrift(w io.Writer, name string) {
	for _, source := range slices.Sorted(maps.Keys(p.Drift)) {
		d := p.Drift[source]
		var said []string
		if total := d.Total(); total > 0 {
			said = append(said, terminal.Plural(total, "item")+" of unknown types, which --report FILE lists")
		}
		if newest := d.Newest(); newest != "" {
			said = append(said, "version "+newest+" is newer than "+d.Checked+", the last one that was checked")
		}
		if len(said) > 0 {
			fmt.Fprintf(w, "%s%s: %s\n", name, source, strings.Join(said, "; "))
		}
	}
}
