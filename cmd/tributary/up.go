package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/lockedfile"
	"github.com/spf13/cobra"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline"
	"tributary/pipeline/ship"
)

func (a *app) upCommand() *cobra.Command {
	var useSamples, once bool
	cmd := &cobra.Command{
		Use:   "up [flags] [PATH...]",
		Short: "Run everything in one process, and watch",
		Long: `Start a JetStream server on disk, turn raw records into events, and ship the
files and folders that are named, the logs of the agents on this machine, or
the built-in samples. Events are shown as they come; at the end there is a
summary of each session.

The data folder keeps everything between two runs. Samples get a temporary one,
which is removed at the end, unless --data names one.`,
		Example: `  tributary up --samples                   try it
  tributary up                             follow the agents of this machine
  tributary up --once old/session.jsonl    process one log, show it, stop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if useSamples && len(args) > 0 {
				return usageError{errors.New("either --samples or paths")}
			}
			u := &up{app: a, once: once, samples: useSamples, printer: a.newPrinter()}
			u.ship = ship.Config{Paths: args, Once: once || useSamples, Logger: a.log}
			cleanup, err := u.place(cmd.Flags().Changed("data"))
			if err != nil {
				return err
			}
			return errors.Join(u.run(cmd.Context()), cleanup())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&useSamples, "samples", false, "ship the built-in samples instead of real logs")
	flags.BoolVar(&once, "once", false, "stop when everything that is there is processed")
	flags.StringVar(&a.config.Data, "data", a.config.Data, "folder for the streams (TRIBUTARY_DATA)")
	flags.StringVar(&a.config.Listen, "listen", a.config.Listen, `address of the server, which asks for no password, "" for none (TRIBUTARY_LISTEN)`)
	return cmd
}

// up is everything in one process.
type up struct {
	*app
	once, samples bool
	ship          ship.Config
	data          string // folder of the server
	printer       *printer

	js      jetstream.JetStream
	shown   pipeline.Event     // the last one that was shown, or where to begin
	told    uint64             // position up to which the summary was shown
	known   map[sessionKey]int // dead letters that are in the summary, or were there before
	summary summary
}

// place finds the folders to work with: what to ship, and where to keep the streams. The
// caller calls cleanup at the end.
func (u *up) place(dataGiven bool) (cleanup func() error, err error) {
	cleanup = func() error { return nil }
	if u.samples {
		dir, err := os.MkdirTemp("", "tributary-samples-")
		if err != nil {
			return cleanup, err
		}
		cleanup = func() error { return os.RemoveAll(dir) }
		logs := filepath.Join(dir, "logs")
		if u.ship.Roots, err = copySamples(logs); err != nil {
			return cleanup, errors.Join(err, cleanup())
		}
		u.ship.Parallel = 1 // the same order every time
		u.data = filepath.Join(dir, "data")
	} else if u.ship.Roots, err = u.config.roots(); err != nil {
		return cleanup, err
	}
	if !u.samples || dataGiven {
		if u.data, err = u.config.dataDir(); err != nil {
			return cleanup, err
		}
	}
	u.ship.Offsets = filepath.Join(u.data, "offsets.json")
	return cleanup, nil
}

// copySamples writes the samples of all vendors as files, for ship follows files, and returns
// the roots that they lie in.
func copySamples(dir string) ([]ship.Root, error) {
	folders := make(map[string]string) // of a vendor's samples, by the variable that names its folder
	var homeless []ship.Root
	for _, v := range normalizers.Vendors() {
		logs, err := fs.Sub(v.Samples, "samples")
		if err != nil {
			return nil, err
		}
		folder := filepath.Join(dir, string(v.Source))
		if err := os.CopyFS(folder, logs); err != nil {
			return nil, err
		}
		folders[v.Logs.Env] = folder
		if len(v.Logs.Folders) == 0 {
			homeless = append(homeless, ship.Root{Source: v.Source, Dir: folder})
		}
	}
	return append(ship.Roots(dir, func(name string) string { return folders[name] }), homeless...), nil
}

// run starts the parts, sinks first, and stops them in the other order.
func (u *up) run(ctx context.Context) error {
	telemetry, err := newTelemetry(ctx, u.config)
	if err != nil {
		return err
	}
	defer u.shutdown(ctx, telemetry)
	u.ship.Tracer = telemetry.tracer()
	unlock, err := lock(u.data)
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
	nc, err := nats.Connect("", nats.InProcessServer(broker), nats.Name("tributary up"))
	if err != nil {
		return err
	}
	defer nc.Close()
	if u.js, err = jetstream.New(nc); err != nil {
		return err
	}
	if err := pipeline.Provision(ctx, u.js, u.config.topology()); err != nil {
		return err
	}
	if u.shown.Stored, err = u.now(ctx, u.js); err != nil {
		return err
	}
	if u.known, err = u.deadLetters(ctx); err != nil {
		return err
	}

	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var stage sync.WaitGroup
	working, stopStage := context.WithCancel(ctx)
	defer stopStage()
	stage.Go(func() {
		if err := u.work(working, u.js, telemetry, "up"); err != nil {
			fail(err)
		}
	})
	shipped, err := u.feed(ctx, nc, fail)
	stopStage()
	stage.Wait()
	if err != nil {
		return err
	}
	return u.finish(context.WithoutCancel(ctx), shipped)
}

// startBroker starts the server, if nobody else has its address.
func (u *up) startBroker(ctx context.Context) (*server.Server, error) {
	listen := u.config.Listen
	if listen != "" {
		probe, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
		if err != nil {
			return nil, fmt.Errorf("cannot listen on %s: stop what listens there, or pass --listen 127.0.0.1:0 for any free port, or --listen \"\" for none: %w", listen, err)
		}
		if err := probe.Close(); err != nil {
			return nil, err
		}
	}
	broker, err := pipeline.StartServer(pipeline.ServerConfig{StoreDir: u.data, Listen: listen, Logger: u.log})
	if err != nil {
		return nil, err
	}
	where := "for this process alone"
	if listen != "" {
		where = "at " + broker.ClientURL()
	}
	fmt.Fprintf(u.stderr, "broker %s, data in %s\n", where, u.data)
	return broker, nil
}

// feed ships and shows until everything is processed, or ctx ends. fail stops all parts.
func (u *up) feed(ctx context.Context, nc *nats.Conn, fail context.CancelCauseFunc) (ship.Summary, error) {
	s, err := ship.New(nc, u.ship)
	if err != nil {
		return ship.Summary{}, err
	}
	if len(u.ship.Paths) == 0 && !u.samples {
		for _, r := range u.ship.Roots {
			note := ""
			if _, err := os.Stat(r.Dir); err != nil {
				note = " (nothing there yet)"
			}
			fmt.Fprintf(u.stderr, "shipping the logs of %s in %s%s\n", r.Source, r.Dir, note)
		}
	}
	pause := u.follow(ctx, fail)
	defer func() { pause() }()

	err = s.Run(ctx)
	if err == nil && u.ship.Once {
		err = pipeline.CatchUp(ctx, u.js, u.config.topology())
	}
	if err == nil && u.samples && !u.once {
		pause()
		if err := u.sumUp(ctx); err != nil {
			return s.Summary(), err
		}
		fmt.Fprintln(u.stderr, "\nall samples are processed; the server goes on until Ctrl-C")
		pause = u.follow(ctx, fail) // whoever tries it may ship more
		<-ctx.Done()
	}
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return s.Summary(), err
	case !errors.As(cause, new(signalError)):
		return s.Summary(), cause
	case u.once:
		return s.Summary(), ctx.Err() // stopped in the middle
	default:
		return s.Summary(), nil
	}
}

// follow shows events as they come, until pause, which waits for the last one.
func (u *up) follow(ctx context.Context, fail context.CancelCauseFunc) (pause func()) {
	ctx, cancel := context.WithCancel(ctx)
	var showing sync.WaitGroup
	showing.Go(func() {
		if err := u.show(ctx, true); err != nil {
			fail(err)
		}
	})
	return func() {
		cancel()
		showing.Wait()
	}
}

// show shows the events after the last one that was shown.
func (u *up) show(ctx context.Context, follow bool) error {
	q := pipeline.EventsQuery{Since: u.shown.Stored, Follow: follow}
	for e, err := range pipeline.Events(ctx, u.js, u.config.Generation, q) {
		if err != nil {
			return err
		}
		if e.Position <= u.shown.Position {
			continue
		}
		u.shown = e
		u.summary.event(&e.AgentEventV1)
		if err := u.printer.event(&e.AgentEventV1); err != nil {
			return err
		}
	}
	return nil
}

// sumUp shows what has come and was not shown, and what it all adds up to, if that was not
// told before.
func (u *up) sumUp(ctx context.Context) error {
	if err := u.show(ctx, false); err != nil {
		return err
	}
	now, err := u.deadLetters(ctx)
	if err != nil {
		return err
	}
	unread := u.summary.unread()
	for session, n := range now {
		u.summary.deadLetters(session, n-u.known[session])
	}
	u.known = now
	if u.shown.Position != u.told || u.summary.unread() != unread {
		u.summary.write(u.stdout)
	}
	u.told = u.shown.Position
	return nil
}

// finish tells what became of everything.
func (u *up) finish(ctx context.Context, shipped ship.Summary) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := u.sumUp(ctx); err != nil {
		return err
	}
	printShipped(u.stderr, shipped, false)
	if n := u.summary.unread(); n > 0 {
		return partlyError(plural(n, "record") + " could not be read")
	}
	return refusals(shipped)
}

// deadLetters counts the dead letters of each session. A session whose id is too long for
// a subject is named by its token.
func (u *up) deadLetters(ctx context.Context) (map[sessionKey]int, error) {
	stream, err := u.js.Stream(ctx, pipeline.EventsStream(u.config.Generation))
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(envelopes.DeadLetterFilter(u.config.Generation, "", "")))
	if err != nil {
		return nil, err
	}
	count := map[sessionKey]int{}
	for subject, n := range info.State.Subjects {
		address, err := envelopes.ParseDeadLetterSubject(subject)
		if err != nil {
			return nil, err
		}
		session, whole, err := envelopes.ParseToken(address.Token)
		if err != nil || !whole {
			session = address.Token
		}
		count[sessionKey{address.Source, session}] += int(n)
	}
	return count, nil
}

// lock makes sure that one process alone uses a data folder. The folder is made when it
// is not there.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: pass another one with --data: %w", err)
	}
	type result struct {
		file *lockedfile.File
		err  error
	}
	got := make(chan result, 1)
	go func() { // waits for the lock as long as another has it; ends with the process
		f, err := lockedfile.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
		got <- result{f, err}
	}()
	select {
	case r := <-got:
		if r.err != nil {
			return nil, fmt.Errorf("data folder: pass another one with --data: %w", r.err)
		}
		return func() { r.file.Close() }, nil
	case <-time.After(time.Second):
		return nil, fmt.Errorf("%s is in use by another tributary up: stop that one, or pass another folder with --data", dir)
	}
}
