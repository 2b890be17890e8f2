// Package states is how the state of a session is stored: in full ([Whole]), as a change of that ([Stored]), and, once
// it is old, together with many others in one message ([Archive]). It encodes and decodes; the worker decides when.
package states
