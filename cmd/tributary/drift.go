package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/drift"
	"tributary/cmd/internal/printer"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/ship"
)

// driftFlags are the flags of drift.
type driftFlags struct{ source, output string }

func driftCommand(a *app) *cobra.Command {
	var f driftFlags
	cmd := &cobra.Command{
		Use:   "drift [flags] [PATH...]",
		Short: "List what newer agents write and no rule reads",
		Long: `Read the logs of this machine, those that ship finds, or the files and folders that are
named, and list what no rule reads, by agent and version: types of records, blocks and
outputs, members beside token counts, and fields, which are other members of objects
that a rule reads. A version that is newer than the last one that was checked has a row
with the number of its records. What is known and not read on purpose is left out, and so
are the arguments and the metadata of tools, which may have any member.

The name of a field is its path: [] is any element of an array, * any member of a map.
A name that is no identifier, or one too many, is other. The example is the first place,
file and line. No content of logs is printed.

The exit code is 3 if some logs or records could not be read.`,
		Example: `  tributary drift
  tributary drift --source SOURCE session.jsonl
  tributary drift -o json | jq -r 'select(.kind == "field") | .name'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(f.output, "table", "json"); err != nil {
				return err
			}
			return printDrift(cmd.Context(), a, &f, args)
		},
	}
	sourceFlag(cmd, &f.source, "only logs of this agent; for named files, the agent that wrote them")
	cmd.Flags().StringVarP(&f.output, "output", "o", "table", "table or json")
	return cmd
}

// driftJSON is an item in the JSON of tributary drift.
type driftJSON struct {
	Source  envelopes.Source `json:"source"`
	Version string           `json:"version"`      // of the agent
	Checked string           `json:"last_checked"` // the newest version that was compared
	Newer   bool             `json:"newer"`        // version is newer than that
	Kind    core.UnknownKind `json:"kind"`
	Name    string           `json:"name"`
	Count   int              `json:"count"`
	File    string           `json:"file"` // of the first one
	Line    int              `json:"line"` // 0 in a database
}

// printDrift reads logs and prints what no rule reads.
func printDrift(ctx context.Context, a *app, f *driftFlags, paths []string) error {
	source, err := parseSource(f.source)
	if err != nil {
		return err
	}
	roots, err := a.config.roots()
	if err != nil {
		return err
	}
	logs, refused, err := ship.Logs(ship.Config{Paths: paths, Roots: roots, Source: source})
	if err != nil {
		return err
	}
	relaxGC()
	d := driftReader{app: a, counter: drift.NewCounter(), buffer: make([]byte, 64<<10)}
	for _, r := range refused {
		d.refuse(r.Err)
	}
	for _, l := range logs {
		if err := d.read(ctx, l); err != nil {
			return err
		}
	}
	items := d.items()
	if f.output == "json" {
		for _, i := range items {
			if err := terminal.WriteJSON(a.stdout, i); err != nil {
				return err
			}
		}
	} else if err := driftTable(items).Write(a.stdout, terminal.TableWidth(a.stdout)); err != nil {
		return err
	}
	return d.verdict(len(logs), len(items))
}

// driftReader counts the drift of logs.
type driftReader struct {
	*app
	counter *drift.Counter
	buffer  []byte
	refused int // logs that could not be read
	letters int // records that could not be read
}

// read counts the drift of a log. It returns an error if no further log is to be read.
func (d *driftReader) read(ctx context.Context, l ship.Log) error {
	out := bufio.NewWriter(io.Discard)
	n := newLogNormalizer(d.app, out, printer.NewLines(out, printer.AsEvents, printer.Members{}), false)
	n.report, n.normalize = newReportOf(d.counter), normalizers.NormalizeWatched
	d.counter.Place = drift.Place{File: l.Path}
	err := normalizeLog(ctx, d.app, l.Path, l.File, n, d.buffer)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		d.refuse(err)
	}
	d.letters += len(n.report.DeadLetters)
	return nil
}

// refuse reports a log that cannot be read; of many, the first ones.
func (d *driftReader) refuse(err error) {
	const most = 5
	if d.refused++; d.refused <= most {
		fmt.Fprintf(d.stderr, "tributary: %v\n", err)
	}
}

// items returns what was found, by agent and version.
func (d *driftReader) items() []driftJSON {
	var items []driftJSON
	for _, source := range slices.Sorted(maps.Keys(d.counter.Agents)) {
		agent := d.counter.Agents[source]
		agent.Settle()
		for _, i := range agent.Items() {
			items = append(items, driftJSON{
				Source: source, Version: i.Version, Checked: agent.Checked, Newer: slices.Contains(agent.Newer, i.Version),
				Kind: i.Kind, Name: i.Name, Count: i.Count, File: i.Example.File, Line: i.Example.Line,
			})
		}
	}
	return items
}

// driftTable returns the table for people.
func driftTable(items []driftJSON) *terminal.Table {
	t := terminal.NewTable("SOURCE", "VERSION", "KIND", "NAME", "COUNT", "EXAMPLE")
	t.Columns[4].Right = true
	t.Columns[5].Text, t.Columns[5].Path = true, true
	for _, i := range items {
		place := i.File
		if i.Line > 0 {
			place += ":" + strconv.Itoa(i.Line)
		}
		t.Add(string(i.Source), i.Version, string(i.Kind), i.Name, terminal.Thousands(int64(i.Count)), place)
	}
	return t
}

// verdict prints what was read, and returns the error of what could not be.
func (d *driftReader) verdict(logs, items int) error {
	found := "nothing that no rule reads"
	if items > 0 {
		found = terminal.Plural(items, "item") + " that no rule reads"
	}
	fmt.Fprintf(d.stderr, "%s: %s\n", terminal.Plural(logs, "log"), found)
	switch {
	case d.refused > 0 && d.letters > 0:
		return partlyError(fmt.Sprintf("%s and %s could not be read", terminal.Plural(d.refused, "log"), terminal.Plural(d.letters, "record")))
	case d.refused > 0:
		return partlyError(terminal.Plural(d.refused, "log") + " could not be read")
	case d.letters > 0:
		return partlyError(terminal.Plural(d.letters, "record") + " could not be read, which tributary normalize --report lists")
	}
	return nil
}

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
		var notes []string
		if total := d.Total(); total > 0 {
			notes = append(notes, terminal.Plural(total, "item")+" of unknown types, which --report FILE lists")
		}
		if newest := d.Newest(); newest != "" {
			notes = append(notes, "version "+newest+" is newer than "+d.Checked+", the last one that was checked")
		}
		if len(notes) > 0 {
			fmt.Fprintf(w, "%s%s: %s\n", name, source, strings.Join(notes, "; "))
		}
	}
}
