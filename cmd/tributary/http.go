package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tributary/normalizers"
	"tributary/pipeline/runner"
)

const exporterPrometheus = "prometheus"

// httpAddress is the address of the server of probes and metrics, empty for none.
func (c *config) httpAddress() string {
	if c.HTTP == "" && c.MetricsExporter == exporterPrometheus && !c.SDKDisabled {
		return net.JoinHostPort(c.PrometheusHost, c.PrometheusPort)
	}
	return c.HTTP
}

// workerHealth is the health of a worker, which needs the broker even while it has no partition.
type workerHealth struct {
	*runner.Runner

	nc *nats.Conn
}

// Ready fails without a connection, and else returns the state of the runner.
func (w workerHealth) Ready() error {
	if !w.nc.IsConnected() {
		return errors.New("not connected to the broker")
	}
	return w.Runner.Ready()
}

// serveHTTP serves the probes and metrics of a command until stop, if an address is set. The process is not ready
// after ctx ends.
func (a *app) serveHTTP(ctx context.Context, t *telemetry) (stop func(), err error) {
	address := a.config.httpAddress()
	if address == "" {
		return func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, a.config.listenError(address, err)
	}
	server := &http.Server{Handler: a.handler(ctx, t), ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.log.ErrorContext(ctx, "probes and metrics are not served any more", "address", address, "error", err)
		}
	})
	a.log.InfoContext(ctx, "serves /livez, /readyz, /metrics and /version", "address", listener.Addr().String())
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil { // a client keeps a request open
			_ = server.Close()
		}
		serving.Wait()
	}, nil
}

// listenError adds the setting of the address and the cure to err.
func (c *config) listenError(address string, err error) error {
	setting := "TRIBUTARY_HTTP"
	if c.HTTP == "" {
		setting = "OTEL_EXPORTER_PROMETHEUS_HOST and _PORT"
	}
	cure := "write an address such as 127.0.0.1:9464 or :9464"
	if errors.Is(err, syscall.EADDRINUSE) {
		cure = "name another port, a different one for each process of a host"
	}
	return fmt.Errorf("%s: cannot listen on %s: %w: %s", setting, address, err, cure)
}

// handler answers requests for the probes, the metrics and the version.
func (a *app) handler(ctx context.Context, t *telemetry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.health.alive()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.health.ready(ctx)) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.scraped, promhttp.HandlerOpts{
		EnableOpenMetrics: true,
		ErrorHandling:     promhttp.ContinueOnError,
		ErrorLog:          scrapeLog{ctx, a},
	}))
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.MarshalWrite(w, describeVersion()) // fails if the client has gone away
	})
	return mux
}

// answer writes the outcome of a probe: ok, or the reasons of the failure, one a line.
func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	text := "ok"
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = err.Error()
	}
	_, _ = io.WriteString(w, text+"\n") // fails if the client has gone away
}

// scrapeLog logs the errors of scrapes.
type scrapeLog struct {
	ctx context.Context //nolint:containedctx // of the command; the interface of promhttp passes none
	*app
}

// Println implements the logger of promhttp.
func (l scrapeLog) Println(v ...any) {
	l.log.WarnContext(l.ctx, "metrics are not complete", "error", fmt.Sprint(v...))
}

// versionDocument is the answer to /version.
type versionDocument struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitzero"`
	Date     string `json:"date,omitzero"`    // of the commit
	Changed  bool   `json:"changed,omitzero"` // files were changed since the commit
	Revision int    `json:"revision"`         // of the normalizers
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func describeVersion() versionDocument {
	info, _ := debug.ReadBuildInfo()
	b := buildOf(info)
	return versionDocument{b.version(), b.commit, b.date, b.dirty, normalizers.Revision, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
}
