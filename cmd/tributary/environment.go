package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// environmentCommand is the help topic "environment": it has no action of its own.
func environmentCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "environment",
		Short: "Settings in the environment",
		Long: "A flag wins over its variable, a variable over the default.\n" +
			"An empty variable counts as unset.\n\n" + settingsText(),
	}
}

// settingsText lists the settings for a terminal.
func settingsText() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, s := range settings() {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", s.name, s.fallback, s.text())
	}
	w.Flush()
	return b.String()
}
