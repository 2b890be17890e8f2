package console

import (
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"tributary/cmd/internal/console/calls"
	"tributary/cmd/internal/drift"
	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
)

// Limits of the view of tools. It reads calls from the newest events on.
const (
	maxTools     = 200
	mostOfCalls  = 25               // of each list
	callsAtFirst = 2 * time.Second  // of reading calls
	callsLonger  = 20 * time.Second // the same, if a person asks for more
)

// toolFigures are the figures of a tool, and the heads of their columns.
var toolFigures = []struct{ name, label string }{
	{"calls", "Calls"},
	{"failures", "Failed"},
	{"error_rate", "Failure rate"},
	{"latency_p50_ms", "p50"},
	{"latency_p95_ms", "p95"},
	{"measured_p50_ms", "Measured p50"},
	{"measured_p95_ms", "Measured p95"},
	{"sessions", "Sessions"},
}

// toolsPage is the data of the view of tools.
type toolsPage struct {
	list       *figures.List
	did        *calls.Result
	filter     *filter
	Unreadable int
	Stored     uint64 // events of the stream, if the page chose the range; else 0
	Longer     string // the address that reads more calls; empty if all were read, or this page has read them for longer
}

// tools answers with the figures of tools, each as stats prints it, and a summary of calls.
func (r *request) tools() error {
	ctx, query := r.Context(), r.URL.Query()
	generation, err := r.generation(ctx)
	if err != nil {
		return err
	}
	p := &toolsPage{filter: &r.filter}
	if p.Stored, err = r.suitableRange(ctx, generation); err != nil {
		return err
	}
	view, err := summaries.Open(ctx, r.config.JetStream, generation, func(error) { p.Unreadable++ })
	if err != nil {
		return err
	}
	q := r.filter.query(sessions.ByTool)
	q.Sort, q.Limit = "calls", maxTools
	if p.list, err = figures.New(q, r.config.Pricing); err != nil {
		return err
	}
	leave, err := r.enterSearch(ctx)
	if err != nil {
		return err
	}
	defer leave()
	did := calls.Query{
		Source: envelopes.Source(r.filter.Source), Stored: r.filter.storedSince(), Match: r.filter.selects, Time: callsAtFirst, Most: mostOfCalls,
	}
	if query.Has("longer") {
		did.Time = callsLonger
	}
	var reading errgroup.Group
	reading.Go(func() error { return p.list.Read(ctx, view) })
	reading.Go(func() (err error) {
		p.did, err = did.Run(ctx, r.config.JetStream, generation)
		return err
	})
	if err := reading.Wait(); err != nil {
		return err
	}
	p.did.In(r.filter.Zone)
	if !p.did.Complete && !query.Has("longer") {
		p.Longer = r.filter.With("longer", "1")
	}
	return r.page("tools", "Tools", p)
}

// Everything returns the address of the same view without a range.
func (p *toolsPage) Everything() string { return p.filter.With("since", allTime) }

// toolRow is a tool with its figures.
type toolRow struct {
	Tool   string
	Search string // the address of its calls
	Cells  []valueCell
}

// Heads returns the heads of the figures of a tool.
func (p *toolsPage) Heads() []string {
	var list []string
	for _, f := range toolFigures {
		list = append(list, f.label)
	}
	return list
}

// Tools returns the tools, the one with most calls first, without the row of events that are no calls.
func (p *toolsPage) Tools() []toolRow {
	var list []toolRow
	for i := range p.list.Rows {
		if row := &p.list.Rows[i]; row.Values[0] != "" {
			list = append(list, toolRow{row.Values[0], p.results(row.Values[0]), toolCells(row)})
		}
	}
	return list
}

// results returns the address of a search in the results of a tool, without a text to search.
func (p *toolsPage) results(tool string) string {
	query := p.filter.values()
	query.Set("tool", tool)
	query.Set("type", string(envelopes.ToolResult))
	return "/search?" + query.Encode()
}

// All returns the sums of all tools.
func (p *toolsPage) All() []valueCell {
	cells := toolCells(&p.list.Total)
	for i := range cells {
		if cells[i].Figure == "sessions" { // a session can use several tools
			cells[i].Text, cells[i].Raw = "", ""
		}
	}
	return cells
}

// Left returns how many tools are not shown.
func (p *toolsPage) Left() int { return p.list.Left }

func toolCells(row *figures.Row) []valueCell {
	var cells []valueCell
	for _, f := range toolFigures {
		value := figures.FigureOf(f.name).Of(row)
		text := figureText(f.name, row)
		if ms, ok := value.(int64); ok && strings.HasSuffix(f.name, "_ms") {
			text = terminal.Millis(&ms)
		}
		cells = append(cells, valueCell{f.label, f.name, text, figureJSON(value)})
	}
	return cells
}

// Did returns the summary of calls.
func (p *toolsPage) Did() *calls.Result { return p.did }

// Covered returns the time of storage since which all calls were read.
func (p *toolsPage) Covered() time.Time { return p.did.Oldest }

// SearchOf returns the address of a search for a command among calls of tools.
func (p *toolsPage) SearchOf(command string) string {
	query := p.filter.values()
	text := strings.Join(strings.Fields(strings.ReplaceAll(command, `"`, " ")), " ")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "")
	}
	query.Set("q", `"`+text+`"`)
	query.Set("type", string(envelopes.ToolCall))
	return "/search?" + query.Encode()
}

// PathOf returns the path of a file, relative to its project if it is inside.
func (p *toolsPage) PathOf(f calls.File) string {
	if rest, ok := strings.CutPrefix(f.Path, strings.TrimSuffix(f.Project, "/")+"/"); ok && f.Project != "" {
		return rest
	}
	return f.Path
}

// driftRow is the drift of an agent.
type driftRow struct {
	Source envelopes.Source
	*drift.Agent
}

// Drift returns the drift of the agents that have one.
func (p *toolsPage) Drift() []driftRow {
	var list []driftRow
	for _, source := range slices.Sorted(maps.Keys(p.did.Drift.Agents)) {
		list = append(list, driftRow{source, p.did.Drift.Agents[source]})
	}
	return list
}
