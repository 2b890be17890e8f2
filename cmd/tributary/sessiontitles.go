package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/metadata"
	"tributary/cmd/internal/terminal"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions/titles"
)

func sessionsTitleCommand(a *app) *cobra.Command {
	var source string
	cmd := &cobra.Command{
		Use:   "title [flags] ID TITLE",
		Short: "Give a session a title",
		Long: `Give a session a title, which the lists show in place of the vendor's. The beginning of
its id is enough if no other session has the same. A worker (tributary run) stores the
title and publishes the change.`,
		Example: `  tributary sessions title 0b6a7f58 "Fix the parser"`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeSession(cmd.Context(), a, source, args[0], func(ctx context.Context, nc *nats.Conn, k titles.Key) (string, error) {
				var answer metadata.Answer
				err := metadata.Ask(ctx, nc, "set_title", metadata.Request{Source: k.Source, SessionID: k.SessionID, Title: &args[1]}, &answer)
				if err != nil || !answer.Applied {
					return "has this title already", err
				}
				return "is titled " + strconv.Quote(answer.Title), nil
			})
		},
	}
	sourceFlag(cmd, &source, "agent of the session, if two have the same id")
	a.serverFlag(cmd)
	return cmd
}

func sessionsPinCommand(a *app) *cobra.Command {
	var source string
	var off bool
	cmd := &cobra.Command{
		Use:   "pin [flags] ID",
		Short: "Pin a session, or take the pin off",
		Long: `Pin a session: the lists show it first. The beginning of its id is enough if no
other session has the same. A worker (tributary run) stores the pin.`,
		Example: `  tributary sessions pin 0b6a7f58
  tributary sessions pin 0b6a7f58 --off`,
		Args: oneArg("session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeSession(cmd.Context(), a, source, args[0], func(ctx context.Context, nc *nats.Conn, k titles.Key) (string, error) {
				var answer metadata.Answer
				err := metadata.Ask(ctx, nc, "set_pinned", metadata.Request{Source: k.Source, SessionID: k.SessionID, Pinned: new(!off)}, &answer)
				is := "pinned"
				if off {
					is = "not pinned"
				}
				if err == nil && !answer.Applied {
					return "is " + is + " already", nil
				}
				return "is " + is, err
			})
		},
	}
	sourceFlag(cmd, &source, "agent of the session, if two have the same id")
	cmd.Flags().BoolVar(&off, "off", false, "take the pin off")
	a.serverFlag(cmd)
	return cmd
}

// changeSession finds a session, changes its metadata, and prints the result.
func changeSession(ctx context.Context, a *app, source, id string, change func(context.Context, *nats.Conn, titles.Key) (string, error)) error {
	s, err := parseSource(source)
	if err != nil {
		return err
	}
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	var found events.SessionID
	if found, err = findSession(ctx, a, js, s, id); err != nil {
		return a.noStream(err)
	}
	is, err := change(ctx, js.Conn(), titles.Key{Source: found.Source, SessionID: found.Session})
	if err != nil {
		return fmt.Errorf("session %s: %w", terminal.OneLine(found.Session), err)
	}
	fmt.Fprintf(a.stdout, "%s %s %s\n", found.Source, terminal.OneLine(found.Session), is)
	return nil
}
