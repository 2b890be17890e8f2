package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"tributary/envelopes/schema"
)

// schemaFormFlag adds --form to a command.
func schemaFormFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "form", string(schema.Events), "form of the documents: "+joined(schema.Forms))
	completeFlag(cmd, "form", texts(schema.Forms))
}

// parseSchemaForm parses the value of --form.
func parseSchemaForm(name string) (schema.Form, error) {
	if !slices.Contains(schema.Forms, schema.Form(name)) {
		return "", usageError{fmt.Errorf("--form %q: write one of %s", name, joined(schema.Forms))}
	}
	return schema.Form(name), nil
}

// schemaView returns the schema of a form for producers or for consumers.
func schemaView(form schema.Form, consumer bool) []byte {
	if consumer {
		return form.Consumer()
	}
	return form.Producer()
}
