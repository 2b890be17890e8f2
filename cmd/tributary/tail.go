package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/envelopes"
	"tributary/pipeline"
)

func (a *app) tailCommand() *cobra.Command {
	var source, session, eventType, since, output, as string
	var once bool
	cmd := &cobra.Command{
		Use:   "tail [flags]",
		Short: "Watch the events of the broker",
		Long: `Print events as they are stored; with --since first those that were stored
before. Pretty for people; with -o json one AgentEventV1 per line.

With --as entries or acp (see tributary normalize --help) JSON of that form is printed, made
of the events that are shown: one that begins in the middle of a session counts the entries
from there, from 0, and a result whose call was not shown is an entry alone. --session and
--since all show a session as a whole. A message of acp is printed when it is complete: with
the next prompt, or at the end of --once.`,
		Example: `  tributary tail                                      what happens now
  tributary tail --since 1h --type tool_call          the tool calls of the last hour, and on
  tributary tail --since all --once -o json | jq -r .text
  tributary tail --since all --once --as acp --session 0b6a7f58-2c1d-4e0f-8a3b-9c5d7e6f1a20`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			q := pipeline.EventsQuery{Session: session, Type: envelopes.EventType(eventType), Follow: !once}
			if eventType != "" && !slices.Contains(envelopes.EventTypes, q.Type) {
				return usageError{fmt.Errorf("--type %q: write one of %s", eventType, eventTypeNames())}
			}
			all := since == "all"
			if all {
				since = ""
			}
			var err error
			if q.Source, q.Since, err = parseFilters(source, since, time.Now()); err != nil {
				return err
			}
			form, err := parseForm(as)
			if err != nil {
				return err
			}
			if form != asEvents && !cmd.Flags().Changed("output") {
				output = "json"
			}
			show, end, err := a.eventWriter(output, form)
			if err != nil {
				return err
			}
			js, err := a.jetStream(ctx)
			if err != nil {
				return err
			}
			defer js.Conn().Close()
			if since == "" && !all && !once {
				if q.Since, err = a.now(ctx, js); err != nil {
					return err
				}
			}
			none := true
			for e, err := range pipeline.Events(ctx, js, a.config.Generation, q) {
				if err := a.noStream(err); err != nil {
					return err
				}
				none = false
				if err := show(&e.AgentEventV1); err != nil {
					return err
				}
			}
			if !once {
				return nil
			}
			if err := context.Cause(ctx); err != nil { // stopped before the end
				return err
			}
			if none && output != "json" {
				fmt.Fprintf(a.stderr, "no such event in generation %s\n", a.config.Generation)
			}
			return end()
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "begin with events stored since: all, or a duration, date or time")
	flags.StringVar(&source, "source", "", "only events of this agent: "+sourceNames())
	flags.StringVar(&session, "session", "", "only events of this session: its whole id")
	flags.StringVar(&eventType, "type", "", "only events of this type: "+eventTypeNames())
	flags.StringVarP(&output, "output", "o", "pretty", "pretty or json")
	asFlag(cmd, &as)
	flags.BoolVar(&once, "once", false, "stop after the events that are there; without --since all of them")
	a.serverFlag(cmd)
	completeSources(cmd)
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(strings.Split(eventTypeNames(), ", "), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// now is the moment after the last message of the events stream, by the clock of the
// broker: what is stored from then on is new.
func (a *app) now(ctx context.Context, js jetstream.JetStream) (time.Time, error) {
	stream, err := js.Stream(ctx, pipeline.EventsStream(a.config.Generation))
	if err != nil {
		return time.Time{}, a.noStream(err)
	}
	return stream.CachedInfo().State.LastTime.Add(1), nil
}

// noStream adds the cure to the error of a stream that is not there.
func (a *app) noStream(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("the broker has no generation %s: start a worker (tributary run), or name another in TRIBUTARY_GENERATION: %w", a.config.Generation, err)
	}
	return err
}

// eventWriter shows events as --output and --as say; end shows what is open when no event
// follows.
func (a *app) eventWriter(output string, f form) (show func(*envelopes.AgentEventV1) error, end func() error, err error) {
	switch {
	case output == "json":
		lines := newLineWriter(jsonWriter(a.stdout), f)
		return lines.event, lines.end, nil
	case output != "pretty":
		return nil, nil, usageError{fmt.Errorf("-o %q: write pretty or json", output)}
	case f != asEvents:
		return nil, nil, usageError{fmt.Errorf("--as %s is JSON: leave out -o pretty", f)}
	default:
		return a.newPrinter().event, func() error { return nil }, nil
	}
}

func eventTypeNames() string {
	names := make([]string, len(envelopes.EventTypes))
	for i, t := range envelopes.EventTypes {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}
