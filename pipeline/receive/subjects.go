package receive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// Subject is a subject of NATS at which exporters of OpenTelemetry collectors publish: each message is an export
// request, in protobuf or JSON. No stream is in front of the receiver: it would store each record twice, and needs
// rights that producers lack.
type Subject struct {
	Signal string // logs, traces or metrics
	Name   string // may have wildcards
}

// Address returns the name of the subject among the addresses of a receiver.
func (s Subject) Address() string { return "nats:" + s.Name }

// subjectQueue is the queue group of all receivers: each message is for one of them.
const subjectQueue = "tributary-receive"

// Errors of subjects.
var (
	errSubject  = errors.New("is not SIGNAL=SUBJECT with one of logs, traces, metrics")
	errWildcard = errors.New("begins with a wildcard, so it has every message of others, too")
)

// ParseSubjects reads a list of subjects such as logs=otel_logs,traces=otel_traces.
func ParseSubjects(text string) ([]Subject, error) {
	var list []Subject
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		kind, name, _ := strings.Cut(part, "=")
		known := slices.ContainsFunc(signals, func(s signal) bool { return s.name == kind })
		switch {
		case !known, strings.ContainsAny(name, " \t\r\n"), slices.Contains(strings.Split(name, "."), ""):
			return nil, fmt.Errorf("%q %w", part, errSubject)
		case strings.HasPrefix(name, "*"), strings.HasPrefix(name, ">"):
			return nil, fmt.Errorf("%q %w", part, errWildcard)
		}
		list = append(list, Subject{kind, name})
	}
	return list, nil
}

// routeOf returns the name in metrics of a signal that comes by subjects.
func routeOf(s signal) string { return "nats_" + s.name }

// messageRetry is how long a message without an inbox waits before the receiver tries again to store it.
const messageRetry = time.Second

// errDropped counts messages that no memory was left for.
var errDropped = refuse(http.StatusTooManyRequests, "messages of a subject came faster than they were stored: run more receivers")

// subscribe takes what is published to the subjects of the settings. stop ends it after the messages that have
// arrived, or with its context: then those that are not stored are lost.
func (r *Receiver) subscribe(ctx context.Context) (stop func(context.Context), err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var subs []*nats.Subscription
	var ended []chan struct{}
	stop = func(ending context.Context) {
		for _, s := range subs {
			_ = s.Drain() // fails if the connection is closed, which ends the subscription, too
		}
		defer cancel()
		for i, end := range ended {
			select {
			case <-end:
			case <-ending.Done():
				cancel()
				_ = subs[i].Unsubscribe() // as above
				<-end
			}
		}
	}
	for _, of := range r.config.Subjects {
		t := taker{Receiver: r, signal: signals[slices.IndexFunc(signals, func(s signal) bool { return s.name == of.Signal })]}
		s, err := r.publish.nc.QueueSubscribe(of.Name, subjectQueue, func(m *nats.Msg) { t.take(ctx, m) })
		if err != nil {
			stop(ctx)
			return nil, fmt.Errorf("subscribe to %s: %w", of.Name, err)
		}
		end := make(chan struct{})
		s.SetClosedHandler(func(string) { close(end) })
		subs, ended = append(subs, s), append(ended, end)
		if err := s.SetPendingLimits(-1, int(r.limits.InFlight)); err != nil {
			stop(ctx)
			return nil, fmt.Errorf("subscribe to %s: %w", of.Name, err)
		}
	}
	return stop, nil
}

// taker stores the messages of a subscription, one after the other: they keep their order, and while one waits, the
// others wait in the memory of the subscription, or in that of other receivers.
type taker struct {
	*Receiver

	signal  signal
	dropped int // messages that are counted
}

// take stores a message. One whose publisher waits for no answer is tried again until the broker stores it: nobody else
// could send it again.
func (t *taker) take(ctx context.Context, m *nats.Msg) {
	for {
		err := t.try(ctx, m)
		if err == nil || answered(m) || errors.As(err, new(*partlyRefused)) || refusalOf(err).retry == 0 || broker.Pause(ctx, messageRetry) != nil {
			break
		}
	}
	if n, err := m.Sub.Dropped(); err == nil {
		for ; t.dropped < n; t.dropped++ {
			t.count(ctx, routeOf(t.signal), errDropped)
		}
	}
}

// try stores a message and answers it.
func (t *taker) try(ctx context.Context, m *nats.Msg) error {
	began, route := time.Now(), routeOf(t.signal)
	req := (&http.Request{Header: make(http.Header)}).WithContext(ctx)
	for name := range m.Header {
		req.Header.Set(name, m.Header.Get(name))
	}
	req, span := t.startSpan(req, route, trace.SpanKindConsumer,
		semconv.MessagingSystemKey.String("nats"), semconv.MessagingDestinationName(m.Subject), semconv.MessagingOperationTypeProcess)
	c := &call{Request: req, route: route, sender: t.config.Admission.publisher(), answer: messageAnswerer{m}, bytes: t.room.reserve()}
	defer c.bytes.release()
	err := t.store(c, m.Data)          //nolint:contextcheck // with the span of the message
	t.finish(nil, c, began, span, err) //nolint:contextcheck // as above
	return err
}

func (t *taker) store(c *call, data []byte) error {
	switch size := int64(len(data)); {
	case size > t.limits.Body:
		return errTooLarge
	case !c.bytes.grow(size):
		return errBusy
	}
	// A request in protobuf begins with its first field, never with a brace.
	return t.storeExport(nil, c, t.signal, data, len(data) > 0 && data[0] == '{')
}

// answered reports whether the publisher of a message waits for an answer. A subject that is no inbox gets none: the
// rights of the receiver are not those of the publisher, who could name that of a stream.
func answered(m *nats.Msg) bool {
	return strings.HasPrefix(m.Reply, "_INBOX") || strings.HasPrefix(m.Reply, "_R_")
}

// messageAnswerer answers a message as JetStream acknowledges one, so that its clients understand the answer.
type messageAnswerer struct{ *nats.Msg }

func (a messageAnswerer) respond(answer any) error {
	if !answered(a.Msg) {
		return nil
	}
	data, err := json.Marshal(answer)
	if err == nil {
		_ = a.Respond(data) // fails if the connection is lost: the publisher sends it again
	}
	return err
}

func (a messageAnswerer) accept(_ http.ResponseWriter, r response) (err error) {
	answer := struct {
		Stream   string         `json:"stream"`
		Sequence uint64         `json:"seq"` // the records of a message have more than one
		Response jsontext.Value `json:"response,omitempty"`
	}{Stream: streams.RawStream}
	if r != nil {
		if answer.Response, err = r.MarshalJSON(); err != nil {
			return err
		}
	}
	return a.respond(answer)
}

func (a messageAnswerer) refuse(_ http.ResponseWriter, r *refusal) {
	type failure struct {
		Code        int    `json:"code"`
		Description string `json:"description"`
	}
	_ = a.respond(struct { // never fails
		Error failure `json:"error"`
	}{failure{r.http, r.text}})
}
