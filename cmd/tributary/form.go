package main

import (
	"github.com/spf13/cobra"

	"tributary/cmd/internal/printer"
	"tributary/envelopes/schema"
)

// formFlag adds --as to a command.
func formFlag(cmd *cobra.Command, name *string) {
	enumFlag(cmd, name, "as", printer.AsEvents, "form of the output", printer.Forms)
}

// parseForm parses the value of --as.
func parseForm(name string) (printer.Form, error) { return parseEnum("as", name, printer.Forms) }

// schemaFormFlag adds --form to a command.
func schemaFormFlag(cmd *cobra.Command, name *string) {
	enumFlag(cmd, name, "form", schema.Events, "form of the documents", schema.Forms)
}

// parseSchemaForm parses the value of --form.
func parseSchemaForm(name string) (schema.Form, error) { return parseEnum("form", name, schema.Forms) }

// schemaView returns the schema of a form for producers or for consumers.
func schemaView(form schema.Form, consumer bool) []byte {
	if consumer {
		return form.Consumer()
	}
	return form.Producer()
}
