package core

// Balance is what the telemetry of a session has stated of its tokens above the log, part by part; below zero if it has
// stated less. It is for an agent that gives its API calls no id that both channels have. The parts of the counts must
// not overlap. Of each part the session bills the higher of the two sums, at any moment: when both channels have stated
// all, that is what either states, whatever the order, and when each lacks some, no token is billed twice.
type Balance [5]int64

// Logged notes parts that the log would bill, and returns what the telemetry has not billed of them.
func (b *Balance) Logged(use [5]int64) (fresh [5]int64) {
	for i, n := range use {
		fresh[i] = max(0, n-max(0, b[i]))
		b[i] -= n
	}
	return fresh
}

// Exported notes parts that the telemetry states, and returns what the log has not billed of them.
func (b *Balance) Exported(use [5]int64) (fresh [5]int64) {
	for i, n := range use {
		fresh[i] = max(0, n-max(0, -b[i]))
		b[i] += n
	}
	return fresh
}
