package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/pipeline"
)

func (a *app) doctorCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Show progress, problems and their cures",
		Long: `Inspect the broker, the streams, the workers and every partition of the generation:
which worker owns which partitions, how many records are not processed yet, and
how old they are. The command changes nothing. The exit code is 1 if there is a
problem.`,
		Example: `  tributary doctor
  tributary doctor -o json | jq .partitions`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "pretty", "json"); err != nil {
				return err
			}
			js, err := a.jetStreamLive(cmd.Context())
			if err != nil {
				return err
			}
			defer js.Conn().Close()
			d, err := a.examine(cmd.Context(), js)
			if err != nil {
				return err
			}
			if output == "json" {
				err = json.MarshalWrite(a.stdout, d, jsontext.Multiline(false))
				fmt.Fprintln(a.stdout)
			} else {
				err = d.print(safeWriter{a.stdout, printable})
			}
			if err == nil && len(d.Problems) > 0 {
				err = errors.New(plural(len(d.Problems), "problem"))
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "pretty", "pretty or json")
	a.serverFlag(cmd)
	return cmd
}

// diagnosis is the result of the command.
type diagnosis struct {
	Server     string `json:"server"` // name and version
	MaxPayload int64  `json:"max_payload"`
	pipeline.Status
	Problems []string `json:"problems"` // each with its cure
}

// examine inspects the broker. It fails if the broker shows nothing.
func (a *app) examine(ctx context.Context, js jetstream.JetStream) (*diagnosis, error) {
	nc := js.Conn()
	d := &diagnosis{Server: nc.ConnectedServerName() + " " + nc.ConnectedServerVersion(), MaxPayload: nc.MaxPayload(), Problems: []string{}}
	status, err := pipeline.ReadStatus(ctx, js, a.config.topology())
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrBucketNotFound):
		return nil, fmt.Errorf("%w: start a worker, which creates what is missing: tributary run", err)
	case err != nil:
		return nil, err
	}
	d.Status = status
	if err := pipeline.CheckPayload(nc); err != nil {
		d.Problems = append(d.Problems, err.Error())
	}
	d.judge()
	return d, nil
}

// judge finds the problems.
func (d *diagnosis) judge() {
	problem := func(format string, args ...any) { d.Problems = append(d.Problems, fmt.Sprintf(format, args...)) }
	alive := slices.ContainsFunc(d.Workers, func(w pipeline.Worker) bool { return !w.Silent(d.At) })
	if !alive {
		problem("no worker is alive: start one with tributary run")
	}
	names := make(map[string]int)
	for _, w := range d.Workers {
		if w.Silent(d.At) {
			continue
		}
		if names[w.Name]++; names[w.Name] == 2 {
			problem("several workers have the name %s: give each a name of its own in TRIBUTARY_WORKER", w.Name)
		}
	}
	var idle []int
	for _, p := range d.Partitions {
		switch {
		case p.Fault != "":
			problem("partition %d has stopped: %s", p.Partition, p.Fault)
		case p.Worker == "" && alive:
			idle = append(idle, p.Partition)
		}
		if p.Suspect() {
			problem("partition %d: the record after %d may have ended %d workers; it becomes a dead letter by itself", p.Partition, p.Raw, p.Tries)
		}
	}
	if len(idle) > 0 {
		problem("no worker owns the partitions %s: if it remains so, see the log of the workers", numbers(idle))
	}
}

// print writes the diagnosis for people.
func (d *diagnosis) print(w io.Writer) error {
	if err := d.printOverview(w); err != nil {
		return err
	}
	if err := d.printPartitions(w); err != nil {
		return err
	}
	for i, p := range d.Problems {
		if i == 0 {
			fmt.Fprintf(w, "\n")
		}
		fmt.Fprintf(w, "problem: %s\n", p)
	}
	return nil
}

// printOverview writes the broker, the workers and the sums over all partitions.
func (d *diagnosis) printOverview(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "broker\t%s, records up to %d bytes in one message\n", d.Server, d.MaxPayload)
	fmt.Fprintf(t, "generation\t%s, %d partitions\n", d.Generation, len(d.Partitions))
	for _, worker := range d.Workers {
		if worker.Silent(d.At) {
			fmt.Fprintf(t, "worker\t%s: no heartbeat for %v, considered dead\n", worker.Name, d.age(worker.Seen))
			continue
		}
		var owned []int
		for _, p := range d.Partitions {
			if p.Worker == worker.Name {
				owned = append(owned, p.Partition)
			}
		}
		fmt.Fprintf(t, "worker\t%s: partitions %s\n", worker.Name, numbers(owned))
	}
	if lag, oldest := d.lag(); oldest == nil {
		fmt.Fprintf(t, "lag\tnone: every record is done\n")
	} else {
		fmt.Fprintf(t, "lag\t%d records, the oldest stored %v ago\n", lag, d.age(*oldest))
	}
	if d.DeadLetters > 0 {
		fmt.Fprintf(t, "dead letters\t%d, including settled ones: tributary dlq ls lists the open ones\n", d.DeadLetters)
	}
	return t.Flush()
}

// lag returns the number of the records that are not processed, and when the oldest was stored.
func (d *diagnosis) lag() (lag uint64, oldest *time.Time) {
	for _, p := range d.Partitions {
		lag += p.Lag
		if p.Oldest != nil && (oldest == nil || p.Oldest.Before(*oldest)) {
			oldest = p.Oldest
		}
	}
	return lag, oldest
}

// printPartitions writes the partitions that have records to process, or have stopped.
func (d *diagnosis) printPartitions(w io.Writer) error {
	behind := slices.DeleteFunc(slices.Clone(d.Partitions), func(p pipeline.PartitionStatus) bool { return p.Lag == 0 && p.Fault == "" })
	if len(behind) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\n")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "PARTITION\tWORKER\tDONE UP TO\tLAG\tOLDEST\n")
	for _, p := range behind {
		age := ""
		if p.Oldest != nil {
			age = d.age(*p.Oldest).String()
		}
		fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%s\n", p.Partition, p.Worker, p.Raw, p.Lag, age)
	}
	return t.Flush()
}

// age is the time since t.
func (d *diagnosis) age(t time.Time) time.Duration { return d.At.Sub(t).Round(100 * time.Millisecond) }
