package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/envelopes/schema"
)

func schemaValidateCommand(a *app) *cobra.Command {
	var name, output string
	var consumer bool
	cmd := &cobra.Command{
		Use:   "validate [FILE...]",
		Short: "Check events, entries or ACP messages by their schema",
		Long: `Check documents by the schema that "schema print" prints with the same flags: one
document per line, from files or standard input (-, or no FILE). Events are also checked
by rules that JSON Schema cannot state: the bytes of ids, tokens_total as the sum of
usage. With --consumer unknown fields and values of enums pass, and these rules are left
out.

Each violation is a line: file:line, the JSON Pointer of the place, and the reason,
which repeats no value of the document. With -o json it is an object with file, line,
pointer and reason. The exit code is 0 if every document is valid, 1 if one is not.`,
		Example: `  tributary normalize session.jsonl | tributary schema validate
  tributary schema validate --consumer events.jsonl -o json
  tributary normalize --as entries session.jsonl | tributary schema validate --form entries`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "pretty", "json"); err != nil {
				return err
			}
			form, err := parseSchemaForm(name)
			if err != nil {
				return err
			}
			validator, err := schema.NewValidator(schemaView(form, consumer))
			if err != nil {
				return err
			}
			c := &documentCheck{
				validator: validator, rules: form == schema.Events && !consumer,
				out: bufio.NewWriter(terminal.Safe(a.stdout)), asJSON: output == "json",
			}
			if len(args) == 0 {
				args = []string{stdio}
			}
			return validateFiles(cmd.Context(), a, args, c)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&consumer, "consumer", false, "check as a consumer: unknown fields and values of enums pass")
	schemaFormFlag(cmd, &name)
	flags.StringVarP(&output, "output", "o", "pretty", "pretty or json")
	return cmd
}

// validateFiles checks the documents of files.
func validateFiles(ctx context.Context, a *app, paths []string, c *documentCheck) error {
	for _, path := range paths {
		err := validateFile(ctx, a, path, c)
		if err := errors.Join(err, c.out.Flush()); err != nil {
			return err
		}
	}
	fmt.Fprintf(a.stderr, "%s, %s\n", terminal.Plural(c.documents, "document"), terminal.Plural(c.violations, "violation"))
	if c.violations > 0 {
		return fmt.Errorf("%s not valid", terminal.Plural(c.invalid, "document"))
	}
	return nil
}

// validateFile checks the documents of one file.
func validateFile(ctx context.Context, a *app, path string, c *documentCheck) error {
	in, name := io.NopCloser(a.stdin), "stdin"
	if path != stdio {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		in, name = file, path
	}
	defer in.Close()
	lines := bufio.NewReaderSize(in, 64<<10)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", name, err)
		}
		last := err != nil
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := c.check(name, number, line); err != nil {
				return err
			}
		}
		if last || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// documentCheck checks documents and prints their violations.
type documentCheck struct {
	validator *schema.Validator
	rules     bool // check events beyond their schema
	out       *bufio.Writer
	asJSON    bool

	documents, invalid, violations int
}

// placedViolation is a violation in the output.
type placedViolation struct {
	File             string `json:"file"`
	Line             int    `json:"line"`
	schema.Violation `json:",inline"`
}

// check checks one document.
func (c *documentCheck) check(file string, line int, document []byte) error {
	c.documents++
	violations := c.validator.Check(document)
	if violations == nil && c.rules {
		if e, err := envelopes.DecodeAgentEvent(document); err != nil {
			violations = []schema.Violation{{Reason: err.Error()}}
		} else if err := e.Validate(); err != nil {
			violations = []schema.Violation{{Reason: err.Error()}}
		}
	}
	if len(violations) > 0 {
		c.invalid++
	}
	c.violations += len(violations)
	for _, v := range violations {
		var err error
		if c.asJSON {
			err = terminal.WriteJSON(c.out, placedViolation{file, line, v})
		} else {
			_, err = fmt.Fprintf(c.out, "%s:%d: %q %s\n", file, line, v.Pointer, v.Reason)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
