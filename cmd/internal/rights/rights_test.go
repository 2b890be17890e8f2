package rights

import (
	"fmt"
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
