// Package runner is the worker process ([Runner]): one stage follows the live generation, and another builds each
// replay beside it. It reports its state when asked ([Ask]).
package runner
