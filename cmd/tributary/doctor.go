package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
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
		Short: "Say how the stage stands, what is wrong, and the cure",
		Long: `Look at the broker, the streams, the workers and every partition of the
generation: who works on what, how many records are not done and since when. It
changes nothing. The exit code is 1 when something is wrong.`,
		Example: `  tributary doctor
  tributary doctor -o json | jq .partitions`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "pretty" && output != "json" {
				return usageError{fmt.Errorf("-o %q: write pretty or json", output)}
			}
			js, err := a.jetStream(cmd.Context())
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

// diagnosis is what the doctor says.
type diagnosis struct {
	Server     string `json:"server"` // name and version
	MaxPayload int64  `json:"max_payload"`
	pipeline.Status
	Problems []string `json:"problems"` // each with its cure
}

// examine looks at everything. The error is that nothing could be seen.
func (a *app) examine(ctx context.Context, js jetstream.JetStream) (*diagnosis, error) {
	nc := js.Conn()
	d := &diagnosis{Server: nc.ConnectedServerName() + " " + nc.ConnectedServerVersion(), MaxPayload: nc.MaxPayload(), Problems: []string{}}
	status, err := pipeline.ReadStatus(ctx, js, a.config.topology())
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrBucketNotFound):
		return nil, fmt.Errorf("%w: start a worker, which makes what is missing: tributary run", err)
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

// judge finds what is wrong.
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
			problem("several workers are called %s: give each a name of its own in TRIBUTARY_WORKER", w.Name)
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
		problem("nobody works on the partitions %s: if it stays so, look at the log of the workers", numbers(idle))
	}
}

// print writes the diagnosis for people.
func (d *diagnosis) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "broker\t%s, records up to %d bytes in one message\n", d.Server, d.MaxPayload)
	fmt.Fprintf(t, "generation\t%s, %d partitions\n", d.Generation, len(d.Partitions))
	for _, worker := range d.Workers {
		if worker.Silent(d.At) {
			fmt.Fprintf(t, "worker\t%s: silent for %v, taken for dead\n", worker.Name, d.age(worker.Seen))
			continue
		}
		var its []int
		for _, p := range d.Partitions {
			if p.Worker == worker.Name {
				its = append(its, p.Partition)
			}
		}
		fmt.Fprintf(t, "worker\t%s: partitions %s\n", worker.Name, numbers(its))
	}
	var lag uint64
	var oldest *time.Time
	for _, p := range d.Partitions {
		lag += p.Lag
		if p.Oldest != nil && (oldest == nil || p.Oldest.Before(*oldest)) {
			oldest = p.Oldest
		}
	}
	if oldest == nil {
		fmt.Fprintf(t, "lag\tnone: every record is done\n")
	} else {
		fmt.Fprintf(t, "lag\t%d records, the oldest stored %v ago\n", lag, d.age(*oldest))
	}
	if d.DeadLetters > 0 {
		fmt.Fprintf(t, "dead letters\t%d, settled ones too: tributary dlq ls shows those that are open\n", d.DeadLetters)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	behind := slices.DeleteFunc(slices.Clone(d.Partitions), func(p pipeline.PartitionStatus) bool { return p.Lag == 0 && p.Fault == "" })
	if len(behind) > 0 {
		fmt.Fprintf(w, "\n")
		t = tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintf(t, "PARTITION\tWORKER\tDONE UP TO\tLAG\tOLDEST\n")
		for _, p := range behind {
			age := ""
			if p.Oldest != nil {
				age = d.age(*p.Oldest).String()
			}
			fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%s\n", p.Partition, p.Worker, p.Raw, p.Lag, age)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for i, p := range d.Problems {
		if i == 0 {
			fmt.Fprintf(w, "\n")
		}
		fmt.Fprintf(w, "problem: %s\n", p)
	}
	return nil
}

// age is how long ago something was stored.
func (d *diagnosis) age(t time.Time) time.Duration { return d.At.Sub(t).Round(100 * time.Millisecond) }

// numbers are numbers in a row, ranges drawn together: 0-3 7.
func numbers(list []int) string {
	if len(list) == 0 {
		return "none"
	}
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if j == i {
			parts = append(parts, strconv.Itoa(list[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, " ")
}
