package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
)

// form is the form in which events are printed, the value of --as.
type form string

// The forms.
const (
	asEvents  form = "events"
	asEntries form = "entries" // envelopes.NormalizedEntry
	asACP     form = "acp"     // envelopes.ACPMessage
)

var forms = []form{asEvents, asEntries, asACP}

// formFlag adds --as to a command.
func formFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "as", string(asEvents), "form of the output: "+joined(forms))
	completeFlag(cmd, "as", texts(forms))
}

// parseForm parses the value of --as.
func parseForm(name string) (form, error) {
	if !slices.Contains(forms, form(name)) {
		return "", usageError{fmt.Errorf("--as %q: write one of %s", name, joined(forms))}
	}
	return form(name), nil
}
