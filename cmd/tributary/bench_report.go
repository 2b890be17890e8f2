package main

import (
	"fmt"
	"slices"
	"time"

	"tributary/cmd/internal/terminal"
)

// benchReport is what bench has measured, as -o json prints it.
type benchReport struct {
	Version  string `json:"version"`
	System   string `json:"system"`
	CPUs     int    `json:"cpus"`
	Server   string `json:"server"` // its version
	Sync     bool   `json:"sync"`   // the server that bench has started syncs each commit
	Raw      string `json:"raw"`    // the setting
	Logs     string `json:"logs"`   // the folder, or generated
	Records  int    `json:"records"`
	Bytes    int64  `json:"bytes"`
	Sessions int    `json:"sessions"`

	Floor   *benchDrain    `json:"floor,omitzero"`  // medians of the rounds
	Worker  *benchDrain    `json:"worker,omitzero"` // medians of the rounds
	Ratio   float64        `json:"ratio,omitzero"`  // median of those of the rounds
	Rounds  []benchRound   `json:"rounds,omitempty"`
	Latency []benchLatency `json:"latency,omitempty"`

	Takeover float64 `json:"takeover_seconds,omitzero"`
}

// benchDrain has the figures of a process that has drained the records.
type benchDrain struct {
	Seconds         float64 `json:"seconds"`
	Rate            float64 `json:"records_per_second"`
	MB              float64 `json:"mb_per_second"` // 10^6 bytes of records
	CPU             float64 `json:"cpu_seconds_per_100k"`
	ServerCPU       float64 `json:"server_cpu_seconds_per_100k,omitzero"` // of the server that bench has started
	PeakBytes       int64   `json:"peak_bytes,omitzero"`                  // resident memory
	ServerPeakBytes int64   `json:"server_peak_bytes,omitzero"`           // since its start
}

// benchRound is one round.
type benchRound struct {
	Floor  benchDrain `json:"floor"`
	Worker benchDrain `json:"worker"`
	Ratio  float64    `json:"ratio"` // of the rates
}

// benchLatency has the latencies at a rate.
type benchLatency struct {
	Rate   int       `json:"rate"`
	Floor  quantiles `json:"floor"`
	Worker quantiles `json:"worker"`
}

// quantiles are those of durations, in milliseconds.
type quantiles struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// quantilesOf sorts durations, of which there is one at least.
func quantilesOf(all []time.Duration) quantiles {
	slices.Sort(all)
	at := func(q float64) float64 { return all[int(q*float64(len(all)-1))].Seconds() * 1000 }
	return quantiles{at(0.5), at(0.99)}
}

// sumUp computes the medians of the rounds.
func (r *benchReport) sumUp() {
	median := func(value func(*benchRound) float64) float64 {
		values := make([]float64, len(r.Rounds))
		for i := range r.Rounds {
			values[i] = value(&r.Rounds[i])
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	of := func(part func(*benchRound) *benchDrain) *benchDrain {
		get := func(value func(*benchDrain) float64) float64 {
			return median(func(r *benchRound) float64 { return value(part(r)) })
		}
		return &benchDrain{
			Seconds: get(func(d *benchDrain) float64 { return d.Seconds }), Rate: get(func(d *benchDrain) float64 { return d.Rate }),
			MB: get(func(d *benchDrain) float64 { return d.MB }), CPU: get(func(d *benchDrain) float64 { return d.CPU }),
			ServerCPU:       get(func(d *benchDrain) float64 { return d.ServerCPU }),
			PeakBytes:       int64(get(func(d *benchDrain) float64 { return float64(d.PeakBytes) })),
			ServerPeakBytes: int64(get(func(d *benchDrain) float64 { return float64(d.ServerPeakBytes) })),
		}
	}
	r.Floor = of(func(r *benchRound) *benchDrain { return &r.Floor })
	r.Worker = of(func(r *benchRound) *benchDrain { return &r.Worker })
	r.Ratio = median(func(r *benchRound) float64 { return r.Ratio })
}

// write prints the report.
func (r *benchReport) write(a *app, output string) error {
	if output == "json" {
		return terminal.WriteJSON(a.stdout, r)
	}
	where := "the server syncs its streams every two minutes"
	if r.Sync {
		where = "the server syncs each commit"
	}
	fmt.Fprintf(a.stdout, "tributary %s, nats-server %s, %s, %s; %s\n", r.Version, r.Server, r.System, terminal.Plural(r.CPUs, "processor"), where)
	fmt.Fprintf(a.stdout, "%s of %s, %s (%s), raw %s\n", terminal.Plural(r.Records, "record"), terminal.Plural(r.Sessions, "session"), terminal.Size(r.Bytes), terminal.OneLine(r.Logs), r.Raw)
	t := terminal.Table{Columns: []terminal.Column{{Head: ""}, {Head: "FLOOR", Right: true}, {Head: "WORKER", Right: true}, {Head: "RATIO", Right: true}}}
	row := func(what, format string, floor, worker float64) {
		if floor > 0 {
			t.Rows = append(t.Rows, []string{what, fmt.Sprintf(format, floor), fmt.Sprintf(format, worker), fmt.Sprintf("%.2f", worker/floor)})
		}
	}
	if f, w := r.Floor, r.Worker; f != nil {
		t.Rows = append(t.Rows, []string{"records/s", terminal.Thousands(int64(f.Rate)), terminal.Thousands(int64(w.Rate)), fmt.Sprintf("%.2f", r.Ratio)})
		row("MB/s", "%.1f", f.MB, w.MB)
		row("CPU s/100,000 records, process", "%.2f", f.CPU, w.CPU)
		row("CPU s/100,000 records, server", "%.2f", f.ServerCPU, w.ServerCPU)
		row("peak memory MiB, process", "%.0f", float64(f.PeakBytes)/(1<<20), float64(w.PeakBytes)/(1<<20))
	}
	for _, l := range r.Latency {
		at := fmt.Sprintf("ms at %s records/s", terminal.Thousands(int64(l.Rate)))
		row("p50 "+at, "%.1f", l.Floor.P50, l.Worker.P50)
		row("p99 "+at, "%.1f", l.Floor.P99, l.Worker.P99)
	}
	if r.Takeover > 0 {
		t.Rows = append(t.Rows, []string{"takeover s", "", fmt.Sprintf("%.1f", r.Takeover), ""})
	}
	return t.Write(a.stdout, terminal.TableWidth(a.stdout))
}
