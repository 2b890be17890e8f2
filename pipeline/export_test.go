package pipeline

// For tests of what only shows at the borders.
var (
	LastMessagesPaged = lastMessagesPaged
	ReadCheckpoint    = readCheckpoint
	Assignment        = assignment
)

// What tests count up to.
const (
	MaxTogether    = maxTogether
	MaxAlone       = maxAlone
	CommitMessages = commitMessages
	CommitBytes    = commitBytes
)
