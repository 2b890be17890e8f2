// Tributary turns the logs of coding agents into one stream of events.
//
// Each command is a file of its name with one constructor, which rootCommand calls. The commands share app.go
// (outputs, exit codes), config.go (settings), flags.go, connection.go (the broker) and telemetry.go
// (OpenTelemetry), and the packages of cmd/internal: terminal (safe output, tables, JSON), printer (events),
// progress, doctor (the state of the broker) and rights (what the broker denies). Standard output is for data,
// standard error for messages.
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
	_ "time/tzdata" // an image of the program alone has no files of time zones

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel"

	"tributary/cmd/internal/terminal"
)

func main() { os.Exit(run(os.Args[1:])) }

// run runs the program and returns the exit code. The first signal ends the context of the command, which finishes
// the work in progress; the second ends the process.
func run(args []string) int {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: terminal.Safe(os.Stderr)}
	if terminal.IsTerminal(os.Stderr) {
		a.status = terminal.NewStatusLine(os.Stderr)
		a.stderr = terminal.Safe(a.status)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Ignore(syscall.SIGPIPE) // writes fail instead, so that the command cleans up
	go func() {
		stop(signalError{<-signals})
		first := time.Now()
		for range signals {
			if time.Since(first) > signalEcho {
				os.Exit(exitInterrupted)
			}
		}
	}()

	a.config, a.configError = loadConfig()
	return execute(ctx, a, args)
}

// execute runs the command that args name, prints its error, and returns the exit code.
func execute(ctx context.Context, a *app, args []string) int {
	started := false
	root := a.rootCommand(&started) //nolint:contextcheck // commands get it from ExecuteContextC
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	code := exitCode(ctx, err, started)
	switch {
	case err == nil:
	case code == exitUsage:
		fmt.Fprintf(a.stderr, "tributary: %v\nTry: %s --help\n", err, command.CommandPath())
	case code != exitInterrupted && code != exitPipe:
		fmt.Fprintf(a.stderr, "tributary: %v\n", a.withCure(err))
	}
	return code
}

// signalEcho is the time within which a repeated signal counts once: timeout(1) and others send a signal to the
// process and to its group.
const signalEcho = 200 * time.Millisecond

// exitCode maps the outcome of a command to its exit code. An error before the start is a mistake of the caller. A
// command that runs until a signal succeeds after SIGTERM, but returns exitInterrupted after an interrupt, as the
// shell expects.
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
	case errors.Is(err, syscall.EPIPE):
		return exitPipe
	case partly:
		return exitPartly
	default:
		return exitFailure
	}
}

// rootCommand builds all commands. It sets started once the arguments and the settings of the chosen command are
// valid.
func (a *app) rootCommand(started *bool) *cobra.Command {
	root := &cobra.Command{
		Use:   "tributary",
		Short: "One stream of events from the logs of coding agents",
		Long: `Tributary reads the logs of coding agents, keeps every raw record in a NATS
JetStream stream, and turns the records into one stream of events: exactly once,
in order per session.`,
		Example: `  tributary up --samples                   try it, nothing else is needed
  tributary up                             everything in one process, with the logs of this machine
  tributary agents                         list the agents that are read, and their logs here
  tributary drift                          list what newer agents write and no rule reads
  tributary normalize session.jsonl        one log to events, without a broker
  tributary run                            a worker at the broker of NATS_URL
  tributary ship                           send the logs of this machine to the broker
  tributary receive                        take what agents export by OpenTelemetry, and their hooks
  tributary tail                           print the events as they are stored
  tributary sessions ls                    list the sessions with what they did
  tributary stats                          sum up tokens, cost, tools and time
  tributary export --out events            write the events to Parquet files
  tributary console                        show the sessions and figures in a browser
  tributary dlq ls                         list the records that could not be read
  tributary replay start b                 build the events again beside the live ones
  tributary erase --user ada               erase sessions for good
  tributary schema print --consumer        print the JSON Schema of the events
  tributary doctor                         show progress, problems and their cures`,
		Version:       versionLine(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if a.needsSettings(cmd) {
				if wrong := append(a.configError, a.config.validate()...); wrong != nil {
					return wrong
				}
				a.log = newLogger(a.stderr, a.config)
				otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logTelemetryError(a.log, err) }))
				a.config.warnOfUnknown(cmd.Context(), a.log)
			}
			*started = true
			return nil
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetIn(a.stdin)
	a.fitHelp(root)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.PersistentFlags().TextVar(&a.config.LogLevel, "log-level", a.config.LogLevel, "`level` of the log: debug, info, warn or error (TRIBUTARY_LOG_LEVEL)")
	root.AddCommand(
		upCommand(a),
		runCommand(a),
		shipCommand(a),
		receiveCommand(a),
		tailCommand(a),
		normalizeCommand(a),
		doctorCommand(a),
		healthCommand(a),
		sessionsCommand(a),
		traceCommand(a),
		statsCommand(a),
		exportCommand(a),
		consoleCommand(a),
		dlqCommand(a),
		claimsCommand(a),
		eraseCommand(a),
		replayCommand(a),
		schemaCommand(a),
		agentsCommand(a),
		driftCommand(a),
		versionCommand(),
		environmentCommand(),
	)
	return root
}

// needsSettings reports whether a command uses the settings. Help, completion and version work with any environment.
func (a *app) needsSettings(cmd *cobra.Command) bool {
	for c := cmd; c != nil; c = c.Parent() {
		switch c.Name() {
		case "help", "completion", "version", "schema", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
			return false
		}
	}
	return true
}

// newLogger returns the logger of all packages.
func newLogger(w io.Writer, c *config) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if c.LogFormat == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	return slog.New(newRepeats(handler))
}
