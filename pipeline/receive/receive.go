// Package receive takes records over HTTP and gRPC and stores them in the raw stream: what agents export by
// OpenTelemetry, what they post to hooks, and records of producers that do not speak NATS. Export requests may come by
// subjects of NATS, too.
//
// A [Receiver] is an [http.Handler]; [Receiver.Serve] serves it with limits. README.md describes what holds.
package receive

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"tributary/pipeline/redact"
	"tributary/pipeline/streams"
)

// Config configures a [Receiver].
type Config struct {
	Admission Admission
	Limits    Limits
	Subjects  []Subject        // at which collectors publish export requests; see [Receiver.Serve]
	Redactor  *redact.Redactor // nil replaces nothing

	Host      string        // name of this machine in heartbeats; empty to send none
	Version   string        // program version in heartbeats
	Heartbeat time.Duration // interval of the heartbeats; default 30 seconds

	Logger *slog.Logger
	Tracer trace.Tracer // nil for no spans
	Meter  metric.Meter // nil for no metrics
}

// Limits are the limits of requests. A zero member has its default.
type Limits struct {
	Body     int64         // bytes of a request, inflated: 16 MiB
	InFlight int64         // bytes of all requests in progress, inflated: 64 MiB, at least Body
	Records  int           // records of a request: 20,000
	Requests int           // requests of a sender in progress: 64
	BodyTime time.Duration // for the arrival of a request: 30 s
}

func (l Limits) withDefaults() Limits {
	l.Body = cmp.Or(l.Body, 16<<20)
	l.InFlight = max(cmp.Or(l.InFlight, 64<<20), l.Body)
	l.Records = cmp.Or(l.Records, 20_000)
	l.Requests = cmp.Or(l.Requests, 64)
	l.BodyTime = cmp.Or(l.BodyTime, 30*time.Second)
	return l
}

// Receiver stores what it receives in the raw stream of a broker. It is safe for concurrent use.
type Receiver struct {
	config   Config
	limits   Limits
	publish  *publisher
	room     *room
	senders  senders
	metrics  *metrics
	activity activity
	mux      *http.ServeMux
}

// New returns a receiver for the raw stream of js. It sends no request to the broker.
func New(js jetstream.JetStream, c Config) (*Receiver, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Heartbeat = cmp.Or(c.Heartbeat, streams.HeartbeatInterval)
	if err := c.Admission.check(); err != nil {
		return nil, err
	}
	r := &Receiver{config: c, limits: c.Limits.withDefaults(), publish: newPublisher(js)}
	r.room = newRoom(r.limits.InFlight)
	r.senders.most = r.limits.Requests
	var err error
	if r.metrics, err = newMetrics(c.Meter, r.room); err != nil {
		return nil, err
	}
	r.mux = http.NewServeMux()
	for _, s := range signals {
		r.mux.Handle("POST /v1/"+s.name, r.route(s.name, r.export(s)))
		r.mux.Handle("POST /opentelemetry.proto.collector."+s.service+"/Export", r.route(s.name, r.exportGRPC(s)))
	}
	r.mux.Handle("POST /v1/hooks/{agent}", r.route("hooks", r.hook))
	r.mux.Handle("POST /v1/records/{source}/{session}", r.route("records", r.records))
	return r, nil
}

// ServeHTTP implements [http.Handler].
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.mux.ServeHTTP(w, req) }

// Alive always returns nil: a receiver that waits for the broker needs no restart.
func (*Receiver) Alive() error { return nil }

// Ready returns an error while requests are refused because of the broker.
func (r *Receiver) Ready() error {
	return r.publish.ready(context.Background())
}

// errBrowser refuses requests of pages: a page of any site can send requests to this machine.
var errBrowser = refuse(http.StatusForbidden, "requests of browsers are refused: they have the header Origin")

// call is a request in progress.
type call struct {
	*http.Request

	route  string
	sender Sender
	answer answerer
	bytes  *reservation
}

// route returns the handler of a route: it admits the sender and counts the outcome.
func (r *Receiver) route(name string, handle func(http.ResponseWriter, *call) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		began := time.Now()
		req, span := r.startSpan(req, name, trace.SpanKindServer, semconv.HTTPRequestMethodPost, semconv.HTTPRoute(req.Pattern))
		c := &call{Request: req, route: name, answer: answererOf(req), bytes: r.room.reserve()}
		defer c.bytes.release()
		err := r.admit(c, func() error { return handle(w, c) })
		r.finish(w, c, began, span, err) //nolint:contextcheck // with the span of the request
	})
}

// finish answers a request that is refused, and counts the outcome of any.
func (r *Receiver) finish(w http.ResponseWriter, c *call, began time.Time, span trace.Span, err error) {
	if err != nil && !errors.As(err, new(*partlyRefused)) {
		c.answer.refuse(w, refusalOf(err))
	}
	ctx := c.Context()
	r.metrics.took(ctx, c.route, time.Since(began))
	r.count(ctx, c.route, err)
	r.log(ctx, c.route, err)
	endSpan(span, err)
}

// count counts the outcome of a request.
func (r *Receiver) count(ctx context.Context, route string, err error) {
	outcome := outcomeOf(err)
	r.metrics.requests.Add(ctx, 1, ofRoute(route, outcome))
	r.activity.answered(outcome, err)
}

// admit calls do for a sender that is let in and has no more requests in progress than it may.
func (r *Receiver) admit(c *call, do func() error) error {
	if c.Header.Get("Origin") != "" {
		return errBrowser
	}
	sender, err := r.config.Admission.admit(c.Request)
	if err != nil {
		return err
	}
	leave, err := r.senders.enter(sender.key)
	if err != nil {
		return err
	}
	defer leave()
	c.sender = sender
	return do()
}

// log logs a refused request, without anything of it. What a client can cause at will is for the level debug.
func (r *Receiver) log(ctx context.Context, route string, err error) {
	switch {
	case err == nil, errors.As(err, new(*partlyRefused)):
	case refusalOf(err).retry > 0:
		r.config.Logger.WarnContext(ctx, "requests are refused for now: they are sent again", "route", route, "error", err)
	default:
		r.config.Logger.DebugContext(ctx, "a request is refused", "route", route, "error", err)
	}
}
