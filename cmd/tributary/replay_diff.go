package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/replay"
)

func replayDiffCommand(a *app) *cobra.Command {
	var q replay.DiffQuery
	var source, output string
	cmd := &cobra.Command{
		Use:   "diff A B [flags]",
		Short: "Compare the events of two generations",
		Long: `Compare the events of two generations, session by session, by event_id: which are the
same, changed (and in which fields), added (in B alone), removed (in A alone) and
reordered within their session, by agent and type. The field sequence is not compared:
it is the position in the session. The comparison ends with the last record that both
have done.

The exit code is 0 if nothing differs, 1 if something does or if there was nothing to
compare.`,
		Example: `  tributary replay diff v1 b
  tributary replay diff v1 b --ignore tool_metadata --limit 3
  tributary replay diff v1 b -o json | jq '.groups[] | select(.changed > 0)'`,
		Args: generationArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "pretty", "json"); err != nil {
				return err
			}
			var err error
			if q.Source, err = parseSource(source); err != nil {
				return err
			}
			for _, name := range q.Ignore {
				if _, err := parseEnum("ignore", name, replay.DiffFields()); err != nil {
					return err
				}
			}
			if q.Limit < 0 {
				return usageError{fmt.Errorf("--limit %d: write 0 or more", q.Limit)}
			}
			return a.withBroker(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				return diffGenerations(ctx, a, js, args[0], args[1], q, output)
			})
		},
	}
	flags := cmd.Flags()
	sourceFlag(cmd, &source, "only events of this agent")
	flags.StringVar(&q.Session, "session", "", "only events of this session: its whole id")
	flags.StringArrayVar(&q.Ignore, "ignore", nil, "a `field` that is not compared; may be repeated")
	completeFlag(cmd, "ignore", replay.DiffFields())
	flags.IntVar(&q.Limit, "limit", 5, "examples of each kind of difference; 0 for none")
	flags.StringVarP(&output, "output", "o", "pretty", "pretty or json")
	a.serverFlag(cmd)
	return cmd
}

// Errors of a comparison that found differences, or nothing to compare.
var (
	errDifferent       = errors.New("the generations differ")
	errNothingCompared = errors.New("nothing was compared: --source and --session select no event of the records that both generations have done: see tributary replay ls")
)

// diffGenerations compares two generations and prints the result.
func diffGenerations(ctx context.Context, a *app, js jetstream.JetStream, nameA, nameB string, q replay.DiffQuery, output string) error {
	if _, err := readGenerations(ctx, js); err != nil {
		return err
	}
	d, err := replay.Compare(ctx, js, nameA, nameB, q)
	if err != nil {
		return err
	}
	for _, side := range []replay.DiffSide{d.A, d.B} {
		if !side.CaughtUp {
			fmt.Fprintf(a.stderr, "%s has not done every record: the comparison ends with the last record that both have done\n", side.Generation)
		}
	}
	if output == "json" {
		err = terminal.WriteJSON(a.stdout, d)
	} else {
		err = printDiff(terminal.Safe(a.stdout), d, terminal.TableWidth(a.stdout))
	}
	switch {
	case err != nil:
		return err
	case d.Events == 0:
		return errNothingCompared
	case !d.Equal():
		return errDifferent
	}
	return nil
}

// printDiff writes a diff for people, in lines of at most width columns.
func printDiff(w io.Writer, d *replay.Diff, width int) error {
	t := terminal.NewTable("", d.A.Generation, d.B.Generation)
	t.Add("events", terminal.Thousands(int64(d.A.Events)), terminal.Thousands(int64(d.B.Events)))
	for _, name := range replay.TokenFields() {
		if n := d.Tokens[name]; n.A != 0 || n.B != 0 {
			t.Add(name, terminal.Thousands(n.A), terminal.Thousands(n.B))
		}
	}
	if err := t.Write(w, terminal.Uncut); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s in %s: %s same, %s changed, %s added, %s removed; %s reordered\n",
		terminal.Plural(int(d.Events), "event"), terminal.Plural(int(d.Sessions), "session"), terminal.Thousands(int64(d.Same)),
		terminal.Thousands(int64(d.Changed)), terminal.Thousands(int64(d.Added)), terminal.Thousands(int64(d.Removed)), terminal.Thousands(int64(d.Reordered)))
	if len(d.Fields) > 0 {
		fmt.Fprintf(w, "\nchanged fields\n")
		t := terminal.NewTable("", "")
		for _, name := range replay.FieldsByCount(d.Fields) {
			t.Add("  "+name, terminal.Thousands(int64(d.Fields[name])))
		}
		if err := t.Write(w, terminal.Uncut); err != nil {
			return err
		}
	}
	if t := groupTable(d); len(t.Rows) > 0 {
		fmt.Fprintln(w)
		if err := t.Write(w, width); err != nil {
			return err
		}
	}
	for _, x := range d.Examples {
		parts := []string{fmt.Sprintf("%s: %s of %s", x.Kind, x.EventType, x.Source), "session " + x.Session, "event_id " + x.EventID}
		head := strings.Join(parts, ", ")
		if terminal.WidthOf(head) > width {
			head = strings.Join(parts, ",\n  ") // ids stay whole
		}
		fmt.Fprintf(w, "\n%s\n", head)
		for _, f := range x.Fields {
			left, right := f.Around(min(maxValue, width-len("    - …")-1))
			fmt.Fprintf(w, "  %s\n    - %s\n    + %s\n", f.Field, left, right)
		}
	}
	return nil
}

// groupTable lists the agents and types whose events differ.
func groupTable(d *replay.Diff) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{
		{Head: "AGENT"},
		{Head: "TYPE"},
		{Head: "CHANGED", Right: true},
		{Head: "ADDED", Right: true},
		{Head: "REMOVED", Right: true},
		{Head: "REORDERED", Right: true},
		{Head: "CHANGED FIELDS", Wrap: true},
	}}
	for _, g := range d.Groups {
		if g.Equal() {
			continue
		}
		var fields []string
		for _, name := range replay.FieldsByCount(g.Fields) {
			fields = append(fields, name+" "+terminal.Thousands(int64(g.Fields[name])))
		}
		row := []string{string(g.Source), string(g.EventType)}
		for _, n := range []uint64{g.Changed, g.Added, g.Removed, g.Reordered} {
			row = append(row, terminal.Thousands(int64(n))) //nolint:gosec // a number of events
		}
		t.Add(append(row, strings.Join(fields, ", "))...)
	}
	return t
}

// maxValue limits the width of a value in an example.
const maxValue = 100
