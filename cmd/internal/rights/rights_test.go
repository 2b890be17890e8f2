package rights

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// Each watcher gets what is denied while it watches, and the log gets it while nobody does.
func TestEachWatcherGetsWhatIsDeniedMeanwhile(t *testing.T) {
	t.Parallel()
	var d Denials
	if _, ok := d.Last(); ok {
		t.Error("a right is denied before any was")
	}
	one, ok := Of(fmt.Errorf(`%w: Permissions Violation for Publish to "$JS.API.CONSUMER.CREATE.RAW.x"`, nats.ErrPermissionViolation))
	if !ok || one.Right() != "publish to $JS.API.CONSUMER.CREATE.RAW.x" {
		t.Fatalf("%v %v", one, ok)
	}
	var first, second int
	stopFirst := d.Watch(func(Denial) { first++ })
	stopSecond := d.Watch(func(Denial) { second++ })
	if d.Note(one) {
		t.Error("the log gets what two watch")
	}
	stopFirst()
	if d.Note(one) {
		t.Error("the log gets what one watches")
	}
	stopSecond()
	if !d.Note(one) {
		t.Error("nobody gets what nobody watches")
	}
	if last, ok := d.Last(); first != 1 || second != 2 || !ok || last != one {
		t.Errorf("the first watcher got %d, the second %d; the last is %v", first, second, last)
	}
}

// Whoever may not subscribe to answers can choose their prefix; to a subject of the settings, nobody can.
func TestCureOfASubscription(t *testing.T) {
	t.Parallel()
	for subject, prefix := range map[string]bool{"_INBOX.a.*": true, "otel_logs": false} {
		one, ok := Of(fmt.Errorf(`%w: Permissions Violation for Subscription to "%s" using queue "q"`, nats.ErrPermissionViolation, subject))
		if !ok || one.Right() != "subscribe to "+subject || strings.Contains(one.Cure(), "NATS_INBOX_PREFIX") != prefix {
			t.Errorf("%s: %s", one.Right(), one.Cure())
		}
	}
}

// A request that is denied gets no answer: During ends it at the first denial. What nobody denies goes on.
func TestWhatIsDeniedEndsAtOnce(t *testing.T) {
	t.Parallel()
	var d Denials
	one, _ := Of(fmt.Errorf(`%w: Permissions Violation for Publish to "raw.codex.s"`, nats.ErrPermissionViolation))
	denied, err := d.During(t.Context(), func(ctx context.Context) error {
		d.Note(one)
		<-ctx.Done()
		return ctx.Err()
	})
	if denied == nil || *denied != one || !errors.Is(err, context.Canceled) {
		t.Errorf("denied %v, %v", denied, err)
	}
	for _, all := range []*Denials{&d, nil} {
		denied, err := all.During(t.Context(), func(ctx context.Context) error { return ctx.Err() })
		if denied != nil || err != nil {
			t.Errorf("denied %v, %v", denied, err)
		}
	}
}
