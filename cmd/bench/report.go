package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"tributary/cmd/internal/terminal"
)

// report has the measurements in the form of -o json.
type report struct {
	Version  string `json:"version"`
	System   string `json:"system"`
	CPUs     int    `json:"cpus"`
	Server   string `json:"server"` // its version
	Sync     bool   `json:"sync"`   // the started server syncs each commit
	Raw      string `json:"raw"`    // the setting
	Logs     string `json:"logs"`   // the folder, or generated
	Records  int    `json:"records"`
	Bytes    int64  `json:"bytes"`
	Sessions int    `json:"sessions"`

	Floor   *drain    `json:"floor,omitzero"`  // medians of the rounds
	Worker  *drain    `json:"worker,omitzero"` // medians of the rounds
	Ratio   float64   `json:"ratio,omitzero"`  // median of the ratios of the rounds
	Rounds  []round   `json:"rounds,omitempty"`
	Latency []latency `json:"latency,omitempty"`

	Takeover float64 `json:"takeover_seconds,omitzero"`
}

// drain has the figures of a process that drained the records.
type drain struct {
	Seconds         float64 `json:"seconds"`
	Rate            float64 `json:"records_per_second"`
	MB              float64 `json:"mb_per_second"` // 10^6 bytes of records
	CPU             float64 `json:"cpu_seconds_per_100k"`
	ServerCPU       float64 `json:"server_cpu_seconds_per_100k,omitzero"` // of the server that bench started
	PeakBytes       int64   `json:"peak_bytes,omitzero"`                  // resident memory
	ServerPeakBytes int64   `json:"server_peak_bytes,omitzero"`           // since its start
}

// round is one round.
type round struct {
	Floor  drain   `json:"floor"`
	Worker drain   `json:"worker"`
	Ratio  float64 `json:"ratio"` // of the rates
}

// latency has the latencies at a rate.
type latency struct {
	Rate   int       `json:"rate"`
	Floor  quantiles `json:"floor"`
	Worker quantiles `json:"worker"`
}

// quantiles are quantiles of durations, in milliseconds.
type quantiles struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// quantilesOf sorts durations in place; there must be at least one.
func quantilesOf(all []time.Duration) quantiles {
	slices.Sort(all)
	at := func(q float64) float64 { return all[int(q*float64(len(all)-1))].Seconds() * 1000 }
	return quantiles{at(0.5), at(0.99)}
}

// sumUp computes the medians of the rounds.
func (r *report) sumUp() {
	median := func(value func(*round) float64) float64 {
		values := make([]float64, len(r.Rounds))
		for i := range r.Rounds {
			values[i] = value(&r.Rounds[i])
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	of := func(part func(*round) *drain) *drain {
		get := func(value func(*drain) float64) float64 {
			return median(func(r *round) float64 { return value(part(r)) })
		}
		return &drain{
			Seconds: get(func(d *drain) float64 { return d.Seconds }), Rate: get(func(d *drain) float64 { return d.Rate }),
			MB: get(func(d *drain) float64 { return d.MB }), CPU: get(func(d *drain) float64 { return d.CPU }),
			ServerCPU:       get(func(d *drain) float64 { return d.ServerCPU }),
			PeakBytes:       int64(get(func(d *drain) float64 { return float64(d.PeakBytes) })),
			ServerPeakBytes: int64(get(func(d *drain) float64 { return float64(d.ServerPeakBytes) })),
		}
	}
	r.Floor = of(func(r *round) *drain { return &r.Floor })
	r.Worker = of(func(r *round) *drain { return &r.Worker })
	r.Ratio = median(func(r *round) float64 { return r.Ratio })
}

// write prints the report.
func (r *report) write(w io.Writer, output string) error {
	if output == "json" {
		return terminal.WriteJSON(w, r)
	}
	where := "the server syncs its streams every two minutes"
	if r.Sync {
		where = "the server syncs each commit"
	}
	fmt.Fprintf(w, "tributary %s, nats-server %s, %s, %s; %s\n", r.Version, r.Server, r.System, terminal.Plural(r.CPUs, "processor"), where)
	fmt.Fprintf(w, "%s of %s, %s (%s), raw %s\n", terminal.Plural(r.Records, "record"), terminal.Plural(r.Sessions, "session"), terminal.Size(r.Bytes), terminal.OneLine(r.Logs), r.Raw)
	t := terminal.Table{Columns: []terminal.Column{{Head: ""}, {Head: "FLOOR", Right: true}, {Head: "WORKER", Right: true}, {Head: "RATIO", Right: true}}}
	row := func(what, format string, floor, worker float64) {
		if floor > 0 {
			t.Rows = append(t.Rows, []string{what, fmt.Sprintf(format, floor), fmt.Sprintf(format, worker), fmt.Sprintf("%.2f", worker/floor)})
		}
	}
	if f, worker := r.Floor, r.Worker; f != nil {
		t.Rows = append(t.Rows, []string{"records/s", terminal.Thousands(int64(f.Rate)), terminal.Thousands(int64(worker.Rate)), fmt.Sprintf("%.2f", r.Ratio)})
		row("MB/s", "%.1f", f.MB, worker.MB)
		row("CPU s/100,000 records, process", "%.2f", f.CPU, worker.CPU)
		row("CPU s/100,000 records, server", "%.2f", f.ServerCPU, worker.ServerCPU)
		row("peak memory MiB, process", "%.0f", float64(f.PeakBytes)/(1<<20), float64(worker.PeakBytes)/(1<<20))
	}
	for _, l := range r.Latency {
		at := fmt.Sprintf("ms at %s records/s", terminal.Thousands(int64(l.Rate)))
		row("p50 "+at, "%.1f", l.Floor.P50, l.Worker.P50)
		row("p99 "+at, "%.1f", l.Floor.P99, l.Worker.P99)
	}
	if r.Takeover > 0 {
		t.Rows = append(t.Rows, []string{"takeover s", "", fmt.Sprintf("%.1f", r.Takeover), ""})
	}
	return t.Write(w, terminal.TableWidth(w))
}
