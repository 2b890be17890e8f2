package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
)

func (a *app) dlqListCommand() *cobra.Command {
	var filter *letterFilter
	var output string
	var group bool
	cmd := &cobra.Command{
		Use:   "ls [flags] [SEQUENCE...]",
		Short: "List dead letters",
		Long: `List dead letters in the order in which they were stored: those whose records have
not been read since, unless --status selects others. With --group print how many
there are by reason and agent. With -o json print one object per line.`,
		Example: `  tributary dlq ls
  tributary dlq ls --group --status all
  tributary dlq ls --reason malformed --since 1h -o json | jq -r .error`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "pretty", "json"); err != nil {
				return err
			}
			return a.withLetters(cmd, filter, args, func(ctx context.Context, js jetstream.JetStream, q events.DeadLettersQuery) error {
				list := a.newLetterList(output == "json")
				missing := missingOf(q)
				n, err := a.listLetters(ctx, js, q, list, group, &missing)
				if err != nil {
					return err
				}
				if output != "json" {
					a.printLetterCount(n, filter.status)
				}
				return missing.err(a)
			})
		},
	}
	filter = a.letterFlags(cmd, string(core.StandingOpen))
	cmd.Flags().BoolVar(&group, "group", false, "count them by reason and agent")
	cmd.Flags().StringVarP(&output, "output", "o", "pretty", "pretty or json")
	return cmd
}

// listLetters prints the dead letters of a query, or their groups, and returns their number.
func (a *app) listLetters(ctx context.Context, js jetstream.JetStream, q events.DeadLettersQuery, list *letterList, group bool, missing *missing) (int, error) {
	n := 0
	counts := letterCounts{}
	for l, err := range a.letters(ctx, js, q) {
		if err != nil {
			return n, err
		}
		n++
		missing.found(&l)
		counts.add(&l)
		if group {
			continue
		}
		if err := list.letter(&l); err != nil {
			return n, err
		}
	}
	if !group {
		return n, nil
	}
	for _, c := range counts.sorted() {
		if err := list.group(c); err != nil {
			return n, err
		}
	}
	return n, nil
}

// printLetterCount prints how many dead letters there are.
func (a *app) printLetterCount(n int, status string) {
	noun := "dead letter"
	if status != allLetters {
		noun = status + " dead letter"
	}
	if n == 0 {
		fmt.Fprintf(a.stderr, "no %s in generation %s\n", noun, a.config.Generation)
		return
	}
	fmt.Fprintln(a.stderr, terminal.Plural(n, noun))
}
