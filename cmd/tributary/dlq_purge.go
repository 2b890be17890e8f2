package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tributary/cmd/internal/terminal"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

func dlqPurgeCommand(a *app) *cobra.Command {
	var filter *letterFilter
	var all, yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "purge [flags] [SEQUENCE...]",
		Short: "Remove dead letters",
		Long: `Remove dead letters for good, settled ones too unless --status selects others.
Events and session states remain, and so do the records, for as long as the raw
stream keeps them. A requeued record is still processed.

The command asks before it removes anything.`,
		Example: `  tributary dlq purge --status settled
  tributary dlq purge --reason malformed --until 720h --yes
  tributary dlq purge 4711`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !all && !filter.isSet(cmd, args) {
				return usageError{errors.New("name sequences or a filter, or pass --all")}
			}
			if err := a.checkConfirm("purge", yes || dryRun); err != nil {
				return err
			}
			return filter.selectLetters(cmd, a, args, func(ctx context.Context, s *letterSelection) error {
				if yes && !dryRun {
					return s.purge(ctx)
				}
				n, last, err := s.count(ctx)
				if err != nil {
					return err
				}
				if dryRun {
					fmt.Fprintf(a.stderr, "would remove %s\n", terminal.Plural(n, "dead letter"))
					return nil
				}
				if n > 0 && !a.confirm(ctx, fmt.Sprintf("Remove %s of generation %s for good?", terminal.Plural(n, "dead letter"), a.config.Generation)) {
					fmt.Fprintln(a.stderr, "nothing was removed")
					return nil
				}
				if n > 0 {
					s.q.Through = last // later dead letters were not part of the question
				}
				return s.purge(ctx)
			})
		},
	}
	filter = letterFlags(cmd, a, allLetters)
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters of the generation")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show how many would be removed, and change nothing")
	return cmd
}

// count counts the dead letters and returns the last positions.
func (s *letterSelection) count(ctx context.Context) (n int, last streams.Positions, err error) {
	for l, err := range s.letters(ctx) {
		if err != nil {
			return n, last, err
		}
		n, last = n+1, last.With(l.Cell, l.Position)
	}
	return n, last, nil
}

// purge removes the dead letters.
func (s *letterSelection) purge(ctx context.Context) error {
	n, open := 0, 0
	err := events.PurgeDeadLetters(ctx, s.js, s.letters(ctx), func(l events.DeadLetter) {
		n++
		if l.Standing == core.StandingOpen {
			open++
		}
		s.missing.found(&l)
	})
	text := "removed " + terminal.Plural(n, "dead letter")
	if open < n {
		text += fmt.Sprintf(", %s of them open", terminal.Thousands(int64(open)))
	}
	fmt.Fprintln(s.stderr, text)
	return cmp.Or(err, s.missed())
}

// checkConfirm refuses a command that has to ask but has no terminal.
func (a *app) checkConfirm(command string, yes bool) error {
	if in, ok := a.stdin.(*os.File); yes || ok && term.IsTerminal(int(in.Fd())) {
		return nil
	}
	return usageError{errors.New(command + " asks on a terminal: pass --yes if there is none")}
}

// confirm asks the user and reports whether the answer is yes. An interrupt means no.
func (a *app) confirm(ctx context.Context, question string) bool {
	fmt.Fprint(a.stderr, question+" [y/N] ")
	answer := make(chan string, 1)
	go func() { // ends with the process if there is no answer
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case s := <-answer:
		return s == "y" || s == "yes"
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return false
	}
}
