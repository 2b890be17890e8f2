package normalizers_test

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"tributary/normalizers/normalizerstest"
)

// limitsLarge makes the tests that replace every value of every record do so with every
// replacement; without it each place gets some of them.
var limitsLarge = flag.Bool("limits.large", false, "replace every value of the golden records by every other value, and by a string beyond all limits")

// everyPosition makes the law of an unknown record try every position of every file; without
// it some of a long file are left out.
var everyPosition = flag.Bool("positions.all", false, "put a record of an unknown type in front of every record, also in the longest files")

// quickChecks is how many files a property generates where neither -rapid.checks nor
// RAPID_CHECKS asks for another number.
const quickChecks = "25"

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
