package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
)

const (
	timelineTools = 12              // rows; other tools share the last one
	timelineWidth = 1000            // units of a row
	longestPause  = 2 * time.Minute // a longer pause takes no more room
	leastBar      = 3               // units of a bar
)

// timedCall is a call of a tool and its time.
type timedCall struct {
	tool       string
	sequence   uint64
	begin, end time.Time // end is begin if there is no result
	failed     bool
}

// timedCalls are the calls of a session, or of a part of it.
type timedCalls struct {
	list []timedCall
	open map[string]int // calls without a result, by their ids
}

// note takes the next event. It does not keep the event.
func (c *timedCalls) note(e *envelopes.AgentEventV1) {
	call := e.EventType == envelopes.ToolCall
	if !call && e.EventType != envelopes.ToolResult {
		return
	}
	at, err := e.Timestamp()
	if err != nil {
		return
	}
	id, status := strings.Clone(orZero(e.ToolCallID)), orZero(e.ToolStatus)
	if n, ok := c.open[id]; ok && !call && id != "" {
		c.list[n].end = at
		c.list[n].failed = status == envelopes.StatusError
		if status != envelopes.StatusInProgress {
			delete(c.open, id)
		}
		return
	}
	if call && id != "" {
		if c.open == nil {
			c.open = map[string]int{}
		}
		c.open[id] = len(c.list)
	}
	c.list = append(c.list, timedCall{strings.Clone(orZero(e.ToolName)), e.Sequence, at, at, !call && status == envelopes.StatusError})
}

// timelineRow has the calls of a tool: bars in a row of timelineWidth units.
type timelineRow struct {
	Tool            string
	Calls, Failures int
	Bars            []timelineBar
}

// timelineBar is a call, or several close ones.
type timelineBar struct {
	X, Width int
	Failed   bool
	Text     string
	Address  string // of the first call

	calls, failed int
	begin, end    time.Time
}

// rows returns the calls by tool, the most used first. address returns the address of an event.
func (c *timedCalls) rows(address func(sequence uint64) string) []timelineRow {
	calls := slices.Clone(c.list)
	slices.SortStableFunc(calls, func(a, b timedCall) int { return a.begin.Compare(b.begin) })
	tools := map[string]int{}
	for _, call := range calls {
		tools[call.tool]++
	}
	names := make([]string, 0, len(tools))
	for name := range tools {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(tools[b], tools[a]), cmp.Compare(a, b)) })
	rows := make([]timelineRow, min(len(names), timelineTools+1))
	place := map[string]int{}
	for n, name := range names {
		if place[name] = n; n >= timelineTools {
			place[name] = timelineTools
			name = "other tools"
		}
		rows[place[names[n]]].Tool = name
	}
	axis := newAxis(calls)
	for i := range calls {
		call := &calls[i]
		row := &rows[place[call.tool]]
		row.Calls++
		if call.failed {
			row.Failures++
		}
		row.add(call, axis.at(call.begin), axis.at(call.end), address)
	}
	for r := range rows {
		for b := range rows[r].Bars {
			rows[r].Bars[b].describe(rows[r].Tool)
		}
	}
	return rows
}

// add adds a call to the row, between two places.
func (r *timelineRow) add(call *timedCall, from, to int, address func(uint64) string) {
	from = min(from, timelineWidth-leastBar)
	to = max(to, from+leastBar)
	if n := len(r.Bars) - 1; n >= 0 && from <= r.Bars[n].X+r.Bars[n].Width {
		r.Bars[n].Width = max(r.Bars[n].Width, to-r.Bars[n].X)
		r.Bars[n].note(call)
		return
	}
	bar := timelineBar{X: from, Width: to - from, Address: address(call.sequence), begin: call.begin}
	bar.note(call)
	r.Bars = append(r.Bars, bar)
}

func (b *timelineBar) note(call *timedCall) {
	b.calls++
	if call.failed {
		b.failed++
		b.Failed = true
	}
	if call.end.After(b.end) {
		b.end = call.end
	}
}

// describe sets the text of a bar.
func (b *timelineBar) describe(tool string) {
	b.Text = terminal.Cut(terminal.OneLine(tool), 60) + ": " + terminal.Plural(b.calls, "call")
	if b.failed > 0 {
		b.Text += fmt.Sprintf(", %s failed", terminal.Thousands(int64(b.failed)))
	}
	if d := b.end.Sub(b.begin); d >= time.Second {
		b.Text += ", " + terminal.Rough(d)
	}
}

// axis places times in a row. It cuts pauses to [longestPause], so that a night takes no more room than a thought.
type axis struct {
	times []time.Time
	after []time.Duration // from the first time to each of them, without cut pauses
}

func newAxis(calls []timedCall) *axis {
	a := &axis{}
	for _, c := range calls {
		a.times = append(a.times, c.begin, c.end)
	}
	slices.SortFunc(a.times, time.Time.Compare)
	a.times = slices.CompactFunc(a.times, time.Time.Equal)
	a.after = make([]time.Duration, len(a.times))
	for n := 1; n < len(a.times); n++ {
		a.after[n] = a.after[n-1] + min(a.times[n].Sub(a.times[n-1]), longestPause)
	}
	return a
}

// at returns the place of one of its times.
func (a *axis) at(t time.Time) int {
	n, _ := slices.BinarySearchFunc(a.times, t, time.Time.Compare)
	whole := a.after[len(a.after)-1]
	if whole == 0 {
		return 0
	}
	return int(int64(a.after[n]) * timelineWidth / int64(whole))
}
