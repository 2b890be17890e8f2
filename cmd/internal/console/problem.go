package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"tributary/cmd/internal/rights"
	"tributary/cmd/internal/terminal"
)

// problem is the error of a request for the person who made it. Its text and its cure contain no text of a log.
type problem struct {
	Status     int
	Text, Cure string
	Retry      time.Duration // the time after which the request may succeed; 0 if unknown

	allow string // the allowed method, for [http.StatusMethodNotAllowed]
	cause error
}

// Error implements error.
func (p *problem) Error() string { return strings.TrimSuffix(p.Text+": "+p.Cure, ": ") }

// Unwrap returns the cause.
func (p *problem) Unwrap() error { return p.cause }

// notFound returns the problem of an address that names nothing.
func notFound(text, cure string) error {
	return &problem{Status: http.StatusNotFound, Text: text, Cure: cure}
}

// invalid returns the problem of a query or a form that cannot be understood.
func invalid(text, cure string) error {
	return &problem{Status: http.StatusBadRequest, Text: text, Cure: cure}
}

var errTooLong = errors.New("the request took too long")

// problemOf turns an error into a problem for the person who made the request.
func (c *Console) problemOf(ctx context.Context, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	unanswered := errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) && !errors.Is(context.Cause(ctx), errTooLong)
	if denial, denied := c.denial(); denied && unanswered {
		return &problem{Status: http.StatusForbidden, Text: "the broker denies to " + denial.Right(), Cure: denial.Cure(), cause: err}
	}
	if c.config.Cure != nil {
		err = c.config.Cure(err)
	}
	p := &problem{Status: http.StatusInternalServerError, Text: err.Error(), cause: err}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		p.Status, p.Text, p.Cure = http.StatusRequestEntityTooLarge, "the form is too large", "write at most "+terminal.Size(tooLarge.Limit)
	case errors.Is(err, nats.ErrPermissionViolation):
		p.Status = http.StatusForbidden
	case errors.Is(context.Cause(ctx), errTooLong):
		p.Status, p.Text = http.StatusGatewayTimeout, "this took longer than "+c.limits.Duration.String()+", and was given up"
		p.Cure = "choose a shorter range or another filter"
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrNoResponders),
		unanswered:
		p.Status, p.Retry = http.StatusServiceUnavailable, 5*time.Second
	}
	return p
}

// denial returns the right that the broker denied last.
func (c *Console) denial() (rights.Denial, bool) {
	if c.config.Denials == nil {
		return rights.Denial{}, false
	}
	return c.config.Denials.Last()
}

// fail answers a failed request. It does nothing if err is nil.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil || errors.Is(r.Context().Err(), context.Canceled) { // the browser has gone away
		return
	}
	p := c.problemOf(r.Context(), err)
	if p.Status >= http.StatusInternalServerError {
		c.config.Logger.WarnContext(r.Context(), "a request of the console failed", "route", r.Pattern, "status", p.Status, "error", err)
	}
	if p.Retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(p.Retry.Seconds())))
	}
	if p.allow != "" {
		w.Header().Set("Allow", p.allow)
	}
	view := page{Title: http.StatusText(p.Status), Data: p}
	view.Path = r.URL.Path
	if err := c.render(w, p.Status, "problem", &view); err != nil {
		http.Error(w, p.Error(), p.Status)
	}
}

// recover answers a request whose handler panicked. The log gets the place but not the value, which may contain text
// of a log.
func (c *Console) recover(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint // net/http compares, too
		panic(v)
	}
	stack := make([]byte, 16<<10)
	stack = stack[:runtime.Stack(stack, false)]
	place := "" // the function that panicked: the lines after those of panic itself
	if _, after, ok := strings.Cut(string(stack), "panic("); ok {
		place = after
	}
	c.config.Logger.ErrorContext(r.Context(), "a view of the console panicked", "route", r.Pattern, "stack", cmp.Or(place, string(stack)))
	c.fail(w, r, &problem{Status: http.StatusInternalServerError, Text: "the console made a mistake", Cure: "its log says where"})
}
