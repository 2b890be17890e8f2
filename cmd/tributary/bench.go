package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/normalizers/core"
	"tributary/pipeline/load"
	"tributary/pipeline/streams"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	server          string
	records, rounds int
	rates           []int
	seconds         int
	raw             string
	sync            bool
	parts           []string
	output          string
}

// benchParts are what bench measures, in this order.
var benchParts = []string{"throughput", "latency", "takeover"}

func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench [flags] [FOLDER]",
		Short: "Measure a worker against the floor of this machine",
		Long: `Measure a worker (tributary run) with the logs of a folder, or with generated records of
the kinds and sizes of real logs. The floor is a process that copies the same records
from stream to stream in batches, and does nothing else: absolute figures differ from
machine to machine, the ratio to the floor less so. Worker, floor and server are processes of
their own.

  throughput  the records are stored first; floor and worker then drain them in turn, in each
              round from the start of their process to the last record. The medians of the
              rounds, the CPU time of the process and of the server for 100,000 records, and
              their peak memory (both on Linux)
  latency     from the publication of a record to its first event at a consumer, at steady
              rates and with generated records of one agent, none of which waits for another
              record. The first tenth is left out
  takeover    one of two workers is killed while 200 records a second arrive: the longest
              time from the publication of a record to its event

The server has a temporary store and syncs it every two minutes, as nats-server does by
default; with --sync it syncs each commit, as that of tributary up does. --server names a
server of yours: bench needs an account of it without streams of tributary, and
removes its own at the end. Other work on the machine distorts all figures.`,
		Example: `  tributary bench
  tributary bench ~/logs --rounds 5
  tributary bench --parts throughput --raw referenced -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.bench(cmd.Context(), &f, strings.Join(args, ""))
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.server, "server", "s", "", "`url` of a server of yours, instead of one that is started")
	flags.IntVar(&f.records, "records", 0, "how many records: those of the folder are repeated as other sessions; default all of the folder, or 50000")
	flags.IntVar(&f.rounds, "rounds", 3, "how often floor and worker drain the records")
	flags.IntSliceVar(&f.rates, "rates", []int{200, 2000}, "records per second of the measurements of latency")
	flags.IntVar(&f.seconds, "seconds", 10, "how long records arrive in each measurement of latency, and of the takeover")
	flags.StringVar(&f.raw, "raw", string(streams.RawCarried), "carried or referenced: the setting raw of the events")
	flags.BoolVar(&f.sync, "sync", false, "the server that is started syncs each commit to the disk")
	flags.StringSliceVar(&f.parts, "parts", benchParts, "what to measure")
	completeFlag(cmd, "parts", benchParts)
	flags.StringVarP(&f.output, "output", "o", "table", "table or json")
	return cmd
}

// check checks the flags.
func (f *benchFlags) check() error {
	for _, p := range f.parts {
		if !slices.Contains(benchParts, p) {
			return usageError{fmt.Errorf("--parts %q: write some of %s", p, strings.Join(benchParts, ", "))}
		}
	}
	var settings streams.Settings
	switch {
	case f.records < 0, f.rounds < 1, f.seconds < 1, slices.ContainsFunc(f.rates, func(r int) bool { return r < 1 }):
		return usageError{errors.New("--records, --rounds, --rates and --seconds are numbers from 1 on")}
	case settings.Set("raw", f.raw) != nil:
		return usageError{fmt.Errorf("--raw %q: write carried or referenced", f.raw)}
	case f.sync && f.server != "":
		return usageError{errors.New("--sync is for the server that bench starts: set sync_interval in the configuration of yours")}
	}
	return checkOutput(f.output, "table", "json")
}

// bench measures what the flags ask for.
func (a *app) bench(ctx context.Context, f *benchFlags, folder string) (err error) {
	b := &bench{app: a, flags: f, report: benchReport{
		Version: version(), CPUs: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Raw: f.raw, Sync: f.sync,
	}}
	b.show("reads the records")
	if err := b.readRecords(folder); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tributary-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := b.connect(ctx, dir); err != nil {
		return err
	}
	defer func() {
		b.show("")
		err = errors.Join(err, b.close(context.WithoutCancel(ctx)))
	}()
	for _, part := range benchParts {
		if !slices.Contains(f.parts, part) {
			continue
		}
		if err := b.measure(ctx, part); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	b.show("")
	return b.report.write(a, f.output)
}

// bench is a run of the command.
type bench struct {
	*app
	flags   *benchFlags
	records []core.Record
	report  benchReport

	url    string
	server *benchProcess // nil for a server of the user
	js     jetstream.JetStream
	runs   int // generations so far
}

// show shows on a terminal what is being done.
func (b *bench) show(line string) {
	if b.status != nil {
		if line != "" {
			line = "bench " + line
		}
		b.status.Show(line)
	}
}

// defaultBenchRecords is how many records are generated.
const defaultBenchRecords = 50_000

// readRecords reads the records of the folder, or generates them.
func (b *bench) readRecords(folder string) error {
	var err error
	n := b.flags.records
	if folder == "" {
		if n == 0 {
			n = defaultBenchRecords
		}
		b.records, err = load.Mix(n, 0)
		b.report.Logs = "generated"
	} else {
		b.records, err = load.Folder(folder)
		b.report.Logs = folder
		if n > 0 && err == nil {
			b.records = load.Repeat(b.records, n)
		}
	}
	sessions := make(map[sessionKey]bool)
	for _, r := range b.records {
		sessions[sessionKey{r.Source, r.Session}] = true
		b.report.Bytes += int64(len(r.Data))
	}
	b.report.Records, b.report.Sessions = len(b.records), len(sessions)
	return err
}

// connect starts a server, or connects to that of the user, which must have none of the streams
// that bench makes.
func (b *bench) connect(ctx context.Context, dir string) error {
	b.url = b.flags.server
	var nc *nats.Conn
	var err error
	if b.url == "" {
		if b.server, b.url, err = startBenchServer(ctx, dir, b.flags.sync); err != nil {
			return err
		}
		nc, err = nats.Connect(b.url)
	} else {
		b.config.NATSURL, b.app.server = b.url, true
		nc, err = b.app.connect(ctx)
	}
	if err == nil {
		b.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(requestTimeout))
	}
	var names []string
	if err == nil {
		names, err = b.streams(ctx)
	}
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("the server has streams that bench would use: %s: name one, or an account, without them", strings.Join(names, ", "))
	}
	if err != nil {
		if nc != nil {
			nc.Close()
		}
		return errors.Join(err, b.server.stop())
	}
	b.report.Server = nc.ConnectedServerVersion()
	return nil
}

// streams returns the streams of the server that bench makes.
func (b *bench) streams(ctx context.Context) ([]string, error) {
	var names []string
	list := b.js.StreamNames(ctx)
	for name := range list.Name() {
		switch name {
		case load.FloorStream, streams.RawStream, streams.SessionsStream, "OBJ_" + streams.ClaimsBucket:
			names = append(names, name)
		default:
			if strings.HasPrefix(name, "KV_TRIBUTARY") || strings.HasPrefix(name, streams.EventsStream("")) || strings.HasPrefix(name, streams.RawStream+"_") {
				names = append(names, name)
			}
		}
	}
	return names, b.withCure(list.Err())
}

// reset removes the streams.
func (b *bench) reset(ctx context.Context) error {
	names, err := b.streams(ctx)
	for _, name := range names {
		err = errors.Join(err, b.js.DeleteStream(ctx, name))
	}
	return err
}

// close removes the streams and ends the server that bench has started.
func (b *bench) close(ctx context.Context) error {
	err := b.reset(ctx)
	b.js.Conn().Close()
	return errors.Join(err, b.server.stop())
}

// measure measures one part, with new streams.
func (b *bench) measure(ctx context.Context, part string) error {
	if err := b.reset(ctx); err != nil {
		return err
	}
	switch part {
	case "throughput":
		return b.throughput(ctx)
	case "latency":
		return b.latency(ctx)
	default:
		return b.takeover(ctx)
	}
}

// newGeneration makes a generation for the next worker.
func (b *bench) newGeneration(ctx context.Context) (streams.Topology, error) {
	b.runs++
	top := b.config.topology()
	if top.Cells > 1 {
		return top, usageError{errors.New("bench measures one cell: unset TRIBUTARY_CELLS")}
	}
	top.Generation, top.Settings.Raw = fmt.Sprintf("bench-%d", b.runs), streams.RawMode(b.flags.raw)
	return top, streams.Provision(ctx, b.js, top)
}
