// Package offsets remembers how far each file of a machine is shipped, and what identifies the file.
//
// Start with [Read], which reads a [File], and [File.Open], which returns the [Store] of offsets in a raw stream; each
// file has an [Offset].
//
// The invariant: an offset may be behind the broker, never ahead of it, and what is stored after a crash is what was
// stored at an earlier time.
//
// offset.go has what identifies a file, the inode and a digest of its first KiB, and how far it is shipped; acks.go where
// files go back to after a loss of the stream; marks.go where a log has changed; rows.go the rows of a database that were
// sent; store.go all of it in memory; file.go the file. A new field has omitzero. What an older program must not read
// needs another fileVersion, and the ones before are still read.
package offsets
