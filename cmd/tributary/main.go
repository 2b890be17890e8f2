// Tributary turns the logs of coding agents into one stream of events.
//
// Each command is one file with one constructor; what they share is in main.go (dispatch,
// signals, exit codes), config.go (settings), connection.go (the broker), telemetry.go
// (OpenTelemetry) and terminal.go (what may be shown). Standard output is for data,
// standard error for talk.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes.
const (
	exitFailure     = 1
	exitUsage       = 2   // wrong arguments or settings: nothing was done
	exitPartly      = 3   // done, but some records are dead letters or were not taken
	exitInterrupted = 130 // by a signal
)

// partlyError ends a command that did its work, but not for every record.
type partlyError string

func (e partlyError) Error() string { return string(e) }

// usageError is a mistake of whoever called: wrong arguments or settings.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// app is what the commands share.
type app struct {
	config      *config
	configError settingsError // what could not be read of the environment
	server      bool          // the broker was named by a flag

	stdin  io.Reader
	stdout io.Writer   // data
	stderr io.Writer   // talk; whatever is written is made safe for a terminal
	status *statusLine // at the end of what stderr shows; nil where that is no terminal
	log    *slog.Logger
}

func main() { os.Exit(run(os.Args[1:])) }

// run is the program; it returns the exit code. The first signal ends the context that
// the command works under, so that it finishes what is on its way; the second ends the
// process.
func run(args []string) int {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: safeWriter{os.Stderr, printable}}
	if isTerminal(os.Stderr) {
		a.status = &statusLine{w: os.Stderr}
		a.stderr = safeWriter{a.status, printable}
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		stop(signalError{<-signals})
		first := time.Now()
		for range signals {
			if time.Since(first) > echo {
				os.Exit(exitInterrupted)
			}
		}
	}()

	a.config, a.configError = loadConfig()
	started := false
	root := a.rootCommand(&started)
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	code := exitCode(ctx, err, started)
	switch {
	case err == nil:
	case code == exitUsage:
		fmt.Fprintf(a.stderr, "tributary: %v\nTry: %s --help\n", err, command.CommandPath())
	case code != exitInterrupted:
		fmt.Fprintf(a.stderr, "tributary: %v\n", withCure(err))
	}
	return code
}

// echo is how long after a signal the same one may come again without being meant:
// timeout(1) and others send it to the process and to its group.
const echo = 200 * time.Millisecond

// signalError is the cause of a context that a signal ended.
type signalError struct{ os.Signal }

func (e signalError) Error() string { return "stopped by signal: " + e.String() }

// exitCode is the outcome of a command. Before it has started, whatever is wrong is how
// it was called. A command that runs until it is told to stop ends well when it was told
// by SIGTERM; an interrupt is for the shell to see.
func exitCode(ctx context.Context, err error, started bool) int {
	by, stopped := errors.AsType[signalError](context.Cause(ctx))
	_, usage := errors.AsType[usageError](err)
	_, partly := errors.AsType[partlyError](err)
	switch {
	case err == nil && stopped && by.Signal == os.Interrupt:
		return exitInterrupted
	case err == nil:
		return 0
	case usage || !started:
		return exitUsage
	case stopped && errors.Is(err, context.Canceled):
		return exitInterrupted
	case partly:
		return exitPartly
	default:
		return exitFailure
	}
}

// rootCommand builds all commands. It sets started when the arguments and the settings
// of one are in order.
func (a *app) rootCommand(started *bool) *cobra.Command {
	root := &cobra.Command{
		Use:   "tributary",
		Short: "One stream of events out of the logs of coding agents",
		Long: `Tributary reads the logs of coding agents, keeps every raw record in a NATS
JetStream stream, and turns them into one stream of events: exactly once, in
order per session.`,
		Example: `  tributary up --samples                   see it work, nothing else needed
  tributary up                             everything in one process, with the logs of this machine
  tributary normalize session.jsonl        one log to events, no broker
  tributary run                            a worker at the broker of NATS_URL
  tributary ship                           send the logs of this machine there
  tributary tail                           watch the events
  tributary dlq ls                         what could not be read
  tributary doctor                         how it stands, what is wrong, and the cure`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if !a.needsSettings(cmd) {
				*started = true
				return nil
			}
			if wrong := append(a.configError, a.config.validate()...); wrong != nil {
				return wrong
			}
			a.log = newLogger(a.stderr, a.config)
			*started = true
			return nil
		},
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetIn(a.stdin)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.PersistentFlags().TextVar(&a.config.LogLevel, "log-level", a.config.LogLevel, "`level` of the log: debug, info, warn or error (TRIBUTARY_LOG_LEVEL)")
	root.AddCommand(
		a.upCommand(),
		a.runCommand(),
		a.shipCommand(),
		a.tailCommand(),
		a.normalizeCommand(),
		a.doctorCommand(),
		a.dlqCommand(),
		a.claimsCommand(),
		versionCommand(),
		&cobra.Command{
			Use:   "environment",
			Short: "Settings in the environment",
			Long: "Settings come from flags, then from these variables, then from the defaults.\n" +
				"An empty variable is the same as none.\n\n" + settingsText(),
		},
	)
	return root
}

// flagError says what to write for a flag whose value cannot be read.
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
		return fmt.Errorf("%q is one argument too many: there are none", args[0])
	}
	return nil
}

// oneArg is for commands that take one argument.
func oneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s: name one %s", plural(len(args), "argument"), what)
		}
		return nil
	}
}

// needsSettings reports whether a command works with the settings: help, completion and
// version do not, and answer whatever the environment holds.
func (a *app) needsSettings(cmd *cobra.Command) bool {
	for c := cmd; c != nil; c = c.Parent() {
		switch c.Name() {
		case "help", "completion", "version", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
			return false
		}
	}
	return true
}

// newLogger is the logger that is handed to everything.
func newLogger(w io.Writer, c *config) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
