package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/printer"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// tailFlags are the flags of tail.
type tailFlags struct {
	eventFilter
	lines        int // counted reports whether the flag is given
	counted      bool
	follow, once bool
	output, form string
	fields       []string
	noRaw, raw   bool
}

// defaultLines is how many events tail shows before it follows.
const defaultLines = 10

func tailCommand(a *app) *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail [flags]",
		Short: "Print the events of the broker",
		Long: `Print the last 10 events, then new ones as they are stored. A time prints all events
since then, or until then; -n N prints the last N of the selected ones. With -n, --until
or --once the command ends after the stored events, unless -f makes it follow.

Events have the order in which the broker stored them, which is their order within each
session. --since and --until compare the time at which an event happened: events of old
logs that were shipped late are found, too. The clock of a machine may be a day ahead of
the broker's. --stored-since compares the time at which the broker stored an event, and
reads nothing older. --type and --exclude-type take several types, separated by commas
or each in a flag of its own. A line shows what --grep matches.

It follows the live generation: when another is promoted, or a promotion is rolled back,
it continues with the events of that one, each event once. TRIBUTARY_GENERATION names
one to stay with.

--raw prints the raw records of the selected events, as their agents wrote them. With -o
json, it adds raw to events that refer to their record instead of carrying it (the
setting raw of a generation).

--session takes an id or its beginning: if no id is that text, it selects all sessions
whose ids begin with it when the command starts, else it waits for one.

The output is for people; with -o json it is one AgentEventV1 per line, with --fields
only the named members. --as entries and --as acp print JSON of that form (see tributary
normalize --help), made of the selected events; source and session_id of a line name its
session. From the middle of a session, entries are counted from there, from 0, and a
result without its call is an entry of its own; --session with --since all prints a
session as a whole. An ACP message is printed when it is complete: at the next prompt,
or when the command ends by itself.`,
		Example: `  tributary tail                                      the last 10 events, then new ones
  tributary tail -n 50                                the last 50 events
  tributary tail -n 0 -f                              new events alone
  tributary tail --since 1h --type tool_call          tool calls of the last hour, then new ones
  tributary tail --exclude-type log,meta,file_snapshot
  tributary tail --since 2026-03-09 --until 2026-03-10
  tributary tail --since all --once --session 0b6a7f58 --grep '(?i)error'
  tributary tail --since all --once --fields ts,session_id,tool_name --type tool_call
  tributary tail --since all --once -o json --no-raw | jq -r '.text // empty'
  tributary tail --since all --once --raw --session 0b6a7f58
  tributary tail --since all --once --as acp --session 0b6a7f58`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.counted = cmd.Flags().Changed("lines")
			if (f.form != string(printer.AsEvents) || f.fields != nil) && !cmd.Flags().Changed("output") {
				f.output = "json"
			}
			return printTail(cmd.Context(), a, &f)
		},
	}
	flags := cmd.Flags()
	f.addFlags(cmd)
	flags.IntVarP(&f.lines, "lines", "n", defaultLines, "print the last `N` of the stored events, and end")
	flags.BoolVarP(&f.follow, "follow", "f", false, "follow, even with -n or --until")
	flags.BoolVar(&f.once, "once", false, "end after the stored events; without -n or a time print all of them")
	flags.StringVarP(&f.output, "output", "o", "pretty", "pretty or json")
	formFlag(cmd, &f.form)
	flags.StringSliceVar(&f.fields, "fields", nil, "only these `names` of the members of events, as JSON, separated by commas")
	completeFlag(cmd, "fields", printer.EventFields())
	flags.BoolVar(&f.noRaw, "no-raw", false, "leave the raw records out of -o json")
	flags.BoolVar(&f.raw, "raw", false, "print the raw records of the events; with -o json, events with their records")
	a.serverFlag(cmd)
	return cmd
}

// query returns what the flags select.
func (f *tailFlags) query(now time.Time) (events.Query, error) {
	q, err := f.eventFilter.query(now)
	switch {
	case err != nil:
		return q, err
	case f.lines < 0:
		return q, usageError{fmt.Errorf("-n %d: write 0 or more", f.lines)}
	case f.once && f.follow:
		return q, usageError{errors.New("pass either --once or --follow")}
	}
	q.Follow = f.follow || !f.once && !f.counted && f.until == ""
	if f.counted || !f.once && !f.bounded() {
		q.Last = f.lines
	}
	return q, nil
}

// printTail prints the events that the flags select.
func printTail(ctx context.Context, a *app, f *tailFlags) error {
	q, err := f.query(time.Now())
	if err != nil {
		return err
	}
	w, err := newEventWriter(a, f)
	if err != nil {
		return err
	}
	named := a.config.Generation != ""
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	check := func() error {
		if f.raw && f.output != "json" {
			return worker.CheckUnredacted(ctx, js, a.config.Generation)
		}
		return nil
	}
	if err := check(); err != nil {
		return err
	}
	if f.counted && f.lines == 0 {
		if q.After, err = lastPositions(ctx, a, js); err != nil {
			return err
		}
	}
	q.Interrupted = func(err error) { fmt.Fprintf(a.stderr, "reading continues after an interruption: %v\n", err) }
	q.Raw = f.raw && f.output == "json"
	p := &tailPrinter{app: a, tailFlags: f, events: w, records: &recordWriter{app: a, js: js}}
	var moved func(from, to string) error
	if !named {
		moved = func(from, to string) error {
			a.config.Generation = to
			noteLive(a, from, to)
			return check()
		}
	}
	for e, err := range events.NewLive(js, a.config.Generation, q, moved).Read(ctx, q.Follow) {
		if err != nil && e.Position == 0 {
			return a.noStream(err)
		}
		if err := p.print(ctx, &e, err); err != nil {
			return err
		}
	}
	if q.Follow {
		return nil
	}
	if err := context.Cause(ctx); err != nil { // interrupted
		return err
	}
	return p.end()
}

// noteLive prints that a command continues with another generation.
func noteLive(a *app, from, to string) {
	fmt.Fprintf(a.stderr, "generation %s is live instead of %s: its events follow\n", to, from)
}

// tailPrinter prints the events of tail, or their records.
type tailPrinter struct {
	*app
	*tailFlags
	events            eventWriter
	records           *recordWriter
	count, unreadable int
}

// print prints an event. It reports and counts an event that could not be read.
func (p *tailPrinter) print(ctx context.Context, e *events.Event, failed error) (err error) {
	if failed != nil {
		p.unreadable++
		fmt.Fprintf(p.stderr, "skipped: %v\n", failed)
		return nil
	}
	p.count++
	if p.raw && p.output != "json" {
		err = p.records.write(ctx, e)
	} else {
		err = p.events.Event(&e.AgentEventV1)
	}
	if err == nil && e.RecordGone {
		p.records.missing(e)
	}
	return err
}

// end ends the output. Its error counts what could not be printed.
func (p *tailPrinter) end() error {
	if p.count == 0 && p.output != "json" {
		fmt.Fprintf(p.stderr, "no such event in generation %s\n", p.config.Generation)
	}
	var skipped error
	if p.unreadable > 0 {
		skipped = partlyError(terminal.Plural(p.unreadable, "message") + " of the events stream cannot be read")
	}
	return errors.Join(p.events.End(), p.records.err(), skipped)
}

// lastPositions returns the last positions of the events streams.
func lastPositions(ctx context.Context, a *app, js jetstream.JetStream) (streams.Positions, error) {
	last, err := streams.LastPositions(ctx, js, a.config.Generation)
	return last, a.noStream(err)
}

// eventWriter prints events.
type eventWriter interface {
	Event(e *envelopes.AgentEventV1) error
	// End prints the pending output: no event follows.
	End() error
}

// newEventWriter returns the writer that the flags ask for.
func newEventWriter(a *app, f *tailFlags) (eventWriter, error) {
	form, err := parseForm(f.form)
	if err != nil {
		return nil, err
	}
	if err := checkOutput(f.output, "pretty", "json"); err != nil {
		return nil, err
	}
	members, err := printer.NewMembers(f.fields, f.noRaw)
	switch {
	case err != nil:
		return nil, usageError{err}
	case form != printer.AsEvents && f.output != "json":
		return nil, usageError{fmt.Errorf("--as %s is JSON: leave out -o pretty", form)}
	case form != printer.AsEvents && (f.fields != nil || f.noRaw):
		return nil, usageError{fmt.Errorf("--fields and --no-raw are for events: leave out --as %s", form)}
	case f.fields != nil && f.output != "json":
		return nil, usageError{errors.New("--fields prints JSON: leave out -o pretty")}
	case f.raw && (form != printer.AsEvents || f.noRaw || f.fields != nil && !slices.Contains(f.fields, "raw")):
		return nil, usageError{errors.New("--raw prints raw records: leave out --as and --no-raw, and name raw among --fields")}
	case f.output != "json":
		p := a.printer()
		p.Match = f.text
		return p, nil
	}
	return printer.NewLines(terminal.JSONWriter(a.stdout), form, members), nil
}
