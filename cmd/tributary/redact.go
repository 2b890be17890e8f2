package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/redact"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
)

// redactFlags adds the flags of redaction to a command.
func (a *app) redactFlags(cmd *cobra.Command, usage string) {
	flags := cmd.Flags()
	flags.StringVar((*string)(&a.config.Redact), "redact", string(a.config.Redact), usage+" (TRIBUTARY_REDACT)")
	flags.Lookup("redact").NoOptDefVal = string(redact.Secrets)
	flags.StringVar(&a.config.RedactRules, "redact-rules", a.config.RedactRules, "`file` of rules in the format of gitleaks, which add to the built-in ones (TRIBUTARY_REDACT_RULES)")
}

// checkRedactArgs refuses an argument that is a mode, which was meant for --redact.
func checkRedactArgs(args []string) error {
	for _, arg := range args {
		if slices.Contains(redact.Modes, redact.Mode(arg)) {
			return usageError{fmt.Errorf("%s: write --redact=%s, or ./%s for a path of this name", arg, arg, arg)}
		}
	}
	return nil
}

// redactor returns the redactor of a mode, nil if the mode replaces nothing.
func (c *config) redactor(mode redact.Mode) (*redact.Redactor, error) {
	if mode == "" || mode == redact.Full {
		if c.RedactRules != "" {
			return nil, usageError{errors.New("TRIBUTARY_REDACT_RULES: the rules of --redact-rules need a mode: pass --redact, too")}
		}
		return nil, nil //nolint:nilnil // replaces nothing
	}
	key, err := c.redactKey(c.Redact != "")
	if err != nil {
		return nil, err
	}
	return redact.New(redact.Config{Mode: mode, Key: key, Rules: c.RedactRules})
}

// redactKey returns the key of redaction: the one of the settings, else the one in the data folder, which it creates
// if the key is missing and create is true.
func (c *config) redactKey(create bool) (redact.Key, error) {
	switch {
	case c.RedactKey != "" && c.RedactKeyFile != "":
		return nil, errors.New("TRIBUTARY_REDACT_KEY: set it or TRIBUTARY_REDACT_KEY_FILE, not both")
	case c.RedactKey != "":
		key, err := redact.NewKey([]byte(c.RedactKey))
		if err != nil {
			err = fmt.Errorf("TRIBUTARY_REDACT_KEY: %w", err)
		}
		return key, err
	case c.RedactKeyFile != "":
		key, err := redact.ReadKey(c.RedactKeyFile)
		if err != nil {
			err = fmt.Errorf("TRIBUTARY_REDACT_KEY_FILE: %w", err)
		}
		return key, err
	}
	dir, err := c.dataDir()
	if err != nil {
		return nil, err
	}
	read := redact.ReadKey
	if create {
		read = redact.ReadOrCreateKey
	}
	key, err := read(filepath.Join(dir, "redact.key"))
	if err != nil {
		err = fmt.Errorf("%w: set TRIBUTARY_REDACT_KEY or TRIBUTARY_REDACT_KEY_FILE", err)
	}
	return key, err
}

// useRedaction gives ship its redactor.
func useRedaction(a *app, c *ship.Config) (err error) {
	if c.Redactor, err = a.config.redactor(a.config.Redact); err != nil || c.Redactor == nil || !c.DryRun {
		return err
	}
	c.Redacted = func(r ship.Redaction) {
		fmt.Fprintf(a.stdout, "%s:%d: %s %s\n", terminal.OneLine(r.Path), r.Line, r.Rule, r.Placeholder)
	}
	return nil
}

// redactedTopology returns the topology of a worker with its redaction.
func redactedTopology(a *app) (streams.Topology, error) {
	top := a.config.topology()
	top.Settings.Redact = a.config.Redact
	r, err := a.config.redactor(a.config.Redact)
	if err == nil && r != nil {
		top.Settings.RedactKey, top.Settings.RedactRules = r.Fingerprint(), r.RulesFingerprint()
	}
	return top, err
}

// logRedaction logs the mode and the fingerprint of the key.
func logRedaction(ctx context.Context, a *app, r *redact.Redactor) {
	if r != nil {
		a.log.InfoContext(ctx, "records are redacted before they are sent", "mode", string(r.Mode()), "rules", len(r.Rules())-1, "key_fingerprint", r.Fingerprint())
	}
}

// printRedacted prints how many secrets of each rule were replaced.
func printRedacted(w io.Writer, counts map[string]int) {
	if len(counts) == 0 {
		return
	}
	total := 0
	var list []string
	for _, rule := range slices.Sorted(maps.Keys(counts)) {
		total += counts[rule]
		list = append(list, fmt.Sprintf("%s %d", rule, counts[rule]))
	}
	fmt.Fprintf(w, "redacted %s: %s\n", terminal.Plural(total, "place"), strings.Join(list, ", "))
}
