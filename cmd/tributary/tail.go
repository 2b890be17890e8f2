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
	var source, session, eventType, since, output string
	var once bool
	cmd := &cobra.Command{
		Use:   "tail [flags]",
		Short: "Watch the events of the broker",
		Long: `Print events as they are stored; with --since first those that were stored
before. Pretty for people; with -o json one AgentEventV1 per line.`,
		Example: `  tributary tail                                      what happens now
  tributary tail --since 1h --type tool_call          the tool calls of the last hour, and on
  tributary tail --since all --once -o json | jq -r .text`,
		Args: cobra.NoArgs,
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
			show, err := a.eventWriter(output)
			if err != nil {
				return err
			}
			nc, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer nc.Close()
			js, err := jetstream.New(nc)
			if err != nil {
				return err
			}
			if since == "" && !all && !once {
				if q.Since, err = a.now(ctx, js); err != nil {
					return err
				}
			}
			for e, err := range pipeline.Events(ctx, js, a.config.Generation, q) {
				if err := a.noStream(err); err != nil {
					return err
				}
				if err := show(&e.AgentEventV1); err != nil {
					return err
				}
			}
			if once {
				return context.Cause(ctx) // not nil when it was stopped before the end
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "begin with events stored since: all, or a duration, date or time")
	flags.StringVar(&source, "source", "", "only events of this agent: "+sourceNames())
	flags.StringVar(&session, "session", "", "only events of this session")
	flags.StringVar(&eventType, "type", "", "only events of this type: "+eventTypeNames())
	flags.StringVarP(&output, "output", "o", "pretty", "pretty or json")
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

// eventWriter shows events in the form that --output names.
func (a *app) eventWriter(output string) (func(*envelopes.AgentEventV1) error, error) {
	switch output {
	case "pretty":
		return a.newPrinter().event, nil
	case "json":
		w := jsonWriter(a.stdout)
		var line []byte
		return func(e *envelopes.AgentEventV1) error {
			var err error
			if line, err = e.AppendJSON(line[:0]); err != nil {
				return err
			}
			line = append(line, '\n')
			_, err = w.Write(line)
			return err
		}, nil
	default:
		return nil, usageError{fmt.Errorf("-o %q: write pretty or json", output)}
	}
}

func eventTypeNames() string {
	names := make([]string, len(envelopes.EventTypes))
	for i, t := range envelopes.EventTypes {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}
