package normalizers

import (
	"tributary/envelopes"
	"tributary/normalizers/core"
)

// Types of package core, under which users of this package know them.
type (
	// Record is one raw record and where it was found.
	Record = core.Record
	// Origin is what a producer states about a record.
	Origin = core.Origin
	// Earlier is what the raw stream says about earlier records at the place of a record.
	Earlier = core.Earlier
	// Result is what a record yields.
	Result = core.Result
	// Emitted is an event and the record that it comes from.
	Emitted = core.Emitted
	// Session is what is remembered between two records of a session.
	Session = core.Session
	// SkipReason names why a record yields no event.
	SkipReason = core.SkipReason
	// Standing is what became of a record that could not be read.
	Standing = core.Standing
	// Gap is a part of a file whose records are missing.
	Gap = core.Gap
	// Rewrite is what a session noted of records at places that it had passed.
	Rewrite = core.Rewrite
	// Profile names the shapes of tool_metadata.
	Profile = core.Profile
	// Unknown is something in a record that its normalizer does not know.
	Unknown = core.Unknown
	// UnknownKind says what of a record that is.
	UnknownKind = core.UnknownKind
	// PanicError is the panic of a normalizer.
	PanicError = core.PanicError
	// Vendor is a row of the table of vendors.
	Vendor = core.Vendor
)

// The limits of package core.
const (
	MaxRecordBytes = core.MaxRecordBytes
	MaxEventBytes  = core.MaxEventBytes
	MaxDepth       = core.MaxDepth
	MaxEvents      = core.MaxEvents
	MaxValues      = core.MaxValues
)

// The reasons of package core for which a record yields no event.
const (
	SkipMirror    = core.SkipMirror
	SkipProgress  = core.SkipProgress
	SkipHeartbeat = core.SkipHeartbeat
	SkipDuplicate = core.SkipDuplicate
	SkipQueued    = core.SkipQueued
	SkipEmpty     = core.SkipEmpty
	SkipHeld      = core.SkipHeld
	SkipControl   = core.SkipControl
)

// SkipReasons lists every reason for which a record yields no event.
var SkipReasons = []SkipReason{
	SkipMirror, SkipProgress, SkipHeartbeat, SkipDuplicate, SkipQueued, SkipEmpty, SkipHeld, SkipControl,
}

// The kinds of package core of what a normalizer does not know.
const (
	UnknownRecord = core.UnknownRecord
	UnknownBlock  = core.UnknownBlock
	UnknownOutput = core.UnknownOutput
	UnknownUsage  = core.UnknownUsage
)

// UnknownKinds lists the kinds of what a normalizer does not know.
var UnknownKinds = []UnknownKind{UnknownRecord, UnknownBlock, UnknownOutput, UnknownUsage}

// The standings of package core.
const (
	StandingOpen      = core.StandingOpen
	StandingSettled   = core.StandingSettled
	StandingForgotten = core.StandingForgotten
)

// The profiles of package core.
const (
	ProfileOpenCode = core.ProfileOpenCode
	ProfileCurrent  = core.ProfileCurrent
)

// The errors of package core.
var (
	ErrMalformed     = core.ErrMalformed
	ErrTooLarge      = core.ErrTooLarge
	ErrTooManyEvents = core.ErrTooManyEvents
	ErrUnknownSource = core.ErrUnknownSource
	ErrSession       = core.ErrSession
)

// Reason returns the name under which a record that failed with err is counted and
// dead-lettered, and whether err is permanent. The set of names is bounded.
func Reason(err error) (reason string, permanent bool) { return core.Reason(err) }

// Reasons lists the names that [Reason] returns.
func Reasons() []string { return core.Reasons() }

// CompareVersions compares two versions of an agent number by number, without their suffixes; 0
// where one of them is no version.
func CompareVersions(a, b string) int { return core.CompareVersions(a, b) }

// NewSession returns the state of a session before its first record.
func NewSession(source envelopes.Source, id string) *Session {
	return core.NewSession(source, id, newState(source))
}

// DecodeSession is the inverse of [Session.Encode]. It does not retain data. An error is
// [ErrSession].
func DecodeSession(data []byte) (*Session, error) { return core.DecodeSession(data, newState) }

// DecodeChanged decodes a session from what [Session.Encode] wrote at a [Session.Mark] and what
// [Session.EncodeChange] wrote later. It retains neither, and the session has the same mark. An error is
// [ErrSession].
func DecodeChanged(whole, change []byte) (*Session, error) {
	return core.DecodeChanged(whole, change, newState)
}
