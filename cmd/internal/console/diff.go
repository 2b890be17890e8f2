package console

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/replay"
)

// Limits of a comparison. Only one runs at a time: it takes up to a hundred megabytes of memory, and temporary files
// for the rest.
const (
	comparisonLimit    = 10 * time.Minute
	comparisonKept     = time.Minute // how long a finished comparison answers requests for the same generations
	comparisonExamples = 3           // of each kind
	comparisonBytes    = 16 << 20    // of the events of examples
	comparisonValue    = 200         // shown bytes of a value in an example
)

// diffQuery is the query of a comparison, with the names of the query in the address.
type diffQuery struct {
	A, B, Agent, Session string
	Ignore               []string
}

// diffQuery parses the query.
func (r pipelineRequest) diffQuery() (diffQuery, error) {
	query := r.URL.Query()
	q := diffQuery{A: query.Get("a"), B: query.Get("b"), Agent: query.Get("agent"), Session: query.Get("session")}
	for _, name := range query["ignore"] {
		if name != "" && !slices.Contains(replay.DiffFields(), name) {
			return q, invalid("ignore names no field of an event", "choose one of the list")
		}
		if name != "" {
			q.Ignore = append(q.Ignore, name)
		}
	}
	if len(q.Session) > longestValue || len(q.Agent) > longestValue {
		return q, invalid("the filter is too long", "write at most 1,024 bytes")
	}
	for _, name := range []string{q.A, q.B} {
		if name != "" && envelopes.CheckGeneration(name) != nil {
			return q, notFound("there is no such generation", "choose one of the list")
		}
	}
	return q, nil
}

// Query returns the query for the end of an address.
func (q diffQuery) Query() string {
	query := url.Values{"a": {q.A}, "b": {q.B}}
	for name, value := range map[string]string{"agent": q.Agent, "session": q.Session} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if len(q.Ignore) > 0 {
		query["ignore"] = q.Ignore
	}
	return queryOf(query)
}

// Ignores reports whether the comparison ignores a field.
func (q diffQuery) Ignores(name string) bool { return slices.Contains(q.Ignore, name) }

// comparison is a result for the page.
type comparison struct {
	*replay.Diff // without examples

	Tokens   []tokenRow
	Fields   []fieldCount
	Groups   []diffGroup
	Examples []diffExample
	Made     time.Time
}

type tokenRow struct {
	Name string
	A, B int64
}

type fieldCount struct {
	Name  string
	Count uint64
}

type diffGroup struct {
	replay.DiffGroup
	Changes []fieldCount
}

type diffExample struct {
	replay.DiffExample
	Values []diffValue
}

type diffValue struct{ Field, A, B string }

func fieldCounts(counts map[string]uint64) []fieldCount {
	var list []fieldCount
	for _, name := range replay.FieldsByCount(counts) {
		list = append(list, fieldCount{name, counts[name]})
	}
	return list
}

// comparisonOf prepares a result for the page. It keeps no long value.
func comparisonOf(d *replay.Diff) *comparison {
	c := &comparison{Diff: d, Fields: fieldCounts(d.Fields), Made: time.Now()}
	for _, name := range replay.TokenFields() {
		if n := d.Tokens[name]; n.A != 0 || n.B != 0 {
			c.Tokens = append(c.Tokens, tokenRow{name, n.A, n.B})
		}
	}
	for _, g := range d.Groups {
		if !g.Equal() {
			c.Groups = append(c.Groups, diffGroup{g, fieldCounts(g.Fields)})
		}
	}
	for _, x := range d.Examples {
		shown := diffExample{DiffExample: x}
		for _, f := range x.Fields {
			a, b := f.Around(comparisonValue)
			shown.Values = append(shown.Values, diffValue{f.Field, strings.Clone(a), strings.Clone(b)})
		}
		shown.Fields = nil
		c.Examples = append(c.Examples, shown)
	}
	d.Examples = nil
	return c
}

var errLongComparison = errors.New("the comparison took too long")

// compare compares two generations, or returns the recent result of an equal request. If another comparison runs, it
// calls waiting and waits.
func (r pipelineRequest) compare(ctx context.Context, q *diffQuery, read *atomic.Uint64, waiting func()) (*comparison, error) {
	return r.state.comparison.get(ctx, q.Query(), comparisonKept, waiting, func(ctx context.Context) (c *comparison, err error) {
		ctx, cancel := context.WithTimeoutCause(ctx, comparisonLimit, errLongComparison)
		defer cancel()
		err = r.permitted(ctx, func(ctx context.Context) error {
			d, err := replay.Compare(ctx, r.config.JetStream, q.A, q.B, replay.DiffQuery{
				Source: envelopes.Source(q.Agent), Session: q.Session, Ignore: q.Ignore, Limit: comparisonExamples, Bytes: comparisonBytes, Read: read,
			})
			if err == nil {
				c = comparisonOf(d)
			}
			return err
		})
		if err != nil && errors.Is(context.Cause(ctx), errLongComparison) {
			err = &problem{
				Status: 504, Text: "the comparison took longer than " + comparisonLimit.String() + ", and was given up",
				Cure: "choose an agent or a session, or compare with tributary replay diff " + q.A + " " + q.B, cause: err,
			}
		}
		return c, refusal(noWorker(err))
	})
}

// diffPage is the data of the page.
type diffPage struct {
	diffQuery

	Generations []string
	AllFields   []string
	Result      *comparison
	Limit       time.Duration // of a comparison
	Plain       time.Duration // of a comparison without a script
}

// diff answers with the page of a comparison, and with the result if the address asks for that.
func (r pipelineRequest) diff() error {
	q, err := r.diffQuery()
	if err != nil {
		return err
	}
	list, err := r.generations(r.Context())
	if err != nil {
		return err
	}
	view := diffPage{diffQuery: q, AllFields: replay.DiffFields(), Limit: comparisonLimit, Plain: r.limits.Duration}
	for _, g := range list.Rows {
		view.Generations = append(view.Generations, g.Name)
	}
	if view.A == "" {
		view.A = list.Live
	}
	if r.URL.Query().Get("run") != "" && q.A != "" && q.B != "" {
		if view.Result, err = r.compare(r.Context(), &q, nil, nil); err != nil {
			return err
		}
	}
	return r.page("diff", "Compare generations", view)
}

// diffLive sends the progress of a comparison, then its result.
func (r pipelineRequest) diffLive() error {
	q, err := r.diffQuery()
	if err != nil {
		return err
	}
	if q.A == "" || q.B == "" {
		return invalid("two generations are compared", "choose both")
	}
	return r.live(func(ctx context.Context, s *stream) error {
		var total uint64
		if list, err := r.generations(ctx); err == nil {
			for _, name := range []string{q.A, q.B} {
				if g := list.Find(name); g != nil {
					total += g.Events
				}
			}
		}
		var read atomic.Uint64
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		reporting := make(chan struct{})
		go func() {
			defer close(reporting)
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					_ = s.send("progress", "", map[string]uint64{"read": read.Load(), "total": total}) // fails if the browser has gone away
				case <-ctx.Done():
					return
				}
			}
		}()
		result, err := r.compare(ctx, &q, &read, func() { _ = s.send("waiting", "", true) })
		cancel()
		<-reporting
		if err != nil {
			return err
		}
		html, err := r.fragment("diff", "diff-result", map[string]any{"Result": result})
		if err != nil {
			return err
		}
		return s.send("result", "", map[string]string{"html": html})
	})
}
