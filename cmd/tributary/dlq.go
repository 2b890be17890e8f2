package main

import (
	"github.com/spf13/cobra"
)

func dlqCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "List, show and requeue the records that could not be read",
		Long: `A record that cannot be read becomes a dead letter of its generation: its bytes,
its headers and a reason. No other record waits for it. ls and show print dead
letters. When a newer tributary can read them, requeue appends their events to
their sessions, once, even if it runs again.

A dead letter is named by the sequence of its record in the raw stream.`,
		Example: `  tributary dlq ls --group                       how many there are, by reason and agent
  tributary dlq ls --reason panic --since 24h
  tributary dlq show 4711                        one of them, with its bytes
  tributary dlq requeue --reason panic           after the fix
  tributary dlq purge --status settled           those that were requeued and read`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(dlqListCommand(a), dlqShowCommand(a), dlqRequeueCommand(a), dlqExportCommand(a), dlqPurgeCommand(a))
	return cmd
}
