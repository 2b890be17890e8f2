package sessions

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Dimension is a property by which statistics are grouped: one of [Dimensions], or a label.
type Dimension string

// The dimensions.
const (
	ByHour       Dimension = "hour"  // 2026-03-09 14:00; all periods are in the zone of the query
	ByDay        Dimension = "day"   // 2026-03-09
	ByWeek       Dimension = "week"  // 2026-W11: ISO 8601 week, beginning on Monday
	ByMonth      Dimension = "month" // 2026-03
	ByModel      Dimension = "model"
	BySource     Dimension = "source"
	ByProject    Dimension = "project"
	ByRepository Dimension = "repo"
	ByBranch     Dimension = "branch"
	BySession    Dimension = "session"
	ByTool       Dimension = "tool"
	ByHost       Dimension = "host"
	ByUser       Dimension = "user"
	ByTeam       Dimension = "team" // the label named team
	ByVia        Dimension = "via"  // log, or a way of envelopes.Via
)

// Dimensions lists all dimensions except labels.
var Dimensions = []Dimension{
	ByHour, ByDay, ByWeek, ByMonth, ByModel, BySource, ByProject, ByRepository, ByBranch, BySession, ByTool, ByHost, ByUser, ByTeam, ByVia,
}

// labelPrefix begins a label dimension: label:NAME.
const labelPrefix = "label:"

// label returns the name of a label dimension; is reports whether d is one.
func (d Dimension) label() (name string, is bool) {
	if d == ByTeam {
		return string(d), true
	}
	return strings.CutPrefix(string(d), labelPrefix)
}

// Valid reports whether the dimension exists.
func (d Dimension) Valid() bool {
	name, is := d.label()
	return slices.Contains(Dimensions, d) || is && name != ""
}

// IsPeriod reports whether the values of the dimension are periods of time.
func (d Dimension) IsPeriod() bool {
	return d == ByHour || d == ByDay || d == ByWeek || d == ByMonth
}

// ofEvent reports whether an event alone determines the value, without the events before it.
func (d Dimension) ofEvent() bool {
	switch d {
	case ByModel, BySource, ByProject, BySession, ByTool:
		return false
	default:
		return true
	}
}

// value returns the value of an event dimension; empty if unknown.
func (s *Step) value(d Dimension, zone *time.Location) string {
	switch d {
	case ByHour:
		return s.when().In(zone).Format("2006-01-02 15:00")
	case ByDay:
		return s.when().In(zone).Format(time.DateOnly)
	case ByWeek:
		year, week := s.when().In(zone).ISOWeek()
		return fmt.Sprintf("%04d-W%02d", year, week)
	case ByMonth:
		return s.when().In(zone).Format("2006-01")
	case ByRepository:
		return s.Repository
	case ByBranch:
		return s.Branch
	case ByHost:
		return s.Host
	case ByUser:
		return s.User
	case ByVia:
		return cmp.Or(string(s.Via), "log")
	default:
		name, _ := d.label()
		return s.Labels[name]
	}
}

// separator separates values in a key. No value contains it.
const separator = "\x00"

// part returns the values of the event dimensions of a step.
func (d *Division) part(s *Step) string {
	if len(d.By) == 0 {
		return ""
	}
	values := make([]string, len(d.By))
	for i, dimension := range d.By {
		values[i] = strings.ReplaceAll(s.value(dimension, d.Zone), separator, "")
	}
	return strings.Join(values, separator)
}
