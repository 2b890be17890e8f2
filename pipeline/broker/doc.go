// Package broker adds to nats.go what the pipeline needs of NATS JetStream: it reads a stream in order and reports
// what is missing, gets stored messages from the leader, publishes atomic batches with a known outcome, and bounds
// each wait by the connection.
//
// It knows subjects and sequences, not records or events. Every request takes a context and ends with the connection
// ([UntilDisconnected]), so no caller waits for an answer that cannot come.
package broker
