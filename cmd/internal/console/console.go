// Package console is the page that shows the stream in a browser: an [http.Handler] over the public API of pipeline.
//
// Start with [New] and the table of routes in this file. Each view is a file with its template; request.go has what
// views share. README.md beside this file explains the room.
//
// The invariant: before a request is let in, nothing is read and no goroutine of a view runs. What a view keeps in
// memory is bounded, and dropped when nobody asks for it.
package console

import (
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/console/index"
	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/rights"
	"tributary/pipeline/broker"
)

// Config is what a [Console] needs. JetStream and Logger are required.
type Config struct {
	JetStream  jetstream.JetStream
	Generation string           // to show; empty for the live one at the time of a request
	Pricing    *figures.Pricing // nil for the built-in table
	Zone       *time.Location   // of times, unless the address names one; nil for the local one
	Write      bool             // whether anything can be changed
	Guard      Guard
	Limits     Limits
	Version    string            // of the program
	Denials    *rights.Denials   // what the broker denies to the user of JetStream; nil if nobody notes that
	Cure       func(error) error // adds the cure to an error of the broker; nil for none
	Logger     *slog.Logger      // gets no text from a log of an agent
}

// Limits bound the cost of requests. A zero field stands for its default.
type Limits struct {
	Duration  time.Duration // of a request except live streams; 30 seconds
	Requests  int           // at once, except live streams; 64
	Streams   int           // live streams at once; 64
	Searches  int           // at once, including those of live streams; 4
	Search    time.Duration // of a search for a page, which a script or a link continues; 1.5 seconds
	Lifetime  time.Duration // of a live stream, after which the browser opens another; an hour
	Heartbeat time.Duration // interval in a live stream; 15 seconds
	Body      int64         // bytes of a form; 64 KiB
	Unasked   uint64        // events up to which the overview shows all if the address names no range; 500,000
}

// withDefaults replaces zero fields by their defaults.
func (l Limits) withDefaults() Limits {
	return Limits{
		Duration:  orDefault(l.Duration, 30*time.Second),
		Requests:  orDefault(l.Requests, 64),
		Streams:   orDefault(l.Streams, 64),
		Searches:  orDefault(l.Searches, 4),
		Search:    orDefault(l.Search, 1500*time.Millisecond),
		Lifetime:  orDefault(l.Lifetime, time.Hour),
		Heartbeat: orDefault(l.Heartbeat, 15*time.Second),
		Body:      orDefault(l.Body, 64<<10),
		Unasked:   orDefault(l.Unasked, 500_000),
	}
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// route is an address and the function that answers it. An error becomes a page: see [Console.fail].
type route struct {
	pattern string
	answer  func(*request) error
	kind    kind
}

// kind selects the rules for a route.
type kind int

const (
	reads  kind = iota // bounded by [Limits.Duration] and [Limits.Requests]
	writes             // the same, but only if the console may write
	live               // a stream of events, bounded by [Limits.Streams]
)

// routes lists all addresses, except those of assets and of the login.
func routes() []route {
	return []route{
		{"GET /{$}", in(overviewRequest.overview), reads},
		{"GET /sessions", (*request).sessions, reads},
		{"GET /sessions/live", (*request).followSessions, live},
		{"GET /sessions/{source}/{session}/title", in(titleRequest.askTitle), reads},
		{"POST /sessions/{source}/{session}/title", in(titleRequest.setTitle), writes},
		{"POST /sessions/{source}/{session}/pin", in(titleRequest.setPin), writes},
		{"GET /sessions/{source}/{session}", in(sessionRequest.session), reads},
		{"GET /sessions/{source}/{session}/timeline", in(sessionRequest.outline), reads},
		{"GET /sessions/{source}/{session}/live", in(sessionRequest.sessionLive), live},
		{"GET /sessions/{source}/{session}/events/{id}", in(sessionRequest.event), reads},
		{"GET /sessions/{source}/{session}/events/{id}/{part}", in(sessionRequest.eventPart), reads},
		{"GET /search", (*request).search, reads},
		{"GET /search/hits", (*request).searchHits, live},
		{"GET /tools", (*request).tools, reads},
		{"GET /pipeline", in(pipelineRequest.pipeline), reads},
		{"GET /pipeline/live", in(pipelineRequest.pipelineLive), live},
		{"GET /pipeline/generations/{generation}", in(pipelineRequest.showGeneration), reads},
		{"GET /pipeline/generations/{generation}/{step}", in(pipelineRequest.askStep), reads},
		{"POST /pipeline/generations/{generation}/{step}", in(pipelineRequest.takeStep), writes},
		{"GET /pipeline/diff", in(pipelineRequest.diff), reads},
		{"GET /pipeline/diff/live", in(pipelineRequest.diffLive), live},
		{"GET /pipeline/letters", in(letterRequest.listLetters), reads},
		{"GET /pipeline/letters/requeue", in(letterRequest.askRequeueAll), reads},
		{"POST /pipeline/letters/requeue", in(letterRequest.requeueAll), writes},
		{"GET /pipeline/letters/{generation}/{place}", in(letterRequest.showLetter), reads},
		{"GET /pipeline/letters/{generation}/{place}/raw", in(letterRequest.rawLetter), reads},
		{"GET /pipeline/letters/{generation}/{place}/requeue", in(letterRequest.askRequeue), reads},
		{"POST /pipeline/letters/{generation}/{place}/requeue", in(letterRequest.requeue), writes},
	}
}

// in adapts an answer of a view that has its own request type.
func in[T ~struct{ *request }](answer func(T) error) func(*request) error {
	return func(r *request) error { return answer(T(struct{ *request }{r})) }
}

// views are the entries of the navigation.
var views = []struct{ Path, Name string }{
	{"/", "Overview"},
	{"/sessions", "Sessions"},
	{"/search", "Search"},
	{"/tools", "Tools"},
	{"/pipeline", "Pipeline"},
}

// Console answers the requests of browsers. Several goroutines may use it at once.
type Console struct {
	config    Config
	limits    Limits
	guard     *guard
	assets    *assets
	templates map[string]*template.Template // by the name of the view
	mux       *http.ServeMux
	requests  chan struct{} // a slot for each request in progress
	streams   chan struct{} // a slot for each live stream
	overviews chan struct{} // a slot for each overview in progress
	searches  broker.Limit  // of requests that read all events
	index     *index.Index  // of the sessions; it has content while somebody looks
	opened    atomic.Bool
	closed    chan struct{}
	close     func()
	state     *state // of the pages of the pipeline
}

// New returns a console. It reads nothing and starts nothing.
func New(cfg Config) (*Console, error) { return assemble(cfg, routes()) }

// assemble returns a console with the given routes.
func assemble(cfg Config, routes []route) (*Console, error) {
	if cfg.JetStream == nil || cfg.Logger == nil {
		return nil, errors.New("a console needs JetStream and a logger")
	}
	if cfg.Zone == nil {
		cfg.Zone = time.Local
	}
	if cfg.Pricing == nil {
		cfg.Pricing = figures.BuiltinPricing()
	}
	limits := cfg.Limits.withDefaults()
	c := &Console{
		config: cfg, limits: limits, mux: http.NewServeMux(),
		requests: make(chan struct{}, limits.Requests), streams: make(chan struct{}, limits.Streams), overviews: make(chan struct{}, maxOverviews),
		searches: broker.NewLimit(limits.Searches), closed: make(chan struct{}), state: newState(),
	}
	c.index = index.New(cfg.JetStream, index.Config{Generation: cfg.Generation, Pricing: cfg.Pricing, Logger: cfg.Logger})
	c.close = sync.OnceFunc(func() {
		close(c.closed)
		c.index.Close()
	})
	var err error
	if c.guard, err = newGuard(cfg.Guard); err != nil {
		return nil, err
	}
	if c.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	if c.templates, err = loadTemplates(c.assets); err != nil {
		return nil, err
	}
	for _, route := range routes {
		c.mux.HandleFunc(route.pattern, func(w http.ResponseWriter, r *http.Request) { c.answer(w, r, route) })
	}
	c.mux.HandleFunc("GET "+assetsPath+"{digest}/{name...}", func(w http.ResponseWriter, r *http.Request) { c.fail(w, r, c.assets.serve(w, r)) })
	c.mux.HandleFunc("GET "+loginPath, func(w http.ResponseWriter, r *http.Request) { c.fail(w, r, c.askToken(w, r, http.StatusOK, "")) })
	c.mux.HandleFunc("POST "+loginPath, func(w http.ResponseWriter, r *http.Request) { c.fail(w, r, c.login(w, r)) })
	c.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { c.fail(w, r, c.unknown(r)) })
	return c, nil
}

// Opened reports whether a page has been asked for.
func (c *Console) Opened() bool { return c.opened.Load() }

// Close ends the live streams and drops the index of the sessions. Other requests are still answered.
func (c *Console) Close() { c.close() }

// ServeHTTP implements [http.Handler].
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer c.recover(w, r)
	setHeaders(w.Header())
	r.Body = http.MaxBytesReader(w, r.Body, c.limits.Body)
	admitted, err := c.admit(w, r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	if admitted != nil {
		c.mux.ServeHTTP(w, admitted)
	}
}

// answer answers a request within the limits of its route.
func (c *Console) answer(w http.ResponseWriter, r *http.Request, route route) {
	c.opened.Store(true)
	places, busy := c.requests, "the console answers as many requests as it may"
	if route.kind == live {
		places, busy = c.streams, "as many live streams are open as may be: close other pages of the console"
	}
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		c.fail(w, r, &problem{Status: http.StatusServiceUnavailable, Text: busy, Cure: "try again in a moment", Retry: 5 * time.Second})
		return
	}
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if route.kind != live {
		ctx, cancel = context.WithTimeoutCause(ctx, c.limits.Duration, errTooLong)
	}
	defer cancel()
	r = r.WithContext(ctx)
	begin := time.Now()
	err := c.perform(w, r, route)
	level := slog.LevelDebug
	if route.kind == writes {
		level = slog.LevelInfo // changes are always logged, with their user
	}
	// The log gets neither the address nor the error: they may contain what a person searched for.
	c.config.Logger.Log(ctx, level, "request of the console", "route", route.pattern, "user", userOf(r), "duration", time.Since(begin), "done", err == nil)
	c.fail(w, r, err)
}

// perform calls the answer of a route.
func (c *Console) perform(w http.ResponseWriter, r *http.Request, route route) error {
	if route.kind == writes && !c.config.Write {
		return errReadOnly()
	}
	if !c.config.JetStream.Conn().IsConnected() { // a view would only wait for an answer
		return &problem{
			Status: http.StatusServiceUnavailable, Text: "the connection to the broker is lost",
			Cure: "look whether it runs, and load the page again", Retry: 5 * time.Second,
		}
	}
	request, err := c.newRequest(w, r)
	if err != nil {
		return err
	}
	return route.answer(request)
}

// errReadOnly returns the problem of a change if the console only reads.
func errReadOnly() error {
	return &problem{Status: http.StatusForbidden, Text: "this console only reads", Cure: "start it with --write to change things here"}
}

// unknown returns the problem of an address without a route.
func (c *Console) unknown(r *http.Request) error {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := c.mux.Handler(other); pattern != "/" && pattern != "" {
			return &problem{Status: http.StatusMethodNotAllowed, Text: "this address does not take this method", allow: method}
		}
	}
	return notFound("there is no such page", "follow the links of the console")
}
