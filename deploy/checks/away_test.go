package checks

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/require"
)

// fired returns the names of the alerts that fire in half an hour of these series, scraped and evaluated each minute.
func fired(t *testing.T, series ...string) (names []string) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.Join(series, "\n  ")+"\n")
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	for _, r := range alertRules(t) {
		longest, since := -time.Minute, -time.Minute
		for at := time.Duration(0); at <= 30*time.Minute; at += time.Minute {
			q, err := engine.NewInstantQuery(context.Background(), storage, nil, r.Expr, time.Unix(0, 0).Add(at))
			require.NoError(t, err, r.Expr)
			result := q.Exec(context.Background())
			require.NoError(t, result.Err, r.Expr)
			if len(result.Value.(promql.Vector)) == 0 {
				since = at
			}
			longest = max(longest, at-since-time.Minute)
			q.Close()
		}
		if longest >= time.Duration(r.For) {
			names = append(names, strings.TrimPrefix(r.Alert, "Tributary"))
		}
	}
	return names
}

// TestDeadBrokerIsOneAlert has the series of a dead broker, and the same while a process reaches the broker.
func TestDeadBrokerIsOneAlert(t *testing.T) {
	t.Parallel()
	effects := []string{
		`tributary_oldest_seconds{instance="w",generation="v1",partition="0",live="true"} 900x30`,
		`tributary_commits_total{instance="w",generation="v1",outcome="unknown"} 0+10x30`,
		`tributary_acquisitions_total{instance="w",generation="v1",cause="recovery"} 0+10x30`,
		`tributary_heartbeat_failures_total{instance="w",generation="v1",live="true"} 0+10x30`,
		`tributary_partition_owned{instance="w",generation="v1",partition="0",live="true"} 0x30`,
		`tributary_ship_oldest_seconds{instance="e"} 900x30`,
		`tributary_ship_stalled{instance="e"} 1x30`,
	}
	const others = `tributary_partition_owned{instance="w",generation="v1",partition="1",live="true"} `
	away := append([]string{`tributary_connected{instance="w"} 0x30`, `tributary_connected{instance="e"} 0x30`}, effects...)
	require.Equal(t, []string{"BrokerAway"}, fired(t, append(away, others+"0x30")...))
	require.Equal(t, []string{"BrokerAway"}, fired(t, append(away, others+"1x30")...))
	reached := append([]string{`tributary_connected{instance="w"} 1x30`, `tributary_connected{instance="e"} 0x30`}, effects...)
	all := []string{"EventsAreLate", "CommitsFail", "PartitionsChangeHands", "HeartbeatsFail", "ShipBehind", "ShipStalled"}
	require.ElementsMatch(t, append([]string{"NoWorker"}, all...), fired(t, append(reached, others+"0x30")...))
	require.ElementsMatch(t, append([]string{"PartitionsWithoutWorker"}, all...), fired(t, append(reached, others+"1x30")...))
}
