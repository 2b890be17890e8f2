package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/progress"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/embedded"
	"tributary/pipeline/replay"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
)

func upCommand(a *app) *cobra.Command {
	var useSamples, once, quiet, again, all bool
	var priceFile string
	var providers []string
	cmd := &cobra.Command{
		Use:   "up [flags] [PATH...]",
		Short: "Run everything in one process, and print the events",
		Long: `Start a JetStream server on disk, turn raw records into events, and ship the named files
and folders, the logs of the agents on this machine, or the built-in samples. Events and
dead letters are printed as they are stored, of logs that exist already the first 500,
and at the end a table of the sessions, like that of tributary sessions ls. On a terminal
the last line shows the progress. The address of a page that shows the same in a browser
is printed, too. What agents of this machine export by OpenTelemetry or post to hooks is
taken at 127.0.0.1:4318 and :4317. It follows the live generation through tributary replay promote, rollback
and drop.

The data folder keeps everything for the next run. With --replay a new version of the
program builds the events again, beside those of the old version, and continues with the
new ones. Samples get a temporary folder, which is removed at the end, unless --data
names one, and a free port if the usual one is in use. Where standard output is no
terminal, they stop by themselves, as with --once, unless --console names an address for
the page.`,
		Example: `  tributary up --samples                   try it
  tributary up                             follow the agents of this machine
  tributary up --once old/session.jsonl    process one log, print its events, stop
  tributary up --once --quiet              update the data folder, print the sessions`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if useSamples && len(args) > 0 {
				return usageError{errors.New("pass either --samples or paths")}
			}
			pricing, err := newPricing(priceFile, providers)
			if err != nil {
				return err
			}
			if again && a.config.Generation != "" {
				return usageError{errors.New("--replay builds the live generation again: leave out TRIBUTARY_GENERATION")}
			}
			asked := cmd.Flags().Changed("console") && a.config.ConsoleListen != ""
			if useSamples && !once && !asked && !terminal.IsTerminal(a.stdout) {
				once = true // nobody is there to end it, or to look at the page
				fmt.Fprintf(a.stderr, "without a terminal no page is served unless you name its address: tributary up --samples --console %s\n", defaultConsole)
			}
			u := &up{app: a, once: once, samples: useSamples, quiet: quiet, all: all, again: again, pricing: pricing}
			u.anyPort = useSamples && !cmd.Flags().Changed("listen") && a.config.Listen == defaultListen
			u.ship = ship.Config{Paths: args, Once: once || useSamples, Logger: a.log}
			if err := useRedaction(a, &u.ship); err != nil {
				return err
			}
			if u.ship.Edge, err = sender(cmd.Context(), a); err != nil {
				return err
			}
			cleanup, err := u.prepare(cmd.Flags().Changed("data"))
			if err != nil {
				return err
			}
			return errors.Join(u.run(cmd.Context()), cleanup())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&useSamples, "samples", false, "ship the built-in samples instead of real logs")
	flags.BoolVar(&once, "once", false, "stop when everything that exists now is processed")
	flags.BoolVarP(&quiet, "quiet", "q", false, "print no events, only the table of the sessions")
	flags.BoolVar(&all, "all", false, fmt.Sprintf("print every event of the logs that exist already, not only the first %d", printedAtMost))
	flags.BoolVar(&again, "replay", false, "if the events are of another version: build them again, and continue with those")
	pricesFlags(flags, &priceFile, &providers)
	flags.StringVar(&a.config.ConsoleListen, "console", a.config.ConsoleListen, `address of the page that shows everything in a browser, "" for none (TRIBUTARY_CONSOLE_LISTEN)`)
	a.writeFlag(flags)
	flags.StringVar(&a.config.Data, "data", a.config.Data, "folder of the streams (TRIBUTARY_DATA)")
	flags.StringVar(&a.config.Listen, "listen", a.config.Listen, `address of the server, which asks for no password, "" for none (TRIBUTARY_LISTEN)`)
	return cmd
}

// defaultListen is the default address of the server.
const defaultListen = "127.0.0.1:4222"

// up is everything in one process.
type up struct {
	*app
	once, samples bool
	quiet         bool // print no events
	all           bool // print every event of the logs that exist already
	anyPort       bool // any free port will do if the address is in use
	again         bool // build events of another revision again
	ship          ship.Config
	data          string           // folder of the server
	pricing       *figures.Pricing // nil for no costs
	next          string           // the generation to build from the events of another revision; empty for none

	js       jetstream.JetStream
	topology streams.Topology // of the worker
	viewer   *viewer
	console  string      // the address of its page; empty for none
	opened   func() bool // whether the page has been opened
}

// prepare chooses the roots of the logs and the folder of the streams. The caller calls cleanup at the end.
func (u *up) prepare(dataGiven bool) (cleanup func() error, err error) {
	cleanup = func() error { return nil }
	if u.samples {
		dir, err := os.MkdirTemp("", "tributary-samples-")
		if err != nil {
			return cleanup, err
		}
		cleanup = func() error { return os.RemoveAll(dir) }
		if u.ship.Roots, err = copySamples(filepath.Join(dir, "logs")); err != nil {
			return cleanup, errors.Join(err, cleanup())
		}
		u.ship.Parallel = 1 // for the same order every time
		u.data = filepath.Join(dir, "data")
	} else if u.ship.Roots, err = u.config.roots(); err != nil {
		return cleanup, err
	}
	if !u.samples || dataGiven {
		if u.data, err = u.config.dataDir(); err != nil {
			return cleanup, err
		}
	}
	u.ship.Offsets, u.ship.Broker = filepath.Join(u.data, "offsets.json"), "embedded"
	u.ship.Idle = u.config.Idle
	return cleanup, nil
}

// run starts telemetry and the server, processes the logs, and stops in reverse order.
func (u *up) run(ctx context.Context) error {
	telemetry, err := u.startTelemetry(ctx, hostOf(u.ship.Edge))
	if err != nil {
		return err
	}
	defer u.shutdown(ctx, telemetry)
	u.ship.Tracer, u.ship.Meter = telemetry.tracer(), telemetry.metrics.Meter(scope)
	stop, err := u.serveHTTP(ctx, telemetry)
	if err != nil {
		return err
	}
	defer stop()
	unlock, err := lock(u.data, "pass another folder with --data")
	if err != nil {
		return err
	}
	defer unlock()
	broker, err := u.startBroker(ctx)
	if err != nil {
		return err
	}
	defer func() {
		broker.Shutdown()
		broker.WaitForShutdown()
	}()
	nc, err := nats.Connect("", nats.InProcessServer(broker), nats.Name("tributary up"), nats.SyncQueueLen(syncQueue))
	if err != nil {
		return err
	}
	defer nc.Close()
	u.broker.Store(nc)
	if u.js, err = jetstream.New(nc); err != nil {
		return err
	}
	u.topology = u.config.topology()
	if err := streams.Provision(ctx, u.js, u.topology); err != nil {
		return err
	}
	if u.config.Generation == "" {
		if u.config.Generation, err = u.liveGeneration(ctx); err != nil {
			return err
		}
	}
	stopConsole, err := u.serveConsole(ctx)
	if err != nil {
		return err
	}
	defer stopConsole()
	defer u.serveReceiver(ctx, telemetry)()
	return u.process(ctx, nc, telemetry)
}

// serveConsole serves the page of the console until stop, unless up ends by itself or no address is set.
func (u *up) serveConsole(ctx context.Context) (stop func(), err error) {
	u.opened = func() bool { return false }
	if u.once || u.config.ConsoleListen == "" {
		return func() {}, nil
	}
	page := consolePage{app: u.app, js: u.js, generation: u.topology.Generation, pricing: u.pricing, anyPort: u.config.ConsoleListen == defaultConsole}
	serve, err := page.listen(ctx)
	if err != nil {
		return nil, err
	}
	u.console, u.opened = page.address, page.opened
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := serve(ctx); err != nil {
			u.log.ErrorContext(ctx, "the console is not served any more", "error", err)
		}
	})
	return func() {
		cancel()
		serving.Wait()
	}, nil
}

// process runs a stage and ships the logs, then stops the stage and reports the result.
func (u *up) process(ctx context.Context, nc *nats.Conn, t *telemetry) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var stage sync.WaitGroup
	working, stopStage := context.WithCancel(ctx)
	defer stage.Wait()
	defer stopStage()
	startStage := sync.OnceFunc(func() {
		stage.Go(func() {
			if err := runWorker(working, u.app, u.js, t, u.topology, "up", u.workerLog(), u.opened); err != nil {
				fail(err)
			}
		})
	})
	if u.next != "" {
		startStage()
		if err := u.makeAgain(ctx); err != nil {
			return failure(ctx, err)
		}
	}
	var err error
	if u.viewer, err = newViewer(ctx, u.app, u.js, u.pricing, u.topology.Generation != ""); err != nil {
		return err
	}
	u.viewer.quiet, u.viewer.all = u.quiet, u.all
	startStage() // after the viewer, which prints all that the stage stores
	shipped, err := u.shipAndPrint(ctx, nc, fail)
	stopStage()
	stage.Wait()
	if err != nil {
		return err
	}
	return u.finish(context.WithoutCancel(ctx), shipped)
}

// failure returns the error that ended ctx, or err if ctx did not end or a signal ended it.
func failure(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.As(cause, new(signalError)) {
		return cause
	}
	return err
}

// workerLog is the log of the worker without messages about partitions, because one process owns them all.
func (u *up) workerLog() *slog.Logger {
	if u.config.LogLevel < slog.LevelInfo {
		return u.log
	}
	return slog.New(warnings{u.log.Handler()})
}

// warnings passes warnings and errors on.
type warnings struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// WithAttrs implements [slog.Handler].
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }

// startBroker starts the server, unless its address is in use.
func (u *up) startBroker(ctx context.Context) (*server.Server, error) {
	listen, note := u.config.Listen, ""
	if listen != "" {
		probe, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
		if u.anyPort && errors.Is(err, syscall.EADDRINUSE) {
			note = ", for " + listen + " is in use"
			listen = "127.0.0.1:0"
			probe, err = (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot listen on %s: stop the program that listens there, or pass --listen 127.0.0.1:0 for any free port, or --listen \"\" for none: %w", listen, err)
		}
		if err := probe.Close(); err != nil {
			return nil, err
		}
	}
	broker, err := embedded.Start(embedded.Config{StoreDir: u.data, Listen: listen, Logger: u.log})
	if err != nil {
		return nil, err
	}
	where := "for this process alone"
	if listen != "" {
		where = "at " + broker.ClientURL() + note
		if !local(listen) {
			u.log.WarnContext(ctx, "the broker has no authentication: everybody who can reach its address can read and change all that it stores; listen at 127.0.0.1, or use a NATS server with users", "listen", listen)
		}
	}
	fmt.Fprintf(u.stderr, "broker %s, data in %s\n", where, u.data)
	return broker, nil
}

// footer shows the progress of s until stop, if the output is a terminal. stop erases it.
func (u *up) footer(ctx context.Context, s *ship.Ship) (stop func()) {
	if u.status == nil || !terminal.IsTerminal(u.stdout) || u.config.LogFormat != "text" || !u.log.Enabled(ctx, slog.LevelInfo) {
		return func() {}
	}
	viewed := func() (string, int) {
		v := u.viewer.viewed()
		return v.String(), v.events
	}
	f := &progress.Footer{Viewed: viewed, Summary: s.Summary, Status: u.status, Columns: messageColumns}
	return f.Start(ctx)
}

// shipAndPrint ships the logs and prints the events until everything is processed, or ctx ends. fail ends ctx.
func (u *up) shipAndPrint(ctx context.Context, nc *nats.Conn, fail context.CancelCauseFunc) (ship.Summary, error) {
	s, err := ship.New(nc, u.ship)
	if err != nil {
		return ship.Summary{}, err
	}
	u.health.watch(s)
	u.printRoots()
	defer u.footer(ctx, s)()
	pause := u.viewer.follow(ctx, fail)
	stopAnnouncing := u.announce(ctx, s)
	err = s.Run(ctx)
	if err == nil && u.ship.Once {
		err = u.catchUp(ctx)
	}
	stopAnnouncing()
	pause()
	if err == nil && u.samples && !u.once {
		err = u.serve(ctx, fail)
	}
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return s.Summary(), err
	case !errors.As(cause, new(signalError)):
		return s.Summary(), cause
	case u.once:
		return s.Summary(), ctx.Err() // interrupted
	default:
		return s.Summary(), nil
	}
}

// catchUp waits until all shipped records are printed, in the named generation or else the live one.
func (u *up) catchUp(ctx context.Context) error {
	top := u.config.topology()
	caughtUp := func(ctx context.Context) error { return replay.CatchUp(ctx, u.js, top) }
	if u.topology.Generation != "" {
		if err := caughtUp(ctx); err != nil {
			return err
		}
		return u.viewer.reach(ctx, top.Generation)
	}
	top.Generation, _ = u.viewer.live.Position()
	for {
		next, err := streams.WhileLive(ctx, u.js, top.Generation, func(ctx context.Context) error {
			if err := caughtUp(ctx); err != nil {
				return err
			}
			return u.viewer.reach(ctx, top.Generation)
		})
		if next == "" {
			return err
		}
		top.Generation = next
	}
}

// announce prints when the existing logs are processed and up follows them, unless stop is called first.
func (u *up) announce(ctx context.Context, s *ship.Ship) (stop func()) {
	if u.ship.Once {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var announcing sync.WaitGroup
	announcing.Go(func() {
		look := time.NewTicker(50 * time.Millisecond)
		defer look.Stop()
		for !s.Summary().Backfill.Over {
			select {
			case <-look.C:
			case <-ctx.Done():
				return
			}
		}
		switch err := u.catchUp(ctx); {
		case err == nil:
			u.viewer.printAll()
			fmt.Fprintf(u.stderr, "caught up, following: %v\n", u.viewer.viewed())
		case ctx.Err() == nil:
			u.log.WarnContext(ctx, "cannot find out whether the logs are processed", "error", err)
		}
	})
	return func() {
		cancel()
		announcing.Wait()
	}
}

// printRoots prints the folders that are searched for logs, and the agents that have none so far.
func (u *up) printRoots() {
	if len(u.ship.Paths) > 0 || u.samples {
		return
	}
	found := map[envelopes.Source]bool{}
	for _, r := range u.ship.Roots {
		if _, err := os.Stat(r.Dir); err == nil {
			found[r.Source] = true
			fmt.Fprintf(u.stderr, "shipping the logs of %s in %s\n", r.Source, r.Dir)
		}
	}
	var missing []string
	for _, r := range u.ship.Roots {
		if !found[r.Source] && !slices.Contains(missing, string(r.Source)) {
			missing = append(missing, string(r.Source))
		}
	}
	if len(missing) > 0 {
		fmt.Fprintf(u.stderr, "no folder yet, shipped as soon as there is one: %s\n", strings.Join(missing, ", "))
	}
}

// serve sums up the samples, then keeps the server and the stage running until ctx ends, for logs that the user
// ships.
func (u *up) serve(ctx context.Context, fail context.CancelCauseFunc) error {
	u.viewer.printAll()
	if err := u.viewer.sumUp(ctx); err != nil {
		return err
	}
	look := ""
	if u.console != "" {
		look = "; look at them at " + u.console
	}
	fmt.Fprintf(u.stderr, "\nall samples are processed%s; the server runs until Ctrl-C\n", look)
	pause := u.viewer.follow(ctx, fail)
	defer pause()
	<-ctx.Done()
	return nil
}

// nextCommands returns the commands that show more than up has printed.
func (u *up) nextCommands() string {
	data := ""
	if u.config.Data != "" {
		data = " --data " + u.config.Data
	}
	return "\nnext:\n" +
		"  tributary up --quiet" + data + "   # keeps the server running, with the console; then, in another terminal:\n" +
		"  tributary sessions ls --since 7d\n" +
		"  tributary stats --by day,model --since 28d\n"
}

// finish prints the summary, and returns the error of unprocessed records.
func (u *up) finish(ctx context.Context, shipped ship.Summary) error {
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the last events cannot be read from the broker within %v", patience))
	defer cancel()
	if err := u.viewer.sumUp(ctx); err != nil {
		return err
	}
	printShipped(u.stderr, shipped, false)
	if u.viewer.wasCut() {
		fmt.Fprint(u.stderr, u.nextCommands())
	}
	if n := u.viewer.viewed().letters; n > 0 {
		return partlyError(terminal.Plural(n, "record") + " could not be read")
	}
	return refusals(shipped)
}
