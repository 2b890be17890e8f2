package checks

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/require"
)

// counting are the alerts and panels that count something over a time, by name.
func counting(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, r := range alertRules(t) {
		if strings.Contains(r.Expr, "increase(") && strings.HasSuffix(r.Expr, "> 0") {
			found[r.Alert] = r.Expr
		}
	}
	require.Contains(t, found, "TributaryUnknownRecords")
	require.Contains(t, found, "TributaryDeadLetters")
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "deploy/grafana/tributary.json")), &dashboard))
	for _, p := range dashboard.Panels {
		for i, target := range p.Targets {
			if strings.Contains(target.Expr, "increase(") {
				found[fmt.Sprintf("panel %s %d", p.Title, i)] = strings.NewReplacer("$generation", ".*", "$source", ".*").Replace(target.Expr)
			}
		}
	}
	require.Greater(t, len(found), 15)
	return found
}

// load returns lines of Prometheus's test language: each counter of an expression, with the labels that it
// selects, has the values of a scrape every minute.
func load(t *testing.T, query, values string) string {
	t.Helper()
	expression, err := parser.ParseExpr(query)
	require.NoError(t, err, query)
	series := map[string]bool{}
	parser.Inspect(expression, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			text := s.Name + `{instance="a",source="codex",name="new"`
			for _, m := range s.LabelMatchers {
				if m.Type == labels.MatchEqual && m.Name != labels.MetricName {
					text += fmt.Sprintf(",%s=%q", m.Name, m.Value)
				}
			}
			series[text+"}"] = true
		}
		return nil
	})
	text := "load 1m\n"
	for s := range series {
		text += "  " + s + " " + values + "\n"
	}
	return text
}

// value is the sum of an expression over a counter with those values, after a number of minutes.
func value(t *testing.T, query, values string, minutes int) float64 {
	t.Helper()
	storage := promqltest.LoadedStorage(t, load(t, query, values))
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	q, err := engine.NewInstantQuery(context.Background(), storage, nil, query, time.Unix(int64(60*minutes), 0))
	require.NoError(t, err, query)
	defer q.Close()
	result := q.Exec(context.Background())
	require.NoError(t, result.Err, query)
	vector, ok := result.Value.(promql.Vector)
	require.True(t, ok, query)
	sum := 0.0
	for _, s := range vector {
		sum += s.F
	}
	return sum
}

// TestFirstOccurrenceIsSeen evaluates each alert and panel that counts over counters as they are scraped: one
// that is there for the first time with 1 is seen, and one that does not grow is not.
func TestFirstOccurrenceIsSeen(t *testing.T) {
	t.Parallel()
	for name, query := range counting(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Positive(t, value(t, query, "_x300 1x600", 301), "a counter that begins with 1")
			require.Positive(t, value(t, query, "_x300 1x600", 310), "a few minutes later")
			require.Positive(t, value(t, query, "0x300 1x600", 310), "a counter that grows")
			if strings.Contains(query, " / ") {
				return // a share
			}
			require.InDelta(t, 1, value(t, query, "_x300 1x600", 310), 0.01, "it is counted once")
			const day = 24 * 60
			require.Zero(t, value(t, query, "_x10 1x3000", 2*day), "long after")
			require.Zero(t, value(t, query, "5x3000 _x40 5x300", 3110), "an hour after 40 minutes without a scrape")
			require.Zero(t, value(t, query, "0x900", 310), "nothing happened")
		})
	}
}

// TestNearLimitsAreSeen evaluates the alerts of limits: one warns from 80%, the other is critical from 95%.
func TestNearLimitsAreSeen(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, r := range alertRules(t) {
		from, ok := map[string]float64{"TributaryLimitNear": 0.8, "TributaryLimitReached": 0.95}[r.Alert]
		if !ok {
			continue
		}
		seen++
		require.Zero(t, value(t, r.Expr, fmt.Sprintf("%gx10", from-0.01), 5), r.Alert)
		require.Positive(t, value(t, r.Expr, fmt.Sprintf("%gx10", from+0.01), 5), r.Alert)
	}
	require.Equal(t, 2, seen)
}
