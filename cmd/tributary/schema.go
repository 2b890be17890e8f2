package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes/schema"
)

func schemaCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print, check and compare the schemas that consumers build on",
		Long: `The schemas of what Tributary writes: JSON Schema 2020-12 for events and their
projections, AsyncAPI 3 for the subjects of the broker. No command needs a broker.`,
		Example: `  tributary schema print --consumer >event.json
  tributary normalize session.jsonl | tributary schema validate
  tributary schema diff v1.0 current
  tributary schema asyncapi >asyncapi.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(schemaPrintCommand(a), schemaValidateCommand(a), schemaDiffCommand(a), schemaAsyncAPICommand(a))
	return cmd
}

// currentSchema names the schemas of this program; releases have names of their own.
const currentSchema = "current"

func schemaPrintCommand(a *app) *cobra.Command {
	var name string
	var consumer bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the JSON Schema of events or of a projection",
		Long: `Print the JSON Schema (2020-12) of events, entries or ACP messages: what this version
writes, with no other field and no other value of an enum. With --consumer it is what a
consumer should check with: fields and values that a later version adds pass.

The $id has the version. CloudEvents have the $id of events as dataschema.`,
		Example: `  tributary schema print
  tributary schema print --consumer >event.json
  tributary schema print --form entries`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			form, err := parseSchemaForm(name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.stdout, strings.TrimRight(string(schemaView(form, consumer)), "\n"))
			return err
		},
	}
	cmd.Flags().BoolVar(&consumer, "consumer", false, "the view of a consumer: unknown fields and values of enums pass")
	schemaFormFlag(cmd, &name)
	return cmd
}

func schemaDiffCommand(a *app) *cobra.Command {
	var name, direction, output string
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Compare two JSON Schemas: can NEW follow OLD?",
		Long: `Compare two JSON Schemas. OLD and NEW are files, - for standard input, the name of a
release such as v1.0, or current for the producers' schema of this version.

Which differences break depends on the direction:
  backward   events of OLD are read with NEW: a new required property, a narrower type,
             enum or bound, a new pattern, format or condition breaks; wider ones do not
  forward    events of NEW are read by consumers of OLD, who ignore unknown fields and
             values of enums: a wider type or bound breaks, and a property that is not
             required any more; narrower ones do not
  full       both, as every release of version 1 has to be
A removed property and a changed constant always break. What cannot be judged
counts as breaking. Descriptions, titles and examples are not compared.

Each line has a JSON Pointer into NEW; if NEW lacks the place, into OLD. The exit code
is 0 if NEW is compatible, 1 if something breaks.`,
		Example: `  tributary schema diff v1.0 current
  tributary schema diff --compatibility full old.json new.json
  tributary schema print | tributary schema diff v1.0 - -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%s: name OLD and NEW", terminal.Plural(len(args), "argument"))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkOutput(output, "pretty", "json"); err != nil {
				return err
			}
			form, err := parseSchemaForm(name)
			if err != nil {
				return err
			}
			compatibility, err := parseEnum("compatibility", direction, schema.Directions)
			if err != nil {
				return err
			}
			return diffSchemas(a, form, args[0], args[1], compatibility, output == "json")
		},
	}
	flags := cmd.Flags()
	enumFlag(cmd, &direction, "compatibility", schema.Backward, "who has to read what", schema.Directions)
	schemaFormFlag(cmd, &name)
	flags.StringVarP(&output, "output", "o", "pretty", "pretty or json")
	return cmd
}

// schemaDifference is a difference in the output.
type schemaDifference struct {
	Pointer  string `json:"pointer"`
	Change   string `json:"change"`
	Breaking bool   `json:"breaking"`
	Reason   string `json:"reason,omitzero"` // why it breaks
}

// diffSchemas compares two schemas and prints their differences.
func diffSchemas(a *app, form schema.Form, older, newer string, direction schema.Direction, asJSON bool) error {
	if older == stdio && newer == stdio {
		return usageError{errors.New("only one of OLD and NEW can be standard input")}
	}
	before, err := readSchema(a, form, older)
	if err != nil {
		return err
	}
	after, err := readSchema(a, form, newer)
	if err != nil {
		return err
	}
	found, err := schema.Compare(before, after)
	if err != nil {
		return usageError{err}
	}
	differences := make([]schemaDifference, len(found))
	breaking := 0
	for i, d := range found {
		reason := d.Breaks(direction)
		differences[i] = schemaDifference{d.Pointer, d.Change, reason != "", reason}
		if reason != "" {
			breaking++
		}
	}
	if asJSON {
		err = terminal.WriteJSON(a.stdout, struct {
			Compatibility schema.Direction   `json:"compatibility"`
			Compatible    bool               `json:"compatible"`
			Differences   []schemaDifference `json:"differences"`
		}{direction, breaking == 0, differences})
	} else {
		err = printSchemaDiff(terminal.Safe(a.stdout), direction, differences)
	}
	if err == nil && breaking > 0 {
		err = fmt.Errorf("%s: %s of %s", errIncompatible, terminal.Thousands(int64(breaking)), terminal.Plural(len(found), "difference"))
	}
	return err
}

const errIncompatible = "the new schema breaks readers"

// readSchema returns a schema by its name, or from a file.
func readSchema(a *app, form schema.Form, name string) ([]byte, error) {
	if released, ok := form.Released(name); ok {
		return released, nil
	}
	switch name {
	case currentSchema:
		return form.Producer(), nil
	case stdio:
		document, err := io.ReadAll(a.stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return document, nil
	}
	document, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%s is no file and no schema: name a file, -, %s or one of the releases of %s: %s", name, currentSchema, form, strings.Join(form.Releases(), ", "))
	}
	if err != nil {
		return nil, usageError{err}
	}
	return document, nil
}

// printSchemaDiff writes differences for people.
func printSchemaDiff(w io.Writer, direction schema.Direction, differences []schemaDifference) error {
	judged := map[schema.Direction]string{
		schema.Backward: "backward: events of OLD, read with NEW",
		schema.Forward:  "forward: events of NEW, read by consumers of OLD",
		schema.Full:     "full: events of OLD, read with NEW, and of NEW, read by consumers of OLD",
	}
	if _, err := fmt.Fprintf(w, "%s: %s\n", judged[direction], terminal.Plural(len(differences), "difference")); err != nil {
		return err
	}
	for _, d := range differences {
		verdict := "compatible"
		if d.Breaking {
			verdict = "breaking  "
		}
		line := fmt.Sprintf("%s  %q  %s", verdict, d.Pointer, d.Change)
		if d.Breaking {
			line += ": " + d.Reason
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
