package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/envelopes"
	"tributary/pipeline"
)

// tailFlags are the flags of tail.
type tailFlags struct {
	source, session, eventType, since string
	output                            string
	form                              string
	once                              bool
}

func (a *app) tailCommand() *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail [flags]",
		Short: "Print the events of the broker",
		Long: `Print events as they are stored; with --since first the events that were stored
since then. The output is for people; with -o json it is one AgentEventV1 per line.

--as entries and --as acp print JSON of that form (see tributary normalize --help),
made of the events that are selected. From the middle of a session, entries are
counted from there, from 0, and a result without its call is an entry of its own;
--session with --since all prints a session as a whole. An ACP message is printed
when it is complete: at the next prompt, or at the end of --once.`,
		Example: `  tributary tail                                      new events
  tributary tail --since 1h --type tool_call          tool calls from the last hour on
  tributary tail --since all --once -o json | jq -r .text
  tributary tail --since all --once --as acp --session 0b6a7f58-2c1d-4e0f-8a3b-9c5d7e6f1a20`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.form != string(asEvents) && !cmd.Flags().Changed("output") {
				f.output = "json"
			}
			return a.tail(cmd.Context(), &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "begin with events stored since then: all, or a duration, date or time")
	sourceFlag(cmd, &f.source, "only events of this agent")
	flags.StringVar(&f.session, "session", "", "only events of this session: its whole id")
	flags.StringVar(&f.eventType, "type", "", "only events of this type: "+joined(envelopes.EventTypes))
	completeFlag(cmd, "type", texts(envelopes.EventTypes))
	flags.StringVarP(&f.output, "output", "o", "pretty", "pretty or json")
	formFlag(cmd, &f.form)
	flags.BoolVar(&f.once, "once", false, "stop after the events that are stored now; without --since print all of them")
	a.serverFlag(cmd)
	return cmd
}

// sinceAll is the value of --since for all events.
const sinceAll = "all"

// query returns what the flags select.
func (f *tailFlags) query(now time.Time) (pipeline.EventsQuery, error) {
	q := pipeline.EventsQuery{Session: f.session, Follow: !f.once}
	var err error
	if q.Type, err = parseType(f.eventType); err != nil {
		return q, err
	}
	if q.Source, err = parseSource(f.source); err != nil || f.since == sinceAll {
		return q, err
	}
	q.Since, err = parseSince(f.since, now)
	return q, err
}

// tail prints the events that the flags select.
func (a *app) tail(ctx context.Context, f *tailFlags) error {
	q, err := f.query(time.Now())
	if err != nil {
		return err
	}
	form, err := parseForm(f.form)
	if err != nil {
		return err
	}
	w, err := a.newEventWriter(f.output, form)
	if err != nil {
		return err
	}
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	if f.since == "" && !f.once {
		if q.Since, err = a.afterLastEvent(ctx, js); err != nil {
			return err
		}
	}
	count := 0
	for e, err := range pipeline.Events(ctx, js, a.config.Generation, q) {
		if err := a.noStream(err); err != nil {
			return err
		}
		count++
		if err := w.event(&e.AgentEventV1); err != nil {
			return err
		}
	}
	if !f.once {
		return nil
	}
	if err := context.Cause(ctx); err != nil { // interrupted before the end
		return err
	}
	if count == 0 && f.output != "json" {
		fmt.Fprintf(a.stderr, "no such event in generation %s\n", a.config.Generation)
	}
	return w.end()
}

// afterLastEvent returns the moment after the last message of the events stream, by the
// clock of the broker: events that are stored from then on are new.
func (a *app) afterLastEvent(ctx context.Context, js jetstream.JetStream) (time.Time, error) {
	stream, err := js.Stream(ctx, pipeline.EventsStream(a.config.Generation))
	if err != nil {
		return time.Time{}, a.noStream(err)
	}
	return stream.CachedInfo().State.LastTime.Add(1), nil
}

// noStream adds the cure to the error of a missing events stream.
func (a *app) noStream(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("the broker has no generation %s: start a worker (tributary run), or name another in TRIBUTARY_GENERATION: %w", a.config.Generation, err)
	}
	return err
}

// eventWriter prints events.
type eventWriter interface {
	event(e *envelopes.AgentEventV1) error
	// end prints the output that is still pending, because no event follows.
	end() error
}

// newEventWriter returns the writer of --output and --as.
func (a *app) newEventWriter(output string, f form) (eventWriter, error) {
	if err := checkOutput(output, "pretty", "json"); err != nil {
		return nil, err
	}
	if output == "json" {
		return newLineWriter(jsonWriter(a.stdout), f), nil
	}
	if f != asEvents {
		return nil, usageError{fmt.Errorf("--as %s is JSON: leave out -o pretty", f)}
	}
	return a.newPrinter(), nil
}
