package pipelinetest

import "go.uber.org/goleak"

// ServerLeaks returns the goroutines that an embedded nats-server may leave behind, for a check of goroutines after the
// tests: it has no way to stop them.
func ServerLeaks() []goleak.Option {
	const server = "github.com/nats-io/nats-server/v2/server"
	return []goleak.Option{
		goleak.IgnoreTopFunction(server + ".(*msgBlock).flushLoop"), // it was stopped while it stored a message
		// It was stopped while it opened a stream.
		goleak.IgnoreTopFunction(server + ".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction(server + "/ats.Register.func1"),
	}
}
