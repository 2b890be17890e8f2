package console

import (
	"fmt"
	"html/template"
	"time"

	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
)

// functions returns the functions of all templates. Every text of a log goes through text, line, cut or code, which
// make unprintable runes visible; html/template escapes the rest.
func functions(a *assets) template.FuncMap {
	return template.FuncMap{
		"asset":    a.address,
		"text":     func(v any) string { return terminal.Printable(textOf(v)) },
		"line":     func(v any) string { return terminal.OneLine(textOf(v)) },
		"dash":     func(v any) string { return terminal.OrDash(textOf(v)) },
		"cut":      func(width int, v any) string { return terminal.Cut(terminal.OneLine(textOf(v)), width) },
		"cutPath":  func(width int, v any) string { return terminal.CutPath(terminal.OneLine(textOf(v)), width) },
		"number":   func(n any) string { return terminal.Thousands(integer(n)) },
		"plural":   func(n any, noun string) string { return terminal.Plural(int(integer(n)), noun) },
		"size":     func(n any) string { return terminal.Size(integer(n)) },
		"percent":  func(part, whole any) string { return terminal.Percent(integer(part), integer(whole)) },
		"dollars":  figures.Dollars,
		"duration": terminal.Rough,
		"millis":   func(ms int64) string { return terminal.Millis(&ms) },
		"when":     when,
		"clock":    clock,
		"ago":      ago,
		"session":  sessionPath,
		"event":    eventPath,
		"agent":    func(s envelopes.Source) string { return terminal.OneLine(string(s)) },
		"values":   values,
	}
}

// textOf returns a text, also by its pointer.
func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case *string:
		if v == nil {
			return ""
		}
		return *v
	default:
		return fmt.Sprint(v)
	}
}

// integer converts an integer of any type.
func integer(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int32:
		return int64(n)
	case int64:
		return n
	case uint32:
		return int64(n)
	case uint64:
		return int64(n)
	default:
		panic(fmt.Sprintf("a template formats a %T as a number", n))
	}
}

// when writes a time in its own zone, which is the filter's. An unknown time is a dash.
func when(t time.Time) template.HTML { return timeElement(t, time.DateTime) }

// clock is [when] without the date.
func clock(t time.Time) template.HTML { return timeElement(t, time.TimeOnly) }

func timeElement(t time.Time, layout string) template.HTML {
	if t.IsZero() {
		return terminal.Unknown
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, // only digits and signs
		t.Format(time.RFC3339), t.Format("2006-01-02 15:04:05.000 -07:00"), t.Format(layout)))
}

// ago writes how long before now a time was; app.js keeps the text current.
func ago(t, now time.Time) template.HTML {
	if t.IsZero() {
		return terminal.Unknown
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s" data-ago>%s</time>`, // only digits and signs
		t.Format(time.RFC3339), t.Format("2006-01-02 15:04:05 -07:00"), roughly(now.Sub(t))))
}

// roughly writes a duration in one unit, like app.js.
func roughly(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	}
}

// values makes a map of names and values, with which a template passes several values to another.
func values(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("values has %d arguments: pass names with values", len(pairs))
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("values has a name that is a %T", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}
