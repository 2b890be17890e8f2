package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

func replayStatusCommand(a *app) *cobra.Command {
	var output string
	var wait bool
	cmd := &cobra.Command{
		Use:   "status NAME [flags]",
		Short: "Show how far a generation is",
		Long: `Show how many raw records a generation has done. The rate is measured over a second.
With --wait the command waits until the generation has caught up, and shows the
progress on a terminal until then.`,
		Example: `  tributary replay status b
  tributary replay status b --wait
  tributary replay status b -o json | jq .caught_up`,
		Args: generationArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "pretty", "json"); err != nil {
				return err
			}
			return a.withBroker(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				s, err := readReplayStatus(ctx, a, js, args[0], wait)
				if err != nil {
					return err
				}
				if output == "json" {
					return terminal.WriteJSON(a.stdout, s)
				}
				return s.table().Write(terminal.Safe(a.stdout), terminal.TableWidth(a.stdout))
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "pretty", "pretty or json")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the generation has caught up")
	a.serverFlag(cmd)
	return cmd
}

// replayStatus is the output of the command.
type replayStatus struct {
	Name string `json:"generation"`
	replay.Progress
	Rate     float64           `json:"rate"` // records per second
	State    streams.State     `json:"state"`
	Revision int               `json:"revision"`
	Settings streams.Settings  `json:"settings"`
	Part     streams.Part      `json:"part,omitzero"`
	From     streams.Positions `json:"from,omitzero"`
	Expired  []replay.Expired  `json:"expired,omitempty"` // records that left the raw stream before this generation read them
}

// statusEvery is the interval between two readings of the status.
const statusEvery = time.Second

// readReplayStatus reads the status of a generation until its rate is known, and with wait until the generation has
// caught up.
func readReplayStatus(ctx context.Context, a *app, js jetstream.JetStream, name string, wait bool) (*replayStatus, error) {
	all, err := readGenerations(ctx, js)
	if err != nil {
		return nil, err
	}
	g, err := all.Find(name)
	if err != nil {
		return nil, err
	}
	if g.State == streams.StateStarting {
		return nil, fmt.Errorf("the start of %s was interrupted: finish it with tributary replay start %s and the same flags", name, name)
	}
	s := &replayStatus{Name: name, State: g.State, Revision: g.Revision, Settings: g.Settings, Part: g.Part, From: g.From}
	if s.Progress, err = replay.ReadProgress(ctx, js, g); err != nil {
		return nil, err
	}
	if g.State == streams.StateRetired && wait {
		return nil, fmt.Errorf("%s is retired: no worker works on it", name)
	}
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	if wait {
		defer a.status.Show("")
	}
	for first, began := s.Done, time.Now(); !s.CaughtUp && g.State != streams.StateRetired; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if s.Progress, err = replay.ReadProgress(ctx, js, g); err != nil {
			return nil, err
		}
		s.Rate = float64(max(s.Done, first)-first) / time.Since(began).Seconds()
		if !wait {
			break
		}
		a.status.Show(terminal.Cut(name+": "+s.progress(), messageColumns()-1))
	}
	s.State = s.Progress.State(&g)
	s.Expired, err = replay.ReadExpired(ctx, js)
	s.Expired = slices.DeleteFunc(s.Expired, func(e replay.Expired) bool { return e.Generation != name })
	return s, err
}

// progress describes how much is done.
func (s *replayStatus) progress() string {
	text := fmt.Sprintf("%s of %s done", terminal.Thousands(int64(s.Done)), terminal.Plural(int(s.Total), "record"))
	switch {
	case s.CaughtUp, s.State == streams.StateRetired:
	case s.Workers == 0:
		text += fmt.Sprintf(", no worker of revision %d works on it: start one with tributary run", s.Revision)
	case s.Rate > 0:
		text += fmt.Sprintf(", %s per second, time left: about %s", terminal.Thousands(int64(s.Rate)), terminal.Rough(time.Duration(float64(s.Total-s.Done)/s.Rate*float64(time.Second))))
	}
	return text
}

// table lists the status for people.
func (s *replayStatus) table() *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{{}, {Wrap: true}}}
	t.Add("generation", fmt.Sprintf("%s, %s", s.Name, s.State))
	t.Add("settings", fmt.Sprintf("revision=%d %s", s.Revision, s.Settings))
	if s.Part != (streams.Part{}) {
		t.Add("part", s.Part.String())
	}
	if s.From != nil {
		t.Add("complete from", fmt.Sprintf("raw sequence %v: earlier records had expired", s.From))
	}
	for _, e := range s.Expired {
		t.Add("expired", fmt.Sprintf("%s of %s before they were read: tributary doctor says when", terminal.Plural(int(e.Records), "record"), e.Stream))
	}
	t.Add("records", s.progress())
	t.Add("events", terminal.Thousands(int64(s.Events)))
	t.Add("dead letters", terminal.Thousands(int64(s.DeadLetters)))
	t.Add("workers", strconv.Itoa(s.Workers))
	return t
}

// generationLine is a line of replay ls.
type generationLine struct {
	streams.Generation
	Events uint64 `json:"events"`
}

func replayListCommand(a *app) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List the generations",
		Long: `List the generations of the broker with their states: live, replaying (some records
are not done), ready (every record is done), retired (was live, and no worker works
on it), starting and dropping (the command was interrupted: run it again).`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "pretty", "json"); err != nil {
				return err
			}
			return a.withBroker(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				return listGenerations(ctx, a, js, output)
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "pretty", "pretty or json")
	a.serverFlag(cmd)
	return cmd
}

// listGenerations prints the generations.
func listGenerations(ctx context.Context, a *app, js jetstream.JetStream, output string) error {
	all, err := readGenerations(ctx, js)
	if err != nil {
		return err
	}
	t := &terminal.Table{Columns: []terminal.Column{
		{Head: "NAME"}, {Head: "STATE"}, {Head: "REVISION"}, {Head: "EVENTS"}, {Head: "RECORDS"}, {Head: "SETTINGS", Wrap: true}, {Head: "PART", Wrap: true},
	}}
	for _, g := range all.List {
		line := generationLine{Generation: g}
		done := ""
		if g.State != streams.StateDropping && g.State != streams.StateStarting {
			p, err := replay.ReadProgress(ctx, js, g)
			if err != nil {
				return fmt.Errorf("generation %s: %w", g.Name, err)
			}
			line.Events = p.Events
			done = fmt.Sprintf("%s of %s", terminal.Thousands(int64(p.Done)), terminal.Thousands(int64(p.Total)))
			line.State = p.State(&g)
		}
		if output == "json" {
			if err := terminal.WriteJSON(a.stdout, line); err != nil {
				return err
			}
			continue
		}
		t.Add(g.Name, string(line.State), strconv.Itoa(g.Revision), terminal.Thousands(int64(line.Events)), done, g.Settings.String(), g.Part.String())
	}
	return t.Write(terminal.Safe(a.stdout), terminal.TableWidth(a.stdout))
}

func replayDropCommand(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "drop NAME [flags]",
		Short: "Remove a generation for good",
		Long: `Remove the events, dead letters and states of a generation that is not live. The raw
records stay: the generation can be built again. The command asks first, on a terminal,
unless --yes is passed, and may be repeated after an interruption.`,
		Args: generationArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkConfirm("drop", yes); err != nil {
				return err
			}
			return a.withBroker(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				return dropGeneration(ctx, a, js, args[0], yes)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	a.serverFlag(cmd)
	return cmd
}

// dropGeneration removes a generation when the user agrees.
func dropGeneration(ctx context.Context, a *app, js jetstream.JetStream, name string, yes bool) error {
	all, err := readGenerations(ctx, js)
	if err != nil {
		return err
	}
	if g, err := all.Find(name); err == nil && g.State != streams.StateLive && !yes {
		if !a.confirm(ctx, fmt.Sprintf("Remove generation %s with all its events for good?", name)) {
			return errors.New("nothing was removed")
		}
	}
	if err := replay.Drop(ctx, js, name); err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "removed generation %s\n", name)
	return nil
}
