package main

import (
	"strings"

	"tributary/cmd/internal/terminal"

	"github.com/spf13/cobra"
)

// environmentCommand is the help topic "environment", which has no action.
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
	table := terminal.NewTable("", "", "")
	for _, s := range settings() {
		table.Add("  "+s.name, s.fallback, s.text())
	}
	_ = table.Write(&b, terminal.Uncut) // a builder never fails
	return b.String()
}
