// Package runner is the worker process ([Runner]): one stage follows the live generation, and another builds each
// replay beside it. It reports its state when asked ([Ask]): another field is one of [State], which answer fills.
//
// While the live generation has another revision the process is not ready, also while it builds a replay: else an
// orchestrator could replace the workers of the live generation. A replay leaves the live generation its time
// ([worker.Pacer]); the stages share nothing else. A replay that cannot go on is tried again later, a live stage that
// cannot go on ends the process.
package runner
