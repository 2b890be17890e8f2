package broker_test

import (
	"fmt"
	"testing"

	"tributary/pipeline/broker"
)

// TestALostConnectionIsTemporary: a worker whose connection is lost while it starts begins again, and does not end.
func TestALostConnectionIsTemporary(t *testing.T) {
	t.Parallel()
	if err := fmt.Errorf("read generation: %w", broker.ErrDisconnected); !broker.Unavailable(err) {
		t.Errorf("%v counts as permanent", err)
	}
}
