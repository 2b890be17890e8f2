package main

import (
	"context"

	"github.com/spf13/cobra"

	"tributary/pipeline/claims"
)

func claimsListCommand(a *app) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List the objects and how many records name each",
		Long: `List the objects, the oldest first, and how many records in the raw stream name
each. An object without a name is an interrupted upload.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClaims(cmd.Context(), a, output, func(ctx context.Context, claims *claims.Store) error {
				objects, err := claims.Objects(ctx)
				if err != nil {
					return err
				}
				return printObjects(a, objects, output)
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	a.serverFlag(cmd)
	return cmd
}
