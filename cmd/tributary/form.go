package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/printer"
)

// formFlag adds --as to a command.
func formFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "as", string(printer.AsEvents), "form of the output: "+joined(printer.Forms))
	completeFlag(cmd, "as", texts(printer.Forms))
}

// parseForm parses the value of --as.
func parseForm(name string) (printer.Form, error) {
	f := printer.Form(name)
	if !slices.Contains(printer.Forms, f) {
		return "", usageError{fmt.Errorf("--as %q: write one of %s", name, joined(printer.Forms))}
	}
	return f, nil
}
