// Package metadata asks the session service of the workers, which is the only writer of titles and pins
// (pipeline/sessions/titles/README.md, Requests).
package metadata

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/sessions/titles"
)

// timeout bounds the wait for the answer to one request.
const timeout = 10 * time.Second

var (
	// ErrNoService is the error of a request that no worker answers.
	ErrNoService = errors.New("no worker answers: start one (tributary run)")
	// ErrRefused is the error of a refused request. The text says why.
	ErrRefused = errors.New("refused")
)

// Request is a request about one session. An endpoint ignores the members that it does not have.
type Request struct {
	Source    envelopes.Source `json:"source"`
	SessionID string           `json:"session_id"`
	Title     *string          `json:"title,omitzero"`
	Pinned    *bool            `json:"pinned,omitzero"`
	IfMatch   *uint64          `json:"if_match,omitzero"` // the version that the metadata must have
}

// Answer is the answer to a change.
type Answer struct {
	Applied         bool   `json:"applied"` // false if nothing had to change
	Title           string `json:"title"`
	MetadataVersion uint64 `json:"metadata_version"`
}

// refusal is an error of the service.
type refusal struct{ text string }

func (r *refusal) Error() string        { return r.text }
func (r *refusal) Is(target error) bool { return target == ErrRefused }

// Ask sends a request to an endpoint of the service. The error is [ErrNoService], [ErrRefused], or a
// [titles.VersionConflictError] if the metadata has another version than the request demands.
func Ask(ctx context.Context, nc *nats.Conn, endpoint string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, titles.SubjectPrefix+endpoint, body)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return ErrNoService
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the workers have not answered %s within %v: see their logs, and the rights of this client", endpoint, timeout)
	case err != nil:
		return err
	case m.Header.Get(micro.ErrorHeader) != "":
		return refused(m)
	}
	return json.Unmarshal(m.Data, answer)
}

// refused returns the error that an answer states.
func refused(m *nats.Msg) error {
	var stated struct {
		Expected *uint64 `json:"expected_version"`
		Current  *uint64 `json:"current_version"`
	}
	if json.Unmarshal(m.Data, &stated) == nil && stated.Expected != nil && stated.Current != nil {
		return &titles.VersionConflictError{Expected: *stated.Expected, Current: *stated.Current}
	}
	return &refusal{terminal.OneLine(m.Header.Get(micro.ErrorHeader))}
}
