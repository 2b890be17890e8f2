// Package runner is a worker process: it follows the live generation with a stage, builds each replay beside it with
// another ([Runner]), and tells how it is when it is asked ([Ask]).
package runner
