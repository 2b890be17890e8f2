package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/doctor"
	"tributary/cmd/internal/rights"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// pipelineRequest is a request of the pages of the pipeline and of generations.
type pipelineRequest struct{ *request }

// How often pages examine the broker, and how often an open page asks for news.
const (
	examineEvery = 3 * time.Second
	examineShare = 10 // the examination takes at most a tenth of the time, however long it lasts
	refreshEvery = 2 * time.Second
)

// state is what requests of the view share, so that many open pages cost the broker no more than one.
type state struct {
	diagnosis   *shared[*doctor.Diagnosis]
	generations *shared[*generationList]
	comparison  *shared[*comparison]
}

func newState() *state {
	return &state{newShared[*doctor.Diagnosis](), newShared[*generationList](), newShared[*comparison]()}
}

// shared is a value that requests share. One request reads it at a time; the others wait.
type shared[T any] struct {
	turn  chan struct{} // the right to read
	key   string        // of the last value
	value T
	at    time.Time     // when it was read; zero for never
	took  time.Duration // how long reading took
}

func newShared[T any]() *shared[T] { return &shared[T]{turn: make(chan struct{}, 1)} }

// get returns the value of a key. It reads the value again if the last one has another key, or is older than age and
// than ten times the duration of the last reading. If it has to wait for another request, it calls waiting, which may
// be nil.
func (s *shared[T]) get(ctx context.Context, key string, age time.Duration, waiting func(), read func(context.Context) (T, error)) (value T, err error) {
	select {
	case s.turn <- struct{}{}:
	default:
		if waiting != nil {
			waiting()
		}
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return value, context.Cause(ctx)
		}
	}
	defer func() { <-s.turn }()
	begin := time.Now()
	if s.key == key && !s.at.IsZero() && begin.Sub(s.at) < max(age, examineShare*s.took) {
		return s.value, nil
	}
	if value, err = read(ctx); err != nil {
		return value, err
	}
	s.key, s.value, s.at = key, value, time.Now()
	s.took = s.at.Sub(begin)
	return value, nil
}

// forget makes the next request read the value again, after a change.
func (s *shared[T]) forget() {
	s.turn <- struct{}{}
	s.at = time.Time{}
	<-s.turn
}

// permitted runs do, which reads. A denied right ends do at once and becomes a problem that names the right.
func (r *request) permitted(ctx context.Context, do func(context.Context) error) error {
	denied, err := r.config.Denials.During(ctx, do)
	if denied != nil && err != nil {
		return deniedRight(*denied, err)
	}
	return err
}

// deniedGrace is how long a change continues after the broker denied a right, perhaps to another request.
const deniedGrace = 2 * time.Second

// change runs do, which changes something. do continues if the browser goes away, because half a change helps nobody.
func (r *request) change(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), r.limits.Duration)
	defer cancel()
	var denied *rights.Denial
	stop := r.config.Denials.Watch(func(is rights.Denial) {
		if denied == nil {
			denied = &is
			time.AfterFunc(deniedGrace, cancel)
		}
	})
	err := do(ctx)
	stop()
	switch {
	case err == nil || ctx.Err() == nil:
		return refusal(err)
	case denied != nil:
		return deniedRight(*denied, err)
	default:
		return &problem{Status: http.StatusGatewayTimeout, Text: "this has taken long, and may be done in part", Cure: "ask for it again, which finishes it", cause: err}
	}
}

// deniedRight returns the problem of a denied right.
func deniedRight(is rights.Denial, cause error) error {
	return &problem{Status: http.StatusForbidden, Text: "the broker denies to " + is.Right(), Cure: is.Cure(), cause: cause}
}

// refusal turns the error of a change that is impossible now into a problem of the person who asked for it.
func refusal(err error) error {
	for _, of := range []struct {
		err    error
		status int
	}{
		{streams.ErrNoGeneration, http.StatusNotFound},
		{streams.ErrLive, http.StatusConflict},
		{streams.ErrNotReady, http.StatusConflict},
		{streams.ErrInterrupted, http.StatusConflict},
		{streams.ErrStarting, http.StatusConflict},
		{streams.ErrDropping, http.StatusConflict},
		{streams.ErrChanged, http.StatusConflict},
	} {
		if errors.Is(err, of.err) {
			return &problem{Status: of.status, Text: err.Error(), cause: err}
		}
	}
	return err
}

// conflict returns the problem of a change that the current state does not allow.
func conflict(text, cure string) error {
	return &problem{Status: http.StatusConflict, Text: text, Cure: cure}
}

// noWorker returns the problem of a broker without any part of the pipeline, and other errors as they are.
func noWorker(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) {
		return &problem{Status: http.StatusNotFound, Text: err.Error(), Cure: "start a worker, which creates what is missing: tributary run", cause: err}
	}
	return err
}

// diagnosis returns the diagnosis of doctor, at most a few seconds old.
func (r pipelineRequest) diagnosis(ctx context.Context) (*doctor.Diagnosis, error) {
	generation, err := r.generation(ctx)
	if err != nil {
		return nil, err
	}
	return r.state.diagnosis.get(ctx, generation, examineEvery, nil, func(ctx context.Context) (*doctor.Diagnosis, error) {
		var t streams.Topology
		err := r.permitted(ctx, func(ctx context.Context) (err error) {
			t, err = streams.StoredTopology(ctx, r.config.JetStream, generation)
			return noWorker(err)
		})
		if err != nil {
			return nil, err
		}
		return doctor.Examine(ctx, r.config.JetStream, doctor.Options{
			Topology: t, Denials: r.config.Denials,
			Skipped: func(err error) {
				r.config.Logger.DebugContext(ctx, "a message among the dead letters is none", "error", err)
			},
		})
	})
}

// pipelineView is the data of the view. A part that could not be read has a problem.
type pipelineView struct {
	Examined       *examined // nil if there is none
	Problem        *problem  // why there is none
	Generations    *generationList
	Ungenerational *problem
	Done           string // what was just changed; empty for nothing
	Sections       []string
}

// pipelineSections are the parts of the page that are updated, each a block of the template.
var pipelineSections = []string{"problems", "summary", "generations", "partitions", "workers", "edges", "streams", "checks", "readers"}

// examined is a diagnosis for the page.
type examined struct {
	*doctor.Diagnosis

	Now     time.Time
	Waits   uint64 // how many records are not done
	Oldest  time.Time
	Rows    []partitionRow // partitions that wait or have stopped
	Others  []partitionRow // partitions that have done every record
	People  []workerRow
	Machine []edgeRow
	Readers []readerRow
	Judged  []checkRow
}

// Unseen returns the check of rights if the broker denied something, because doctor finds no problem in what it
// cannot read. It is nil if everything was read.
func (x *examined) Unseen() *doctor.Check {
	i := slices.IndexFunc(x.Checks, func(c doctor.Check) bool { return c.Name == "rights" && c.Verdict == doctor.Unknown })
	if i < 0 {
		return nil
	}
	return &x.Checks[i]
}

type checkRow struct {
	doctor.Check
	Class string
}

type partitionRow struct {
	replay.PartitionStatus
	Oldest time.Time
}

type workerRow struct {
	Name, Partitions, State, Class string
	Since, Seen                    time.Time
	Error                          string
}

type edgeRow struct {
	streams.Edge
	State, Class, Unsent string
	SeenAt, Waiting      time.Time
}

type readerRow struct {
	Name, Generation, State string
	Behind                  uint64
	Oldest                  time.Time
}

// examinedOf prepares a diagnosis for the page.
func (r pipelineRequest) examinedOf(d *doctor.Diagnosis) *examined {
	in := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return t.In(r.filter.Zone)
	}
	x := &examined{Diagnosis: d, Now: in(d.At)}
	lag, oldest := d.Lag()
	x.Waits = lag
	if oldest != nil {
		x.Oldest = in(*oldest)
	}
	for _, p := range d.Partitions {
		row := partitionRow{PartitionStatus: p}
		if p.Oldest != nil {
			row.Oldest = in(*p.Oldest)
		}
		if p.Lag == 0 && p.Fault == "" {
			x.Others = append(x.Others, row)
		} else {
			x.Rows = append(x.Rows, row)
		}
	}
	r.addWorkers(x, in)
	for _, e := range d.Edges {
		row := edgeRow{Edge: e, State: d.EdgeState(e), SeenAt: in(e.Seen), Waiting: in(e.Oldest)}
		row.Class = map[string]string{"following": "good", "sending": "good", "silent": "warn"}[row.State]
		if e.Behind > 0 {
			row.Unsent = doctor.EdgeBacklog(e)
		}
		x.Machine = append(x.Machine, row)
	}
	for _, s := range d.Subscriptions {
		x.Readers = append(x.Readers, readerRow{s.Name, s.Generation, doctor.ReaderState(&s.ReaderStatus), s.Behind, in(s.Oldest)})
	}
	for _, c := range d.Checks {
		class := map[string]string{doctor.OK: "good", doctor.Warning: "warn", doctor.Problem: "bad"}[c.Verdict]
		x.Judged = append(x.Judged, checkRow{c, class})
	}
	return x
}

// addWorkers adds the workers, what they own, and the last error of those that answered.
func (r pipelineRequest) addWorkers(x *examined, in func(time.Time) time.Time) {
	d := x.Diagnosis
	errorOf := func(name string) string {
		for _, a := range d.Answers {
			if a.Name == name && a.Error != "" {
				return terminal.Rough(a.Age()) + " ago: " + a.Error
			}
		}
		return ""
	}
	for _, w := range d.Workers {
		row := workerRow{Name: w.Name, State: "alive", Class: "good", Since: in(w.Since), Seen: in(w.Seen), Error: errorOf(w.Name)}
		var owned []int
		for _, p := range d.Partitions {
			if p.Worker == w.Name {
				owned = append(owned, p.Partition)
			}
		}
		row.Partitions = streams.Ranges(owned)
		switch {
		case w.Silent(d.At):
			row.State, row.Class = "no heartbeat, considered dead", "bad"
		case len(w.Hanging) > 0:
			row.State, row.Class = "its normalizer hangs", "bad"
		case w.Leaving:
			row.State, row.Class = "is stopping", "warn"
		}
		x.People = append(x.People, row)
	}
	for _, w := range d.Waiting {
		x.People = append(x.People, workerRow{Name: w.Name, State: "of another revision, does nothing", Class: "warn", Since: in(w.Since), Seen: in(w.Seen), Error: errorOf(w.Name)})
	}
}

// readPipeline reads the data of the view. A part that cannot be read becomes a problem.
func (r pipelineRequest) readPipeline(ctx context.Context) *pipelineView {
	view := &pipelineView{Sections: pipelineSections}
	d, err := r.diagnosis(ctx)
	if err != nil {
		view.Problem = r.problemOf(ctx, err)
	} else {
		view.Examined = r.examinedOf(d)
	}
	if view.Generations, err = r.generations(ctx); err != nil {
		view.Ungenerational = r.problemOf(ctx, err)
	}
	return view
}

// pipeline answers with the state of the broker, the workers, the edges and the generations.
func (r pipelineRequest) pipeline() error {
	view := r.readPipeline(r.Context())
	view.Done = r.done()
	return r.page("pipeline", "Pipeline", view)
}

// pipelineLive sends the sections of the page when they change.
func (r pipelineRequest) pipelineLive() error {
	return r.live(func(ctx context.Context, s *stream) error {
		tick := time.NewTicker(refreshEvery)
		defer tick.Stop()
		sent := map[string]string{}
		for {
			reading, cancel := context.WithTimeoutCause(ctx, r.limits.Duration, errTooLong)
			view := r.readPipeline(reading)
			cancel()
			for _, section := range pipelineSections {
				html, err := r.fragment("pipeline", "pipeline-"+section, map[string]any{"Data": view, "Write": r.config.Write})
				if err != nil {
					return err
				}
				if html == sent[section] {
					continue
				}
				if err := s.send("section", "", map[string]string{"name": section, "html": html}); err != nil {
					return err
				}
				sent[section] = html
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// changes are the sentences about the last change, by its word in the address.
var changes = map[string]string{
	"promoted": "The generation is live.",
	"back":     "The generation is live again.",
	"dropped":  "The generation was removed.",
	"requeued": "The record was published again: a worker appends its events to its session.",
	"waiting":  "The record was requeued minutes ago already, and waits for a worker: it was not published twice.",
}

// done returns the sentence about the change that the address names; empty for none.
func (r *request) done() string { return changes[r.URL.Query().Get("done")] }

// generationName returns the generation that the address names.
func (r *request) generationName() (string, error) {
	name := r.PathValue("generation")
	if envelopes.CheckGeneration(name) != nil {
		return "", notFound("there is no such generation", "choose one of the list")
	}
	return name, nil
}

// form parses the form of a change.
func (r *request) form() error {
	if err := r.ParseForm(); err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			return err
		}
		return invalid("the form cannot be read", "send it again")
	}
	return nil
}

// sentence ends a text with a full stop.
func sentence(text string) string { return strings.TrimSuffix(text, ".") + "." }
