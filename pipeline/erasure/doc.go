// Package erasure removes everything that the broker has of sessions, in every generation, and logs it.
//
// Start with [Run]. README.md beside this file explains the order of its steps.
//
// The invariant: an erasure is in the log before anything is removed, and every step may be repeated, so the same command
// finishes one that was killed anywhere. Once a partition is fenced, no commit of a worker that does not know of the
// erasure succeeds. Everything is removed behind the fence.
package erasure
