package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tributary/cmd/internal/moment"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
)

// completeFlag makes the shell complete the value of a flag of cmd.
func completeFlag(cmd *cobra.Command, name string, values []string) {
	// It fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// checkOutput checks the value of --output.
func checkOutput(output string, values ...string) error {
	if !slices.Contains(values, output) {
		return usageError{fmt.Errorf("-o %q: write %s", output, strings.Join(values, " or "))}
	}
	return nil
}

// enumFlag adds a flag that takes one of values to a command.
func enumFlag[T ~string](cmd *cobra.Command, value *string, name string, fallback T, usage string, values []T) {
	cmd.Flags().StringVar(value, name, string(fallback), usage+": "+joined(values))
	completeFlag(cmd, name, texts(values))
}

// parseEnum parses the value of a flag that takes one of values.
func parseEnum[T ~string](flag, value string, values []T) (T, error) {
	if !slices.Contains(values, T(value)) {
		return "", usageError{fmt.Errorf("--%s %q: write one of %s", flag, value, joined(values))}
	}
	return T(value), nil
}

// sourceFlag adds --source to a command.
func sourceFlag(cmd *cobra.Command, source *string, usage string) {
	enumFlag(cmd, source, "source", "", usage, envelopes.Sources)
}

// parseSource parses the value of --source, which may be empty.
func parseSource(name string) (envelopes.Source, error) {
	if name == "" {
		return "", nil
	}
	return parseEnum("source", name, envelopes.Sources)
}

// parseTypes parses the values of --type and --exclude-type. The result is empty for all types.
func parseTypes(only, excluded []string) ([]envelopes.EventType, error) {
	for flag, names := range map[string][]string{"type": only, "exclude-type": excluded} {
		for _, name := range names {
			if !slices.Contains(envelopes.EventTypes, envelopes.EventType(name)) {
				return nil, usageError{fmt.Errorf("--%s %q: write some of %s, separated by commas", flag, name, joined(envelopes.EventTypes))}
			}
		}
	}
	if len(only)+len(excluded) == 0 {
		return nil, nil
	}
	var types []envelopes.EventType
	for _, t := range envelopes.EventTypes {
		if (len(only) == 0 || slices.Contains(only, string(t))) && !slices.Contains(excluded, string(t)) {
			types = append(types, t)
		}
	}
	if len(types) == 0 {
		return nil, usageError{errors.New("--exclude-type leaves no type: name fewer types, or other ones in --type")}
	}
	return types, nil
}

// parseSince parses the value of --since: see [parseTime].
func parseSince(since string, now time.Time) (time.Time, error) {
	return parseTime("since", since, now)
}

// parseTime is [parseTimeIn] with the local zone.
func parseTime(flag, value string, now time.Time) (time.Time, error) {
	return parseTimeIn(flag, value, now, time.Local)
}

// parseTimeIn parses the value of a flag: a time, a date in zone, or a duration before now. An empty value is the
// zero time.
func parseTimeIn(flag, value string, now time.Time, zone *time.Location) (time.Time, error) {
	t, err := moment.Parse(value, now, zone)
	if err != nil {
		return t, usageError{fmt.Errorf("--%s %w", flag, err)}
	}
	return t, nil
}

// flagError names the valid values of a flag whose value cannot be parsed.
func flagError(err error) error {
	var value *pflag.InvalidValueError
	if !errors.As(err, &value) {
		return err
	}
	var cure string
	switch flag := value.GetFlag(); flag.Value.Type() {
	case "duration":
		cure = "a duration such as 30m or 24h"
	case "ints", "intSlice":
		cure = "numbers, separated by commas"
	default:
		if flag.Name != "log-level" {
			return err
		}
		cure = "debug, info, warn or error"
	}
	return fmt.Errorf("--%s %q: write %s", value.GetFlag().Name, value.GetValue(), cure)
}

// noArgs is for commands that take no arguments.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: this command takes flags only", args[0])
	}
	return nil
}

// oneArg is for commands that take one argument; what names it.
func oneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s: name one %s", terminal.Plural(len(args), "argument"), what)
		}
		return nil
	}
}

// someArgs is for commands that take one argument or more; what names one.
func someArgs(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("0 arguments: name one %s", what)
		}
		return nil
	}
}

// texts converts the values of an enum to strings.
func texts[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// joined lists the values of an enum.
func joined[T ~string](values []T) string { return strings.Join(texts(values), ", ") }
