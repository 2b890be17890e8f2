// Package states encodes and decodes the stored state of a session: the whole state ([Whole]), a change of it
// ([Stored]), and an old state in one message with many others ([Archive]). The worker decides which one to store.
package states
