// Bench measures a worker (tributary run) against the floor of a machine: a process that only copies the same
// records. It runs the installed program tributary, and is therefore a separate command.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/streams"
)

func main() { os.Exit(run(os.Args[1:])) }

// run runs the program and returns the exit code: 0 done, 1 failure, 2 wrong arguments.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	started := false
	root := command(&started)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(terminal.Safe(os.Stderr), "bench: %v\n", err)
	if !started {
		return 2
	}
	return 1
}

// flags are the flags of the command.
type flags struct {
	program         string
	server, creds   string
	records, rounds int
	rates           []int
	seconds         int
	raw             string
	sync            bool
	parts           []string
	output          string
}

// parts are the measurements, in their order.
var parts = []string{"throughput", "latency", "takeover"}

// command returns the command. It sets started once the arguments are valid.
func command(started *bool) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "bench [flags] [FOLDER]",
		Short: "Measure a worker against the floor of this machine",
		Long: `Measure a worker (tributary run) with the logs of a folder, or with generated records of
the kinds and sizes of real logs. The floor is a process that copies the same records
from stream to stream in batches, and does nothing else: absolute figures differ from
machine to machine, the ratio to the floor less so. Worker, floor and server are
processes of their own.

  throughput  the records are stored first; floor and worker then drain them in turn, in
              each round from the start of their process to the last record. The medians
              of the rounds, the CPU time of the process and of the server for 100,000
              records, and their peak memory (both on Linux)
  latency     from the publication of a record to its first event at a consumer, at
              steady rates and with generated records of one agent, none of which waits
              for another record. The first tenth is left out
  takeover    one of two workers is killed while 200 records a second arrive: the longest
              time from the publication of a record to its event

The worker is the program tributary in the folder of bench, else in the PATH, with the
settings of the environment; --program names another. The server has a temporary store
and syncs it every two minutes, as nats-server does by default; with --sync it syncs each
commit, like tributary up. --server names a server of yours: bench needs an
account of it without streams of tributary, and removes its own at the end. Other work on
the machine distorts all figures.`,
		Example: `  bench
  bench ~/logs --rounds 5
  bench --parts throughput --raw referenced -o json`,
		Args:              cobra.MaximumNArgs(1),
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		SilenceErrors:     true,
		SilenceUsage:      true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			*started = true
			return measure(cmd.Context(), &f, strings.Join(args, ""))
		},
	}
	set := cmd.Flags()
	set.StringVar(&f.program, "program", "", "the `file` of tributary; default the one in the folder of bench, else in the PATH")
	set.StringVarP(&f.server, "server", "s", "", "`url` of a server of yours; default a new one")
	set.StringVar(&f.creds, "creds", "", "`file` with the JWT and seed of the user of --server")
	set.IntVar(&f.records, "records", 0, "how many records: those of the folder are repeated as other sessions; default all of the folder, or 50000")
	set.IntVar(&f.rounds, "rounds", 3, "how often floor and worker drain the records")
	set.IntSliceVar(&f.rates, "rates", []int{200, 2000}, "records per second of the measurements of latency")
	set.IntVar(&f.seconds, "seconds", 10, "how long records arrive in each measurement of latency, and of the takeover")
	set.StringVar(&f.raw, "raw", string(streams.RawCarried), "carried or referenced: the setting raw of the events")
	set.BoolVar(&f.sync, "sync", false, "the started server syncs each commit to the disk")
	set.StringSliceVar(&f.parts, "parts", parts, "what to measure")
	set.StringVarP(&f.output, "output", "o", "table", "table or json")
	cmd.AddCommand(serverCommand(started), floorCommand(started))
	return cmd
}

// check checks the flags.
func (f *flags) check() error {
	for _, p := range f.parts {
		if !slices.Contains(parts, p) {
			return fmt.Errorf("--parts %q: write some of %s", p, strings.Join(parts, ", "))
		}
	}
	var settings streams.Settings
	switch {
	case f.records < 0, f.rounds < 1, f.seconds < 1, slices.ContainsFunc(f.rates, func(r int) bool { return r < 1 }):
		return errors.New("--records, --rounds, --rates and --seconds are numbers from 1 on")
	case settings.Set("raw", f.raw) != nil:
		return fmt.Errorf("--raw %q: write carried or referenced", f.raw)
	case f.sync && f.server != "":
		return errors.New("--sync is for the server that bench starts: set sync_interval in the configuration of yours")
	case f.creds != "" && f.server == "":
		return errors.New("--creds is for a server of yours: name it with --server")
	case f.output != "table" && f.output != "json":
		return fmt.Errorf("-o %q: write table or json", f.output)
	}
	return f.findProgram()
}

// findProgram finds the program tributary unless the flag names it.
func (f *flags) findProgram() error {
	if f.program != "" {
		return nil
	}
	name := "tributary"
	if self, err := os.Executable(); err == nil {
		name = filepath.Join(filepath.Dir(self), name)
	}
	for _, name := range []string{name, "tributary"} {
		var err error
		if f.program, err = exec.LookPath(name); err == nil {
			return nil
		}
	}
	return errors.New("tributary is neither in the folder of bench nor in the PATH: go build ./cmd/tributary, and name the program with --program")
}
