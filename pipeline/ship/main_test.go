package ship_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests, and checks that they leave no goroutine. In the processes that
// a test starts to kill them it ships instead.
func TestMain(m *testing.M) {
	if root := os.Getenv(victimRoot); root != "" {
		os.Exit(victim(root))
	}
	goleak.VerifyTestMain(m)
}
