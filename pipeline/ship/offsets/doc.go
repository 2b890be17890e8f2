// Package offsets remembers how far each file of a machine is shipped, and what identifies the file.
//
// Start with [Read], which reads a [File], and [File.Open], which returns the [Store] of offsets in a raw stream; each
// file has an [Offset].
//
// The invariant: an offset may be behind the broker, never ahead of it, and what is stored after a crash is what was
// stored at an earlier time.
package offsets
