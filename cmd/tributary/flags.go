package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
)

// completeFlag makes the shell complete the value of a flag of cmd.
func completeFlag(cmd *cobra.Command, name string, values []string) {
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// checkOutput checks the value of --output.
func checkOutput(output string, values ...string) error {
	if !slices.Contains(values, output) {
		return usageError{fmt.Errorf("-o %q: write %s", output, strings.Join(values, " or "))}
	}
	return nil
}

// sourceFlag adds --source to a command.
func sourceFlag(cmd *cobra.Command, source *string, usage string) {
	cmd.Flags().StringVar(source, "source", "", usage+": "+joined(envelopes.Sources))
	completeFlag(cmd, "source", texts(envelopes.Sources))
}

// parseSource parses the value of --source.
func parseSource(name string) (envelopes.Source, error) {
	source := envelopes.Source(name)
	if name != "" && !slices.Contains(envelopes.Sources, source) {
		return "", usageError{fmt.Errorf("--source %q: write one of %s", name, joined(envelopes.Sources))}
	}
	return source, nil
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

// parseTime is [parseTimeIn] the local zone.
func parseTime(flag, value string, now time.Time) (time.Time, error) {
	return parseTimeIn(flag, value, now, time.Local)
}

// parseTimeIn parses the value of a flag: a time, a date in a zone, or a duration before now; empty is
// the zero time.
func parseTimeIn(flag, value string, now time.Time, zone *time.Location) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if ago, ok := parseDuration(value); ok {
		return now.Add(-ago), nil
	}
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return t, nil
	}
	for _, layout := range []string{time.DateOnly, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if t, err := time.ParseInLocation(layout, value, zone); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usageError{fmt.Errorf("--%s %q: write a duration such as 24h or 7d, a date such as 2026-03-09, or a time such as 2026-03-09T14:00:00Z", flag, value)}
}

// parseDuration parses a duration from 0 on, which may begin with weeks and with days of 24 hours: 2w, 7d, 1d12h.
func parseDuration(value string) (sum time.Duration, ok bool) {
	rest := value
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, after, found := strings.Cut(rest, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 63)
		if err != nil || n > uint64((math.MaxInt64-sum)/unit.length) {
			return 0, false
		}
		sum += time.Duration(n) * unit.length
		rest = after
	}
	if rest == "" && value != "" {
		return sum, true
	}
	d, err := time.ParseDuration(rest)
	return sum + d, err == nil && d >= 0 && d <= math.MaxInt64-sum
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

// noArgs is for commands that take flags only.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: this command takes flags only", args[0])
	}
	return nil
}

// oneArg is for commands that take one argument.
func oneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s: name one %s", terminal.Plural(len(args), "argument"), what)
		}
		return nil
	}
}

// someArgs is for commands that take one argument or more.
func someArgs(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("0 arguments: name one %s", what)
		}
		return nil
	}
}

// texts returns the values of an enum as strings.
func texts[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// joined lists the values of an enum.
func joined[T ~string](values []T) string { return strings.Join(texts(values), ", ") }
