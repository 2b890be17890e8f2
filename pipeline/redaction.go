package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/records"
	"tributary/pipeline/redact"
	"tributary/pipeline/streams"
)

// newRedactor returns the redactor of a generation, nil when its records are not redacted.
func newRedactor(g streams.Generation, create func(redact.Mode) (*redact.Redactor, error)) (*redact.Redactor, error) {
	if !g.Settings.Redacted() {
		return nil, nil //nolint:nilnil // redacts nothing
	}
	if create == nil {
		return nil, fmt.Errorf("%w: generation %s has redact=%s, and this worker no key: %s", streams.ErrTopology, g.Name, g.Settings.Redact, streams.RedactKeyCure)
	}
	r, err := create(g.Settings.Redact)
	if err != nil {
		return nil, fmt.Errorf("generation %s has redact=%s: %w", g.Name, g.Settings.Redact, err)
	}
	return r, g.Settings.Contradiction(g.Name, streams.Settings{RedactKey: r.Fingerprint(), RedactRules: r.RulesFingerprint()})
}

// redact replaces what the generation replaces in a record. It may take as long as the normalizer, and ends soon after
// the ownership does. A record that takes too much work becomes a dead letter, and so does one at which it took too
// long, or that ended workers, without another try: its bytes are left out.
func (o *ownership) redact(r *received) error {
	redactor := o.p.stage.redactor
	switch {
	case redactor == nil:
		return nil
	case records.Fatal(r.err):
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

// CheckUnredacted returns an [records.ErrRedacted] when a generation redacts its records, so that those
// of the raw stream must not be shown in their place.
func CheckUnredacted(ctx context.Context, js jetstream.JetStream, generation string) error {
	g, err := streams.ReadGeneration(ctx, js, generation)
	if err == nil && g.Settings.Redacted() {
		err = fmt.Errorf("%w: generation %s has redact=%s, and the raw stream has the records as they were: leave --raw out, the events have the redacted ones",
			records.ErrRedacted, generation, g.Settings.Redact)
	}
	return err
}
