package ship_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

var limitsLarge = flag.Bool("limits.large", false, "run the tests of limits at their full size: a line of 1 GiB")

// TestMain runs the tests and checks that they leave no goroutine. In the processes that a
// test starts in order to kill them, it ships instead.
func TestMain(m *testing.M) {
	if root := os.Getenv(victimRoot); root != "" {
		os.Exit(victim(root))
	}
	if err := waitTogether(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m)
}

// waitTogether raises the default number of parallel tests: most of them wait, for a broker
// that is away or for a file to become idle.
func waitTogether() error {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if set {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0)))
}
