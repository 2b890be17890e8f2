package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"tributary/cmd/internal/doctor"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestDoctorJudgesLagAndClockByTheTimeOfTheBroker has records that no worker processes, and brokers
// with clocks of other years.
func TestDoctorJudgesLagAndClockByTheTimeOfTheBroker(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	pipelinetest.Publish(t, js, pipelinetest.Workload(83, 3, 60)...)
	home := t.TempDir()
	check := func(years int) map[string]doctor.Check {
		t.Helper()
		code, checks := checksOf(t, start(t, home, inOtherYears(t, server, years), "doctor", "-o", "json"))
		if code != exitFailure { // without a worker
			t.Errorf("exit code %d", code)
		}
		return checks
	}
	now := check(0)
	requireCheck(t, now, "clock", doctor.OK, "agree")
	requireCheck(t, now, "lag", doctor.OK, " records, the oldest stored")
	later := check(4)
	requireCheck(t, later, "clock", doctor.Warning, "the clock of the broker is 35", "h", "ahead of that of this machine", "let NTP set both")
	requireCheck(t, later, "lag", doctor.Problem, " records, the oldest stored 35", "start more workers, up to one a partition")
	before := check(-4)
	requireCheck(t, before, "clock", doctor.Warning, "the clock of the broker is 35", "behind that of this machine", "let NTP set both")
}

// inOtherYears returns the URL of a server whose clock is some years ahead: a relay to it that
// changes the year in the times that it states.
func inOtherYears(t *testing.T, server *pipelinetest.Server, years int) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	t.Cleanup(ended.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	ended.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			broker, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL(), "nats://"))
			if err != nil {
				t.Error(err)
				_ = client.Close()
				return
			}
			ended.Go(func() {
				_, _ = io.Copy(broker, client)
				_ = broker.Close()
			})
			ended.Go(func() {
				relayYears(client, broker, years)
				_ = client.Close()
			})
		}
	})
	return "nats://" + listener.Addr().String()
}

// statedTime matches the time in an answer of the server.
var statedTime = regexp.MustCompile(`"ts":"\d{4}`)

// relayYears copies what the server sends, line by line.
func relayYears(client io.Writer, broker io.Reader, years int) {
	year := fmt.Appendf(nil, `"ts":"%d`, time.Now().UTC().Year()+years)
	lines := bufio.NewReader(broker)
	for {
		line, err := lines.ReadBytes('\n')
		if _, failed := client.Write(statedTime.ReplaceAll(line, year)); err != nil || failed != nil {
			return
		}
	}
}
