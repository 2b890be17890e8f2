package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/letters"
	"tributary/cmd/internal/terminal"
	"tributary/normalizers/core"
)

func dlqListCommand(a *app) *cobra.Command {
	var filter *letterFilter
	var output string
	var group bool
	cmd := &cobra.Command{
		Use:   "ls [flags] [SEQUENCE...]",
		Short: "List dead letters",
		Long: `List dead letters in the order in which they were stored: those whose records have
not been read later, unless --status selects others. With --group print how many
there are by reason and agent. With -o json print one object per line.`,
		Example: `  tributary dlq ls
  tributary dlq ls --group --status all
  tributary dlq ls --reason malformed --since 1h -o json | jq -r .error`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "pretty", "json"); err != nil {
				return err
			}
			return filter.selectLetters(cmd, a, args, func(ctx context.Context, s *letterSelection) error {
				n, err := s.list(ctx, newLetterList(a, output == "json"), group)
				if err != nil {
					return err
				}
				if output != "json" {
					s.printCount(n, filter.status)
				}
				return s.missed()
			})
		},
	}
	filter = letterFlags(cmd, a, string(core.StandingOpen))
	cmd.Flags().BoolVar(&group, "group", false, "count them by reason and agent")
	cmd.Flags().StringVarP(&output, "output", "o", "pretty", "pretty or json")
	return cmd
}

// list prints the dead letters or their groups, and returns how many dead letters there are.
func (s *letterSelection) list(ctx context.Context, list *letterList, group bool) (int, error) {
	n := 0
	counts := letters.Counts{}
	for l, err := range s.letters(ctx) {
		if err != nil {
			return n, err
		}
		n++
		s.missing.found(&l)
		counts.Add(&l)
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
	for _, c := range counts.Sorted() {
		if err := list.group(c); err != nil {
			return n, err
		}
	}
	return n, nil
}

// printCount prints how many dead letters there are.
func (s *letterSelection) printCount(n int, status string) {
	noun := "dead letter"
	if status != allLetters {
		noun = status + " dead letter"
	}
	if n == 0 {
		fmt.Fprintf(s.stderr, "no %s in generation %s\n", noun, s.config.Generation)
		return
	}
	fmt.Fprintln(s.stderr, terminal.Plural(n, noun))
}
