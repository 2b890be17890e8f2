package envelopes

import (
	"fmt"
	"strconv"
	"strings"
)

// Address is what a subject says. Parts that its kind of subject has not are zero.
type Address struct {
	Generation string
	Partition  int
	Source     Source // may be one that this version does not know
	Token      string // of the session, see [ResolveToken]; in the form that [Token] gives
	EventType  EventType
}

// CheckGeneration reports whether name can be the name of a generation:
// [a-z0-9-]{1,32}, but not "current", which is the pointer to one. The functions that
// build a subject take a checked name.
func CheckGeneration(name string) error {
	if name == "" || len(name) > 32 || name == "current" {
		return errGeneration
	}
	for i := range len(name) {
		if c := name[i]; !isDigit(c) && (c < 'a' || c > 'z') && c != '-' {
			return errGeneration
		}
	}
	return nil
}

var errGeneration = fmt.Errorf("%w: a generation is named by 1 to 32 of a-z, 0-9 and -, and not current", ErrInvalidSubject)

// RawSubject is where a producer publishes a record of a session. The stream stores it
// under raw.<partition>.<source>.<token>, by its subject transform.
func RawSubject(source Source, session string) string {
	return "raw." + Token(string(source)) + "." + Token(session)
}

// RawFilters are the subjects in the raw stream that the owner of a partition reads.
// Partition 0 also reads what the transform left alone: subjects that hold a literal
// wildcard. [ParseRawSubject] refuses those, and they become dead letters.
func RawFilters(partition int) []string {
	filters := []string{"raw." + strconv.Itoa(partition) + ".*.*"}
	if partition == 0 {
		filters = append(filters, "raw.*.*")
	}
	return filters
}

// ParseRawSubject reads a subject as the raw stream stores it. Whether a normalizer
// knows the source is not asked.
func ParseRawSubject(subject string) (Address, error) {
	return parseSubject(subject, "raw", partPartition, partSource, partToken)
}

// EventSubject is where an event of a generation is stored.
func EventSubject(generation string, e *AgentEventV1) string {
	return "events." + generation + "." + sessionPart(e.Source, e.SessionID) + "." + Token(string(e.EventType))
}

// EventFilter selects events of a generation. An empty source, session or type stands
// for all.
func EventFilter(generation string, source Source, session string, t EventType) string {
	return "events." + generation + "." + tokenOrAny(string(source)) + "." + tokenOrAny(session) + "." + tokenOrAny(string(t))
}

// ParseEventSubject is the inverse of [EventSubject].
func ParseEventSubject(subject string) (Address, error) {
	return parseSubject(subject, "events", partGeneration, partSource, partToken, partEventType)
}

// UnknownSource stands in the subject of a dead letter whose record has a subject that
// could not be read. No event has it.
const UnknownSource Source = "unknown"

// DeadLetterSubject is where a generation keeps a record that it could not read. Source
// and session are those of the record's subject; where that could not be read either,
// they are [UnknownSource] and that subject as it was.
func DeadLetterSubject(generation string, partition int, source Source, session string) string {
	return "deadletters." + generation + "." + strconv.Itoa(partition) + "." + sessionPart(source, session)
}

// DeadLetterFilter selects dead letters of a generation in all partitions. An empty
// source or session stands for all.
func DeadLetterFilter(generation string, source Source, session string) string {
	return "deadletters." + generation + ".*." + tokenOrAny(string(source)) + "." + tokenOrAny(session)
}

// ParseDeadLetterSubject is the inverse of [DeadLetterSubject].
func ParseDeadLetterSubject(subject string) (Address, error) {
	return parseSubject(subject, "deadletters", partGeneration, partPartition, partSource, partToken)
}

// StateSubject is where a generation keeps the state of a session.
func StateSubject(generation string, partition int, source Source, session string) string {
	return "states." + generation + "." + strconv.Itoa(partition) + "." + sessionPart(source, session)
}

// ParseStateSubject is the inverse of [StateSubject].
func ParseStateSubject(subject string) (Address, error) {
	return parseSubject(subject, "states", partGeneration, partPartition, partSource, partToken)
}

// CheckpointSubject is where a generation keeps the checkpoint of a partition.
func CheckpointSubject(generation string, partition int) string {
	return "checkpoints." + generation + "." + strconv.Itoa(partition)
}

// ParseCheckpointSubject is the inverse of [CheckpointSubject].
func ParseCheckpointSubject(subject string) (Address, error) {
	return parseSubject(subject, "checkpoints", partGeneration, partPartition)
}

// GenerationSubjects are the subjects of the stream of a generation.
func GenerationSubjects(generation string) []string {
	return []string{
		"events." + generation + ".*.*.*",
		"deadletters." + generation + ".*.*.*",
		"states." + generation + ".*.*.*",
		"checkpoints." + generation + ".*",
	}
}

// SessionAspect is what a message of the session metadata stream tells of its session.
type SessionAspect string

// The aspects of a session.
const (
	SessionMetadata SessionAspect = "metadata" // the newest state of title and pin
	SessionChanges  SessionAspect = "changes"  // each change of it
	SessionRuntime  SessionAspect = "runtime"  // what the events tell
)

// SessionSubject is where the session metadata stream keeps an aspect of a session.
func SessionSubject(source Source, session string, aspect SessionAspect) string {
	return "sessions." + sessionPart(source, session) + "." + string(aspect)
}

// ParseSessionSubject is the inverse of [SessionSubject].
func ParseSessionSubject(subject string) (Address, SessionAspect, error) {
	rest, last := subject, ""
	if i := strings.LastIndexByte(subject, '.'); i >= 0 {
		rest, last = subject[:i], subject[i+1:]
	}
	switch aspect := SessionAspect(last); aspect {
	case SessionMetadata, SessionChanges, SessionRuntime:
		address, err := parseSubject(rest, "sessions", partSource, partToken)
		return address, aspect, err
	default:
		return Address{}, "", fmt.Errorf("%w: unknown aspect of a session", ErrInvalidSubject)
	}
}

// sessionPart is the two tokens that name a session in every subject. A source is its
// own token; it goes through the codec so that no text can break the subject.
func sessionPart(source Source, session string) string {
	return Token(string(source)) + "." + Token(session)
}

// tokenOrAny is the token of an id in a filter, and the wildcard for an empty one.
func tokenOrAny(id string) string {
	if id == "" {
		return "*"
	}
	return Token(id)
}

// part is the meaning of one token of a subject.
type part int

const (
	partGeneration part = iota
	partPartition
	partSource
	partToken
	partEventType
)

// parseSubject reads a subject of the given kind and parts. Only what the functions
// above write is accepted.
func parseSubject(subject, kind string, parts ...part) (Address, error) {
	first, rest, more := strings.Cut(subject, ".")
	if first != kind {
		return Address{}, fmt.Errorf("%w: not of kind %s", ErrInvalidSubject, kind)
	}
	var a Address
	for _, p := range parts {
		if !more {
			return Address{}, fmt.Errorf("%w: too few tokens for kind %s", ErrInvalidSubject, kind)
		}
		var token string
		var err error
		token, rest, more = strings.Cut(rest, ".")
		switch p {
		case partGeneration:
			a.Generation, err = token, CheckGeneration(token)
		case partPartition:
			a.Partition, err = parsePartition(token)
		case partSource:
			a.Source, err = Source(token), checkName(token, "source")
		case partToken:
			a.Token = token
			_, _, err = ParseToken(token)
		case partEventType:
			a.EventType, err = EventType(token), checkName(token, "event type")
		}
		if err != nil {
			return Address{}, err
		}
	}
	if more {
		return Address{}, fmt.Errorf("%w: too many tokens for kind %s", ErrInvalidSubject, kind)
	}
	return a, nil
}

// parsePartition reads the number of a partition in its only spelling.
func parsePartition(token string) (int, error) {
	n, err := strconv.Atoi(token)
	if err != nil || n < 0 || strconv.Itoa(n) != token {
		return 0, fmt.Errorf("%w: not the number of a partition", ErrInvalidSubject)
	}
	return n, nil
}

// checkName reports whether a token is a name that stands for itself.
func checkName(token, what string) error {
	if !isPlain(token) {
		return fmt.Errorf("%w: not the name of a %s", ErrInvalidSubject, what)
	}
	return nil
}
