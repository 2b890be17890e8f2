package console

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/cmd/internal/figures"
	"tributary/pipeline/sessions"
)

// cell is a figure of a bar or of a part of it.
type cell struct{ Text, Raw string }

// bar is a period with its figure and those of the series.
type bar struct {
	Period string
	Total  cell
	Parts  []cell
}

// Bars returns the periods, the earliest first, and the empty ones between them.
func (d *overview) Bars() []bar {
	rows := map[string]map[string]*figures.Row{}
	for i := range d.byBoth.Rows {
		r := &d.byBoth.Rows[i]
		if rows[r.Values[0]] == nil {
			rows[r.Values[0]] = map[string]*figures.Row{}
		}
		rows[r.Values[0]][r.Values[1]] = r
	}
	totals := map[string]*figures.Row{}
	var periods []string
	for i := range slices.Backward(d.byPeriod.Rows) {
		r := &d.byPeriod.Rows[i]
		totals[r.Values[0]] = r
		periods = append(periods, r.Values[0])
	}
	var list []bar
	for _, period := range withEmpty(d.Choice.Per, periods) {
		b := bar{Period: period, Total: cellOf(d, totals[period])}
		for _, value := range seriesValues(d) {
			b.Parts = append(b.Parts, cellOf(d, rows[period][value]))
		}
		list = append(list, b)
	}
	return list
}

// cellOf returns the figure of a row; nil is a row without events.
func cellOf(d *overview, r *figures.Row) cell {
	if r == nil {
		return cell{"", "0"}
	}
	return cell{figureText(d.Choice.Figure, r), figureJSON(figures.FigureOf(d.Choice.Figure).Of(r))}
}

// seriesValues returns the values of the parts of bars; others comes last, if it is not 0.
func seriesValues(d *overview) []string {
	figure := figures.FigureOf(d.Choice.Figure)
	counts := func(r figures.Row) bool {
		n, _ := figures.Number(figure.Of(&r))
		return r.Values[1] == others && n > 0
	}
	values := slices.Clone(d.series)
	if slices.ContainsFunc(d.byBoth.Rows, counts) {
		values = append(values, others)
	}
	return values
}

// Series names the parts of a bar.
func (d *overview) Series() []string {
	list := seriesValues(d)
	for i, value := range list {
		switch value {
		case others:
			list[i] = "others"
		case "":
			list[i] = "(unknown)"
		}
	}
	return list
}

// Older returns how many periods before the first bar have events.
func (d *overview) Older() int {
	older := d.byPeriod.Left
	bars := d.Bars()
	for i := range d.byPeriod.Rows {
		if d.byPeriod.Rows[i].Values[0] < bars[0].Period {
			older++
		}
	}
	return older
}

// withEmpty adds the missing periods between periods and returns the last maxPeriods, in their order. A text that is
// no period keeps its place.
func withEmpty(per sessions.Dimension, periods []string) []string {
	var list []string // the latest first
	for i := len(periods) - 1; i >= 0 && len(list) < maxPeriods; i-- {
		list = append(list, periods[i])
		if i == 0 {
			break
		}
		at, ok := periodTime(per, periods[i])
		_, before := periodTime(per, periods[i-1])
		for ok && before && len(list) < maxPeriods {
			var name string
			if at, name = periodBefore(per, at); name <= periods[i-1] {
				break
			}
			list = append(list, name)
		}
	}
	slices.Reverse(list)
	return list
}

// periodTime returns the beginning of a period, taken as UTC.
func periodTime(per sessions.Dimension, period string) (time.Time, bool) {
	layout := map[sessions.Dimension]string{sessions.ByHour: "2006-01-02 15:00", sessions.ByDay: time.DateOnly, sessions.ByMonth: "2006-01"}[per]
	if per == sessions.ByWeek {
		year, week, _ := strings.Cut(period, "-W")
		y, errYear := strconv.Atoi(year)
		w, errWeek := strconv.Atoi(week)
		fourth := time.Date(y, 1, 4, 0, 0, 0, 0, time.UTC) // always in the first week
		return fourth.AddDate(0, 0, 7*(w-1)-(int(fourth.Weekday())+6)%7), errYear == nil && errWeek == nil
	}
	t, err := time.Parse(layout, period)
	return t, err == nil
}

// periodBefore returns the beginning and the name of the previous period.
func periodBefore(per sessions.Dimension, t time.Time) (time.Time, string) {
	switch per {
	case sessions.ByHour:
		t = t.Add(-time.Hour)
		return t, t.Format("2006-01-02 15:00")
	case sessions.ByWeek:
		t = t.AddDate(0, 0, -7)
		year, week := t.ISOWeek()
		return t, fmt.Sprintf("%04d-W%02d", year, week)
	case sessions.ByMonth:
		t = t.AddDate(0, -1, 0)
		return t, t.Format("2006-01")
	default:
		t = t.AddDate(0, 0, -1)
		return t, t.Format(time.DateOnly)
	}
}
