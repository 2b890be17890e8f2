package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
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
		Long: `Compare the events of two generations, session by session, by their event_id: which
are the same, changed (and in which fields), added (in B alone), removed (in A alone)
and reordered within their session. The field sequence is not compared: it is the
position in the session. The two are compared up to the last record that both have
done.

The exit code is 0 if nothing differs, 1 if something does.`,
		Example: `  tributary replay diff v1 b
  tributary replay diff v1 b --ignore tool_metadata --limit 3
  tributary replay diff v1 b -o json | jq .fields`,
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
				if !slices.Contains(replay.DiffFields(), name) {
					return usageError{fmt.Errorf("--ignore %q: write one of %s", name, strings.Join(replay.DiffFields(), ", "))}
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

// errDifferent is the error of generations that differ.
var errDifferent = errors.New("the generations differ")

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
		err = printDiff(terminal.Safe(a.stdout), d)
	}
	if err == nil && !d.Equal() {
		err = errDifferent
	}
	return err
}

// printDiff writes a diff for people.
func printDiff(w io.Writer, d *replay.Diff) error {
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
		names := slices.SortedFunc(maps.Keys(d.Fields), func(a, b string) int {
			return cmp.Or(cmp.Compare(d.Fields[b], d.Fields[a]), cmp.Compare(a, b))
		})
		t := terminal.NewTable("", "")
		for _, name := range names {
			t.Add("  "+name, terminal.Thousands(int64(d.Fields[name])))
		}
		if err := t.Write(w, terminal.Uncut); err != nil {
			return err
		}
	}
	for _, x := range d.Examples {
		fmt.Fprintf(w, "\n%s: %s of %s, session %s, event_id %s\n", x.Kind, x.EventType, x.Source, x.Session, x.EventID)
		for _, f := range x.Fields {
			left, right := around(f.A, f.B)
			fmt.Fprintf(w, "  %s\n    - %s\n    + %s\n", f.Field, left, right)
		}
	}
	return nil
}

// around returns what two values have around their first difference, on one line each.
func around(a, b jsontext.Value) (left, right string) {
	const before, shown = 20, 100
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	cut := func(v jsontext.Value) string {
		if v == nil {
			return "(absent)"
		}
		text := string(v)
		if from := same - before; from > 0 {
			text = "…" + strings.ToValidUTF8(text[min(from, len(text)):], "")
		}
		if len(text) > shown {
			text = strings.ToValidUTF8(text[:shown], "") + "…"
		}
		return text
	}
	return cut(a), cut(b)
}
