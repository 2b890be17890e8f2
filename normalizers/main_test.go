package normalizers_test

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"tributary/normalizers/normalizerstest"
)

// limitsLarge makes the tests that replace values of golden records do so in more places; each place gets every
// replacement.
var limitsLarge = flag.Bool("limits.large", false, "replace more values of the golden records, each by every other value, and by strings beyond all limits")

// everyPosition makes laws look at the state of a session before every record of every file, and perturbations try
// every line in every position; without it some are left out.
var everyPosition = flag.Bool("positions.all", false, "look at the state of a session before every record, also in the longest files, and put every further line there")

// quickChecks is how many files a property generates where neither -rapid.checks nor
// RAPID_CHECKS asks for another number.
const quickChecks = "12"

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // tests leave much behind, and little of it is long in use
	debug.SetMemoryLimit(2 << 30)
	if *everyPosition {
		normalizerstest.MaxPositions = 0
	}
	stated := os.Getenv("RAPID_CHECKS") != ""
	flag.Visit(func(f *flag.Flag) { stated = stated || f.Name == "rapid.checks" })
	if !stated {
		if err := flag.Set("rapid.checks", quickChecks); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
