package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestProbesAndMetricsOfRunAndShip scrapes both processes before the first record and after some,
// takes the broker away and brings it back.
func TestProbesAndMetricsOfRunAndShip(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	logs := filepath.Join(home, ".claude", "projects", "app")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	worker, edge := startServed(t, home, server.URL(), "run"), startServed(t, home, server.URL(), "ship", "TRIBUTARY_REDACT=redacted")
	metrics := instrumentsOf(t)
	for _, p := range []*served{worker, edge} {
		p.awaitProbe("readyz", http.StatusOK)
		p.requireMetrics(byName(metrics, p.name), false)
	}

	line := `{"type":"assistant","uuid":"u1","timestamp":"2026-03-09T09:00:00Z","sessionId":"s","version":"2.1.1","message":{"id":"m","role":"assistant","model":"claude-opus-4-5",` +
		`"content":[{"type":"tool_use","id":"t","name":"Bash","input":{"command":"false"}}],"usage":{"input_tokens":3,"output_tokens":5}}}
{"type":"user","uuid":"u2","timestamp":"2026-03-09T09:00:01Z","sessionId":"s","version":"2.1.1","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","is_error":true,"content":"exit 1"}]}}
`
	if err := os.WriteFile(filepath.Join(logs, "s.jsonl"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	worker.awaitSum("tributary_records_total", 2)
	edge.awaitSum("tributary_ship_records_total", 2)
	for _, p := range []*served{worker, edge} {
		p.requireMetrics(byName(metrics, p.name), true)
	}
	after := worker.scrape()
	requireSeries(t, after, 3, "tributary_tokens_total", "source", "claude_code", "model", "claude-opus-4-5", "kind", "input")
	requireSeries(t, after, 5, "tributary_tokens_total", "source", "claude_code", "model", "claude-opus-4-5", "kind", "output")
	requireSeries(t, after, 1, "tributary_tool_results_total", "source", "claude_code", "status", "error")
	requireSeries(t, after, 0, "tributary_lag")
	requireSeries(t, after, 0, "tributary_dead_letters_total", "source", "codex", "reason", "malformed")
	shipped := edge.scrape()
	requireSeries(t, shipped, float64(len(line)-2), "tributary_ship_bytes_total")
	requireSeries(t, shipped, 0, "tributary_ship_redactions_total")
	secret := strings.Replace(line, "exit 1", "use "+pipelinetest.Secrets()[0].Text, 1)
	if err := os.WriteFile(filepath.Join(logs, "secret.jsonl"), []byte(strings.ReplaceAll(secret, `"s"`, `"secret"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	edge.awaitSum("tributary_ship_redactions_total", 1)
	requireSeries(t, edge.scrape(), 1, "tributary_ship_redactions_total", "rule", "aws-access-token")

	server.Stop()
	for _, p := range []*served{worker, edge} {
		p.awaitProbe("readyz", http.StatusServiceUnavailable, "not connected to the broker")
		_, body := p.get("livez", "")
		if body != "ok\n" {
			t.Errorf("%s is not alive without the broker: %s", p.name, body)
		}
	}
	server.Start()
	for _, p := range []*served{worker, edge} {
		p.awaitProbe("readyz", http.StatusOK)
	}
}

// TestProbesOfAWorkerThatWaits asks a worker without a broker, and starts a second one at its
// address.
func TestProbesOfAWorkerThatWaits(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	worker := startServed(t, home, "nats://127.0.0.1:1", "run")
	worker.awaitProbe("readyz", http.StatusServiceUnavailable, "the broker has not answered yet")
	worker.awaitProbe("livez", http.StatusOK)
	address := strings.TrimSuffix(strings.TrimPrefix(worker.url, "http://"), "/")
	_, port, _ := strings.Cut(address, ":")
	for _, listen := range []string{address, ":" + port, "0.0.0.0:" + port} {
		requireHealth(t, exitFailure, "the broker has not answered yet", "TRIBUTARY_HTTP="+listen)
		requireHealth(t, 0, "ok", "TRIBUTARY_HTTP="+listen, "--live")
	}
	requireHealth(t, exitFailure, "start the process with the same setting", "TRIBUTARY_HTTP=127.0.0.1:1")
	requireHealth(t, exitFailure, "start the console with the same setting", "TRIBUTARY_CONSOLE_LISTEN=127.0.0.1:1", "--console")
	requireHealth(t, 0, "ok", "TRIBUTARY_CONSOLE_LISTEN=:"+port, "--console") // any answer will do
	requireHealth(t, exitUsage, "TRIBUTARY_HTTP is not set", "TRIBUTARY_HTTP=")
	response, body := worker.get("version", "")
	contains(t, response.Header.Get("Content-Type"), "application/json")
	var version struct {
		Version  string `json:"version"`
		Revision int    `json:"revision"`
	}
	if err := json.Unmarshal([]byte(body), &version); err != nil {
		t.Fatal(err)
	}
	if version.Version == "" || version.Revision == 0 {
		t.Errorf("version %s", body)
	}
	response, body = worker.get("metrics", "application/openmetrics-text; version=1.0.0")
	contains(t, response.Header.Get("Content-Type"), "application/openmetrics-text")
	contains(t, body, "go_goroutines ", "process_resident_memory_bytes ", "# EOF\n")

	for setting, want := range map[string]string{
		"TRIBUTARY_HTTP=" + address: "TRIBUTARY_HTTP: cannot listen on " + address,
		"OTEL_METRICS_EXPORTER=prometheus OTEL_EXPORTER_PROMETHEUS_HOST=127.0.0.1 OTEL_EXPORTER_PROMETHEUS_PORT=" + address[strings.LastIndex(address, ":")+1:]: "OTEL_EXPORTER_PROMETHEUS_HOST and _PORT: cannot listen on " + address,
	} {
		second := startWith(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, strings.Fields(setting)...) }, home, "nats://127.0.0.1:1", "run")
		if code := second.wait(); code != exitFailure {
			t.Errorf("%s: exit code %d", setting, code)
		}
		contains(t, second.logged("cannot listen"), want, "name another port")
	}
}

// requireHealth checks the exit code and a part of the output of tributary health with a setting.
func requireHealth(t *testing.T, code int, want, setting string, args ...string) {
	t.Helper()
	cmd := shell(t.Context(), t, t.TempDir(), "nats://127.0.0.1:1", "tributary health "+strings.Join(args, " "))
	cmd.Env = append(cmd.Env, setting)
	out, _ := cmd.CombinedOutput() // the exit code is judged
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), want) {
		t.Errorf("%s health %v: exit code %d, not %d, and no %q in %s", setting, args, got, code, want, out)
	}
}

// TestShipWithoutStreamIsNotReady follows the raw stream from its absence to its deletion.
func TestShipWithoutStreamIsNotReady(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	edge := startServed(t, t.TempDir(), server.URL(), "ship")
	edge.awaitProbe("readyz", http.StatusServiceUnavailable)
	js := server.Provision(streams.DefaultTopology())
	edge.awaitProbe("readyz", http.StatusOK)
	if err := js.DeleteStream(t.Context(), streams.RawStream); err != nil {
		t.Fatal(err)
	}
	server.Restart() // after which ship compares the stream at once
	edge.awaitProbe("readyz", http.StatusServiceUnavailable, "the broker has no raw stream")
}

// served is a process that serves its probes and metrics.
type served struct {
	*process

	name, url string
}

// startServed starts a command with a server at a free port.
func startServed(t *testing.T, home, url, command string, settings ...string) *served {
	t.Helper()
	p := startWith(t, func(cmd *exec.Cmd) { cmd.Env = append(append(cmd.Env, "TRIBUTARY_HTTP=127.0.0.1:0"), settings...) }, home, url, command)
	p.awaitLogged("serves /livez")
	return p.served(command)
}

// served returns a process that has logged its address.
func (p *process) served(command string) *served {
	p.t.Helper()
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(p.logged("serves /livez"))
	if address == nil {
		p.t.Fatal("the log does not state the address")
	}
	return &served{p, command, "http://" + address[1] + "/"}
}

// get requests a path.
func (s *served) get(path, accept string) (*http.Response, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response, string(body)
}

// awaitProbe asks a probe until it answers with a status and some text.
func (s *served) awaitProbe(path string, status int, text ...string) {
	s.t.Helper()
	s.await(func() (bool, string) {
		response, body := s.get(path, "")
		return response.StatusCode == status && strings.Contains(body, strings.Join(text, "")), fmt.Sprintf("%s: %d %s", path, response.StatusCode, body)
	})
}

// await asks until the answer is yes.
func (s *served) await(question func() (yes bool, state string)) {
	s.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	limit := time.After(patience)
	for {
		yes, state := question()
		if yes {
			return
		}
		select {
		case <-look.C:
		case <-limit:
			s.t.Fatalf("%s: %s", s.name, state)
		}
	}
}

// scrape returns the metrics of the process by name.
func (s *served) scrape() map[string]*dto.MetricFamily {
	s.t.Helper()
	_, body := s.get("metrics", "")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	return families
}

// awaitSum scrapes until the series of a counter add up to a number.
func (s *served) awaitSum(name string, want float64) {
	s.t.Helper()
	s.await(func() (bool, string) {
		sum := 0.0
		for _, m := range s.scrape()[name].GetMetric() {
			sum += m.GetCounter().GetValue()
		}
		return sum == want, fmt.Sprintf("%s is %v, want %v", name, sum, want)
	})
}

// requireMetrics checks names and labels of what the process serves: before its first record every
// counter is there with 0; after it, every histogram of the stage is there, too.
func (s *served) requireMetrics(want map[string]instrument, worked bool) {
	s.t.Helper()
	families := s.scrape()
	for name, i := range want {
		f := families[name]
		optional := strings.HasPrefix(name, "tributary_summaries_") || strings.HasPrefix(name, "tributary_sessions_") && i.kind == "histogram"
		if f == nil {
			if !optional && (i.kind != "histogram" || worked) {
				s.t.Errorf("%s does not serve %s", s.name, name)
			}
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
			slices.Sort(labels)
			if !slices.Equal(labels, i.labels) {
				s.t.Errorf("%s has the labels %v, want %v", name, labels, i.labels)
			}
			if n := m.GetCounter().GetValue(); n != 0 && !worked && !optional && !beginsBeforeWork(name) {
				s.t.Errorf("%s is %v before the first record", name, n)
			}
		}
	}
	for name := range families {
		if _, ok := want[name]; !ok && strings.HasPrefix(name, "tributary_") {
			s.t.Errorf("%s is not in the table of metrics", name)
		}
	}
	_, body := s.get("metrics", "")
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		s.t.Fatal(err)
	}
	if len(problems) > 0 {
		s.t.Errorf("names: %v", problems)
	}
}

// beginsBeforeWork reports whether a counter counts what a process does before its first record.
func beginsBeforeWork(name string) bool {
	return name == "tributary_acquisitions_total" || name == "tributary_commits_total" || name == "tributary_ship_stalls_total"
}

// requireSeries checks that the series of a name with some labels add up to a value.
func requireSeries(t *testing.T, families map[string]*dto.MetricFamily, want float64, name string, labels ...string) {
	t.Helper()
	sum, found := 0.0, 0
	for _, m := range families[name].GetMetric() {
		matches := true
		for i := 0; i < len(labels); i += 2 {
			matches = matches && slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
				return l.GetName() == labels[i] && l.GetValue() == labels[i+1]
			})
		}
		if matches {
			found++
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	if found == 0 || sum != want {
		t.Errorf("%d series %s%v are %v, want %v", found, name, labels, sum, want)
	}
}

// contains fails the test unless a text contains parts.
func contains(tb testing.TB, text string, parts ...string) {
	tb.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			tb.Errorf("no %q in %.2000s", p, text)
		}
	}
}
