package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"tributary/pipeline/pipelinetest"
)

// TestErrorsOfTelemetryAreLogged lets a receiver refuse the metrics of a worker: every line of its log is JSON.
func TestErrorsOfTelemetryAreLogged(t *testing.T) {
	t.Parallel()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	defer refuses.Close()
	worker := startWith(t, func(c *exec.Cmd) {
		c.Env = append(c.Env, "TRIBUTARY_LOG_FORMAT=json", "OTEL_METRICS_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT="+refuses.URL, "OTEL_METRIC_EXPORT_INTERVAL=10")
	}, t.TempDir(), pipelinetest.NewServer(t).URL(), "run")
	defer worker.kill()
	worker.awaitLogged("403")
	var line struct{ Level, Msg, Error string }
	if err := json.Unmarshal([]byte(worker.logged("403")), &line); err != nil || line.Level != "WARN" || !strings.Contains(line.Msg, "OTEL_METRICS_EXPORTER") {
		t.Errorf("the line is %+v: %v", line, err)
	}
}
