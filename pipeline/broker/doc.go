// Package broker speaks to NATS JetStream where nats.go does not say enough: it reads a stream in order and says when
// something is missing, gets stored messages from the leader, publishes atomic batches whose outcome is known, and
// bounds each wait by the connection.
//
// It knows subjects and sequences, and nothing of records or events. Every request takes a context and ends with the
// connection ([UntilDisconnected]), so a caller never waits for an answer that cannot come.
package broker
