package pipeline

// What the tests, which are a package of their own, need from inside.
var (
	LastMessagesPaged = lastMessagesPaged
	ReadCheckpoint    = readCheckpoint
	Assignment        = assignment
	ParseClaim        = parseClaim

	ErrTopology     = errTopology
	ErrNoCheckpoint = errNoCheckpoint
	ErrRevision     = errRevision
	ErrRawLost      = errRawLost
	ErrRetired      = errRetired
	ErrState        = errState
	ErrClaim        = errClaim
)

// Limits and names that tests check against.
const (
	MaxTogether   = maxTogether
	MaxAlone      = maxAlone
	BatchBytes    = batchBytes
	WorkersBucket = workersBucket
	ControlBucket = controlBucket
)

// Validate is [Topology.validate].
func (t Topology) Validate() error { return t.validate() }
