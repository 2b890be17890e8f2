package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/doctor"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/erasure"
	"tributary/pipeline/events"
	"tributary/pipeline/export"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
)

// eraseFlags are the flags of erase.
type eraseFlags struct {
	sessions, exports []string
	user, by          string
	yes, dryRun       bool
}

func eraseCommand(a *app) *cobra.Command {
	var f eraseFlags
	cmd := &cobra.Command{
		Use:   "erase [flags] --session SOURCE/ID|--user NAME",
		Short: "Erase sessions for good",
		Long: `Remove everything that the broker has of sessions, in every generation: raw records
with their objects, events, dead letters, session states and archives, summaries,
titles and pins. --user selects the sessions whose records name that user, see
tributary sessions show. Events of other sessions stay as they are.

Workers leave out records of these sessions that arrive later. The raw stream keeps such
records until the command runs again, so first remove the logs of the sessions, or end
the edges that still send them.

The command shows what it found and asks before it removes anything. After an
interruption, run it again: it finishes what it began. erase ls lists who erased which
session when.

The command changes no export: name each with --export, and it lists the files with rows
of the sessions. It can do so only before their events are removed. Logs, exports and
backups: deploy/privacy.md.`,
		Example: `  tributary erase --session "$session" --dry-run
  tributary erase --user ada --export s3://telemetry/events
  tributary erase ls`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkConfirm("erase", f.yes || f.dryRun); err != nil {
				return err
			}
			wanted, err := f.parse()
			if err != nil {
				return err
			}
			exports, err := a.examinedExports(f.exports)
			if err != nil {
				return err
			}
			js, err := a.jetStreamLive(cmd.Context())
			if err != nil {
				return err
			}
			defer js.Conn().Close()
			e := &erasing{app: a, js: js, flags: &f, sessions: wanted}
			return e.run(cmd.Context(), exports)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.sessions, "session", nil, "erase this `session`: its agent, a slash and its whole id; several times for several")
	flags.StringVar(&f.user, "user", "", "erase the sessions of this user")
	flags.StringArrayVar(&f.exports, "export", nil, "list the files with rows of the sessions in the export at this `place`, a folder or a URL; several times for several")
	flags.StringVar(&f.by, "by", "", "`name` in the log of who erases them (default: the user and the host of this process)")
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show what would be removed, and change nothing")
	a.serverFlag(cmd)
	cmd.AddCommand(eraseListCommand(a))
	return cmd
}

// parse returns the sessions that are named.
func (f *eraseFlags) parse() (list []events.SessionID, err error) {
	if (len(f.sessions) == 0) == (f.user == "") {
		return nil, usageError{errors.New("pass either --session or --user")}
	}
	for _, text := range f.sessions {
		source, id, _ := strings.Cut(text, "/")
		if id == "" {
			return nil, usageError{fmt.Errorf("--session %q: write the agent, a slash and the whole id that tributary sessions show prints", text)}
		}
		if _, err := parseSource(source); err != nil || source == "" {
			return nil, usageError{fmt.Errorf("--session %q: the agent is one of %s", text, joined(envelopes.Sources))}
		}
		if one := (events.SessionID{Source: envelopes.Source(source), Session: id}); !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list, nil
}

// erasing is a run of erase.
type erasing struct {
	*app

	js       jetstream.JetStream
	flags    *eraseFlags
	sessions []events.SessionID
}

// run finds, asks and erases.
func (e *erasing) run(ctx context.Context, exports []doctor.Export) error {
	if _, err := readGenerations(ctx, e.js); err != nil {
		return err
	}
	log, err := erasure.Log(ctx, e.js)
	if err != nil {
		return err
	}
	if err := e.findSessions(ctx, log); err != nil {
		return err
	}
	counts, err := erasure.Count(ctx, e.js, e.sessions)
	if err != nil {
		return err
	}
	if err := e.checkKnown(log, counts); err != nil {
		return err
	}
	if err := e.printCounts(counts); err != nil {
		return err
	}
	if err := e.printExports(ctx, exports); err != nil {
		return err
	}
	if e.flags.dryRun {
		fmt.Fprintf(e.stderr, "would erase %s\n", terminal.Plural(len(e.sessions), "session"))
		return nil
	}
	if !e.flags.yes && !e.confirm(ctx, fmt.Sprintf("Erase %s for good, in every generation?", terminal.Plural(len(e.sessions), "session"))) {
		fmt.Fprintln(e.stderr, "nothing was removed")
		return nil
	}
	results, err := erasure.Run(ctx, e.js, erasure.Request{Sessions: e.sessions, By: cmp.Or(e.flags.by, processName())})
	if err != nil {
		return err
	}
	return e.report(results, len(exports))
}

// checkKnown returns an error if the broker has nothing of a session and never erased it: its name may be misspelled.
func (e *erasing) checkKnown(log []erasure.Entry, counts []streams.ErasureCounts) error {
	for i, id := range e.sessions {
		if counts[i].Sum() == 0 && !slices.ContainsFunc(log, func(x erasure.Entry) bool { return x.ID() == id }) {
			return fmt.Errorf("no session %s: the broker has nothing of it; tributary sessions ls lists the sessions", sessionName(id))
		}
	}
	return nil
}

// findSessions adds the sessions of the user, and those whose erasure was interrupted.
func (e *erasing) findSessions(ctx context.Context, log []erasure.Entry) error {
	if e.flags.user != "" {
		view, unreadable, err := openSummaries(ctx, e.app, e.js)
		if err != nil {
			return e.noStream(err)
		}
		err = view.Each(ctx, "", func(r *summaries.Record) error {
			if id := (events.SessionID{Source: r.Source, Session: r.Session}); r.User == e.flags.user && !slices.Contains(e.sessions, id) {
				e.sessions = append(e.sessions, id)
			}
			return nil
		})
		if err := cmp.Or(err, unreadable.err()); err != nil {
			return err
		}
	}
	found := len(e.sessions)
	for i := range log {
		if id := log[i].ID(); log[i].Ended.IsZero() && !slices.Contains(e.sessions, id) {
			e.sessions = append(e.sessions, id)
		}
	}
	if n := len(e.sessions) - found; n > 0 {
		fmt.Fprintf(e.stderr, "also finishes the erasure of %s, which was interrupted\n", terminal.Plural(n, "session"))
	}
	if len(e.sessions) == 0 {
		return fmt.Errorf("no session of user %s in generation %s: tributary sessions show prints the user of a session", terminal.OneLine(e.flags.user), e.config.Generation)
	}
	return nil
}

// erasureColumns are the numbers of [streams.ErasureCounts].
var erasureColumns = []struct {
	head string
	of   func(*streams.ErasureCounts) int64
}{
	{"RECORDS", func(c *streams.ErasureCounts) int64 { return c.Records }},
	{"EVENTS", func(c *streams.ErasureCounts) int64 { return c.Events }},
	{"DEAD LETTERS", func(c *streams.ErasureCounts) int64 { return c.DeadLetters }},
	{"STATES", func(c *streams.ErasureCounts) int64 { return c.States }},
	{"SUMMARIES", func(c *streams.ErasureCounts) int64 { return c.Summaries }},
	{"TITLES", func(c *streams.ErasureCounts) int64 { return c.Titles }},
	{"OBJECTS", func(c *streams.ErasureCounts) int64 { return c.Objects }},
}

// erasureTable returns a table with the numbers of sessions behind other columns.
func erasureTable(columns ...terminal.Column) *terminal.Table {
	t := &terminal.Table{Columns: columns}
	for _, c := range erasureColumns {
		t.Columns = append(t.Columns, terminal.Column{Head: c.head, Right: true})
	}
	return t
}

// erasureCells are the texts of these numbers.
func erasureCells(c *streams.ErasureCounts) (cells []string) {
	for _, column := range erasureColumns {
		cells = append(cells, terminal.Thousands(column.of(c)))
	}
	return cells
}

// sessionName writes a session as --session takes it.
func sessionName(id events.SessionID) string {
	return terminal.OneLine(string(id.Source) + "/" + id.Session)
}

// printCounts prints what is stored of each session.
func (e *erasing) printCounts(counts []streams.ErasureCounts) error {
	t := erasureTable(terminal.Column{Head: "SESSION"})
	for i := range counts {
		t.Add(append([]string{sessionName(e.sessions[i])}, erasureCells(&counts[i])...)...)
	}
	return t.Write(e.stdout, terminal.Uncut)
}

// printExports prints the files of exports that have rows of the sessions.
func (e *erasing) printExports(ctx context.Context, exports []doctor.Export) error {
	for _, x := range exports {
		status, err := export.ReadStatus(ctx, e.js, x.Config)
		if err != nil {
			return err
		}
		if status.Dropped {
			fmt.Fprintf(e.stderr, "export %s: its generation %s was dropped, so its files with rows of the sessions cannot be found: make the export again\n",
				terminal.OneLine(x.Place), status.Generation)
			continue
		}
		var names []string
		for _, id := range e.sessions {
			positions, err := erasure.Positions(ctx, e.js, status.Generation, id)
			if err != nil {
				return err
			}
			files, err := export.FilesOf(ctx, x.Config, id.Source, positions)
			if err != nil {
				return err
			}
			names = append(names, files...)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			fmt.Fprintf(e.stdout, "%s/%s\n", strings.TrimSuffix(terminal.OneLine(x.Place), "/"), terminal.OneLine(name))
		}
	}
	return nil
}

// report prints what was erased, and what is left to do.
func (e *erasing) report(results []erasure.Result, exports int) error {
	var removed int64
	late, kept := 0, 0
	for i := range results {
		removed += results[i].Removed.Sum()
		late, kept = late+results[i].Late, kept+results[i].Kept
	}
	fmt.Fprintf(e.stderr, "erased %s: removed %s\n", terminal.Plural(len(results), "session"), terminal.Plural(int(removed), "message"))
	if kept > 0 {
		fmt.Fprintf(e.stderr, "kept %s of large records, because records of other sessions name them, or an edge has sent them again: tributary claims gc removes objects that no record names\n",
			terminal.Plural(kept, "object"))
	}
	if exports == 0 {
		fmt.Fprintln(e.stderr, "exports, backups and the logs of the agents still have these sessions: deploy/privacy.md")
	}
	if late > 0 {
		return partlyError(terminal.Plural(late, "record") + " of these sessions arrived meanwhile and stay in the raw stream, without events: remove the logs or end their edges, then run it again")
	}
	return nil
}

// processName returns the user and the host of this process.
func processName() string {
	name := hostname()
	if u, err := user.Current(); err == nil {
		name = u.Username + "@" + name
	}
	return name
}

func eraseListCommand(a *app) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List the sessions that were erased",
		Long: `List the log of erasures: which session was erased when and by whom, and how much was
removed. An erasure without an end was interrupted, or is under way: the next erase
finishes it.`,
		Example: `  tributary erase ls
  tributary erase ls -o json | jq -r 'select(.ended == null) | .session'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			return a.withBroker(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				return listErasures(ctx, a, js, output)
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	a.serverFlag(cmd)
	return cmd
}

// listErasures prints the log of erasures.
func listErasures(ctx context.Context, a *app, js jetstream.JetStream, output string) error {
	list, err := erasure.Log(ctx, js)
	if err != nil {
		return err
	}
	t := erasureTable(terminal.Column{Head: "SESSION"}, terminal.Column{Head: "BEGUN"}, terminal.Column{Head: "ENDED"}, terminal.Column{Head: "BY"})
	for i := range list {
		e := &list[i]
		if output == "json" {
			if err := terminal.WriteJSON(a.stdout, e); err != nil {
				return err
			}
			continue
		}
		ended := "not finished"
		if !e.Ended.IsZero() {
			ended = terminal.DateTime(e.Ended)
		}
		t.Add(append([]string{sessionName(e.ID()), terminal.DateTime(e.Begun), ended, terminal.OneLine(e.By)}, erasureCells(&e.Removed)...)...)
	}
	if output == "json" {
		return nil
	}
	return t.Write(a.stdout, terminal.Uncut)
}
