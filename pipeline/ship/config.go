package ship

import (
	"io"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/redact"
	"tributary/pipeline/ship/offsets"
	"tributary/pipeline/streams"
)

// Config says what a [Ship] ships, and how. One of Roots, Paths and Input must be set; the
// other fields have defaults.
type Config struct {
	Roots  []Root           // where agents keep their logs; not searched when Paths are given, which may lie below them
	Paths  []string         // log files of any name, and folders in which every file is a log
	Source envelopes.Source // limits Roots to this agent; agent of Paths and Input; empty to detect it
	Since  time.Time        // skips files last written before; zero for none

	Input     io.Reader  // shipped to its end instead of files
	Discovery *Discovery // finds the session of plain text on Input; nil for none

	Once    bool   // ships the present content and returns, instead of following
	DryRun  bool   // sends nothing and stores no offsets; implies Once
	Offsets string // path of the offsets file, which stores how far each log is shipped; empty to keep offsets in memory
	Broker  string // the user's name for the broker, such as its URL; another stream at the same broker means that its stream was replaced
	Again   bool   // ships everything again

	Idle   time.Duration // time without a write after which the sessions of a file end; default 5 minutes
	Rescan time.Duration // interval between searches for changes without a notification; default 5 seconds

	Redactor *redact.Redactor // redacts all records before they are sent; nil for none
	Redacted func(Redaction)  // called for each secret of a record, maybe repeatedly; must not block; nil for none

	Edge *envelopes.Edge // sender that the records state; nil for none

	Host      string        // name of this machine in heartbeats; empty to send none
	Version   string        // program version in heartbeats
	Heartbeat time.Duration // interval of the heartbeats; default 30 seconds

	Parallel     int // files read at the same time; default 16
	BatchRecords int // maximum records in a batch; default 1000

	Logger   *slog.Logger  // nil for silence
	Tracer   trace.Tracer  // nil for no traces
	Meter    metric.Meter  // nil for no metrics
	Progress func(Summary) // called after every change, one call at a time; must neither block nor call Summary; nil for none
}

// withDefaults returns a copy of c with defaults filled in.
func (c Config) withDefaults() Config {
	c.Once = c.Once || c.DryRun
	c.Roots = slices.Clone(c.Roots)
	orElse(&c.Idle, 5*time.Minute)
	orElse(&c.Rescan, 5*time.Second)
	orElse(&c.Heartbeat, streams.HeartbeatInterval)
	orElse(&c.Parallel, 16)
	orElse(&c.BatchRecords, broker.MaxBatch)
	c.BatchRecords = min(c.BatchRecords, broker.MaxBatch)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// offsets says where offsets are stored.
func (c Config) offsets() offsets.Config {
	return offsets.Config{Path: c.Offsets, Broker: c.Broker, Logger: c.Logger}
}

func orElse[T int | time.Duration](value *T, standard T) {
	if *value <= 0 {
		*value = standard
	}
}
