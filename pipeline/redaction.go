package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/redact"
)

// errRedacted is the error of a record that the raw stream has unredacted, and that was asked
// for through a generation that redacts its records.
var errRedacted = errors.New("record is redacted")

// redactKeyCure is what an operator does about a worker without the key of the others.
const redactKeyCure = "give this worker the key of the others in TRIBUTARY_REDACT_KEY or TRIBUTARY_REDACT_KEY_FILE"

// newRedactor returns the redactor of a generation, nil when its records are not redacted.
func newRedactor(g Generation, create func(redact.Mode) (*redact.Redactor, error)) (*redact.Redactor, error) {
	if !g.Settings.Redacted() {
		return nil, nil //nolint:nilnil // redacts nothing
	}
	if create == nil {
		return nil, fmt.Errorf("%w: generation %s has redact=%s, and this worker no key: %s", errTopology, g.Name, g.Settings.Redact, redactKeyCure)
	}
	r, err := create(g.Settings.Redact)
	if err != nil {
		return nil, fmt.Errorf("generation %s has redact=%s: %w", g.Name, g.Settings.Redact, err)
	}
	return r, g.Settings.contradiction(g.Name, Settings{RedactKey: r.Fingerprint(), RedactRules: r.RulesFingerprint()})
}

// redact replaces what the generation replaces in a record. It may take as long as the normalizer, and ends soon after
// the ownership does. A record that takes too much work becomes a dead letter, and so does one at which it took too
// long, or that ended workers, without another try: its bytes are left out.
func (o *ownership) redact(r *received) error {
	redactor := o.p.stage.redactor
	switch {
	case redactor == nil:
		return nil
	case fatal(r.err):
		r.Data = nil
		return nil
	}
	call := o.calls.begin(r.Sequence)
	o.p.normalizing.Begin()
	data, hits, err := redactor.Search(o.ctx, r.Data)
	o.p.normalizing.End()
	if !o.calls.end(call) {
		return errLeftBehind
	}
	if err != nil && !errors.Is(err, redact.ErrUnsearched) {
		return err
	}
	r.Data, r.hits, r.err = data, hits, cmp.Or(r.err, err)
	return nil
}

// plainHeaders are the headers of a raw record that have nothing of its content.
var plainHeaders = []string{
	envelopes.HeaderSession, envelopes.HeaderTime, envelopes.HeaderEnd, envelopes.HeaderClaim, envelopes.HeaderPosition,
	envelopes.HeaderRequeued, envelopes.HeaderTraceparent, envelopes.HeaderTracestate,
}

// redactHeader returns the headers of a raw record with placeholders for the values of the others:
// digests of what is redacted could be guessed, and other producers may write anything.
func redactHeader(r *redact.Redactor, h nats.Header) nats.Header {
	if r == nil {
		return h
	}
	out := make(nats.Header, len(h))
	for name, values := range h {
		if !slices.Contains(plainHeaders, name) {
			values = slices.Clone(values)
			for i := range values {
				values[i] = r.Placeholder(values[i])
			}
		}
		out[name] = values
	}
	return out
}

// CheckUnredacted returns an [errRedacted] when a generation redacts its records, so that those
// of the raw stream must not be shown in their place.
func CheckUnredacted(ctx context.Context, js jetstream.JetStream, generation string) error {
	g, err := readGeneration(ctx, js, generation)
	if err == nil && g.Settings.Redacted() {
		err = fmt.Errorf("%w: generation %s has redact=%s, and the raw stream has the records as they were: leave --raw out, the events have the redacted ones",
			errRedacted, generation, g.Settings.Redact)
	}
	return err
}
