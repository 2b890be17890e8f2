package envelopes

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Address is a parsed subject. Fields that its kind of subject does not have are zero.
type Address struct {
	Generation string
	Cell       int // cell that stores it
	Partition  int
	Source     Source // possibly unknown to this version
	Token      string // of the session id, as [Token] writes it; see [ResolveToken]
	EventType  EventType
}

// CheckGeneration returns nil for a valid name of a generation: [a-z0-9-]{1,32}, except the reserved "current". The
// functions that build subjects expect a checked name. The error wraps [errInvalidSubject].
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

var errGeneration = fmt.Errorf("%w: the name of a generation is 1 to 32 of a-z, 0-9 and -, and not current", errInvalidSubject)

// CellName returns the name of a generation in a cell, which replaces the generation in subjects and in the name of
// the stream: in cell 0 the name of the generation, in cell 3 <generation>_3.
func CellName(generation string, cell int) string {
	if cell == 0 {
		return generation
	}
	return generation + "_" + strconv.Itoa(cell)
}

// parseCellName is the inverse of [CellName].
func parseCellName(name string) (generation string, cell int, err error) {
	generation, number, later := strings.Cut(name, "_")
	if later {
		if cell, err = strconv.Atoi(number); err != nil || cell < 1 || strconv.Itoa(cell) != number {
			return "", 0, fmt.Errorf("%w: not the number of a cell", errInvalidSubject)
		}
	}
	return generation, cell, CheckGeneration(generation)
}

// Partition returns the partition of a session among partitions, as the subject transform of the raw stream or the
// mapping of an account computes it.
func Partition(source Source, session string, partitions int) int {
	return partitionOf(Token(string(source)), Token(session), partitions)
}

// InPartition reports whether the parsed subject of a record names the right partition for its session.
func (a Address) InPartition(partitions int) bool {
	return a.Partition == partitionOf(string(a.Source), a.Token, partitions)
}

// partitionOf is the partition function of nats-server.
func partitionOf(source, token string, partitions int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(source + token))
	return int(h.Sum32() % uint32(partitions))
}

// RawSubject is the subject to which a producer publishes the records of a session:
// raw.<source>.<token>. The subject transform of the raw stream stores them under
// raw.<partition>.<source>.<token>.
func RawSubject(source Source, session string) string {
	return "raw." + Token(string(source)) + "." + Token(session)
}

// PartitionSubject is the subject under which a raw stream stores the records of a session. With several cells,
// producers publish to it.
func PartitionSubject(partition int, source Source, session string) string {
	return "raw." + strconv.Itoa(partition) + strings.TrimPrefix(RawSubject(source, session), "raw")
}

// RawFilters returns the subjects of the raw stream that the owner of a partition reads.
// Partition 0 also reads the subjects that the transform leaves unchanged, those with a
// literal wildcard; [ParseRawSubject] rejects them, and their records become dead letters.
func RawFilters(partition int) []string {
	filters := []string{"raw." + strconv.Itoa(partition) + ".*.*"}
	if partition == 0 {
		filters = append(filters, "raw.*.*")
	}
	return filters
}

// RawFilter returns the subject that selects records of a partition of the raw stream. An
// empty source or session selects all.
func RawFilter(partition int, source Source, session string) string {
	return "raw." + strconv.Itoa(partition) + "." + tokenOrAny(string(source)) + "." + tokenOrAny(session)
}

// RawSessionFilter returns the subject that selects the records of a session in all partitions of a raw stream.
func RawSessionFilter(source Source, session string) string {
	return "raw.*." + SessionPart(source, session)
}

// RawSessionPart returns the part of a subject of the raw stream that names the session, see [SessionPart]. It returns
// nothing for a subject that the transform of the stream left unchanged.
func RawSessionPart(subject string) string {
	parts := strings.SplitN(subject, ".", 3)
	if len(parts) < 3 || strings.Count(parts[2], ".") != 1 {
		return ""
	}
	return parts[2]
}

// ParseRawSubject parses a subject in the form in which the raw stream stores it. It accepts
// any source. The error wraps [errInvalidSubject].
func ParseRawSubject(subject string) (Address, error) {
	return parseSubject(subject, "raw", partPartition, partSource, partToken)
}

// EventSubject is the subject of an event in a generation:
// events.<generation>.<source>.<token>.<event_type>.
func EventSubject(generation string, e *AgentEventV1) string {
	return "events." + generation + "." + SessionPart(e.Source, e.SessionID) + "." + Token(string(e.EventType))
}

// EventFilter returns the subject that selects events of a generation. An empty source,
// session or type selects all.
func EventFilter(generation string, source Source, session string, t EventType) string {
	return "events." + generation + "." + tokenOrAny(string(source)) + "." + tokenOrAny(session) + "." + tokenOrAny(string(t))
}

// ParseEventSubject is the inverse of [EventSubject], for a consumer that works with subjects
// alone.
func ParseEventSubject(subject string) (Address, error) {
	return parseSubject(subject, "events", partGeneration, partSource, partToken, partEventType)
}

// UnknownSource is the source in the subject of a dead letter whose record has an invalid
// subject. No event has it.
const UnknownSource Source = "unknown"

// DeadLetterSubject is the subject under which a generation stores a record that it cannot
// read: deadletters.<generation>.<partition>.<source>.<token>. Source and session come from
// the record's subject; for an invalid subject they are [UnknownSource] and that subject.
func DeadLetterSubject(generation string, partition int, source Source, session string) string {
	return "deadletters." + generation + "." + strconv.Itoa(partition) + "." + SessionPart(source, session)
}

// DeadLetterFilter returns the subject that selects dead letters of a generation in all
// partitions. An empty source or session selects all.
func DeadLetterFilter(generation string, source Source, session string) string {
	return "deadletters." + generation + ".*." + tokenOrAny(string(source)) + "." + tokenOrAny(session)
}

// ParseDeadLetterSubject is the inverse of [DeadLetterSubject].
func ParseDeadLetterSubject(subject string) (Address, error) {
	return parseSubject(subject, "deadletters", partGeneration, partPartition, partSource, partToken)
}

// StateSubject is the subject of the state of a session in a generation:
// states.<generation>.<partition>.<source>.<token>.
func StateSubject(generation string, partition int, source Source, session string) string {
	return "states." + generation + "." + strconv.Itoa(partition) + "." + SessionPart(source, session)
}

// ChangeSubject is the subject of the change of a state. No token of a session ends with a plus.
func ChangeSubject(state string) string { return state + "+" }

// StateOf returns the subject of a state from the subject of the state or of its change.
func StateOf(subject string) string { return strings.TrimSuffix(subject, "+") }

// StateFilter returns the subject that selects the states of a partition in a generation, and their changes.
func StateFilter(generation string, partition int) string {
	return "states." + generation + "." + strconv.Itoa(partition) + ".*.*"
}

// SessionStateFilter returns the subject that selects the state of a session in all partitions of a generation, without
// its change ([ChangeSubject]).
func SessionStateFilter(generation string, source Source, session string) string {
	return "states." + generation + ".*." + SessionPart(source, session)
}

// archives is the number of archives of a partition in a generation. It must never change, because a session would be
// looked for in another archive.
const archives = 4096

// ArchiveOf returns the subject of the archive for a state, archives.<generation>.<partition>.<n>, and the name of
// the session in the archive, <source>.<token>. state is the result of [StateSubject].
func ArchiveOf(state string) (archive, session string) {
	parts := strings.SplitN(state, ".", 4)
	session = parts[3]
	// Not the hash of the partition, because all sessions of a partition agree in that modulo the partitions.
	h := sha256.Sum256([]byte(session))
	n := binary.BigEndian.Uint16(h[:]) % archives
	return "archives." + parts[1] + "." + parts[2] + "." + strconv.Itoa(int(n)), session
}

// ArchiveFilter returns the subject that selects the archives of all partitions of a generation.
func ArchiveFilter(generation string) string { return "archives." + generation + ".*.*" }

// ErasedSubject is the subject of the messages that list the events of a generation that an operator has erased:
// archives.<generation>.erased.events.
func ErasedSubject(generation string) string { return "archives." + generation + ".erased.events" }

// IsArchiveFilter reports whether one of [GenerationSubjects] is for archives.
func IsArchiveFilter(subject string) bool { return strings.HasPrefix(subject, "archives.") }

// CheckpointSubject is the subject of the checkpoint of a partition in a generation:
// checkpoints.<generation>.<partition>.
func CheckpointSubject(generation string, partition int) string {
	return "checkpoints." + generation + "." + strconv.Itoa(partition)
}

// BeginSubject is the subject of the message that marks where the newest batch of a partition begins.
func BeginSubject(checkpoint string) string { return checkpoint + "+" }

// IsBeginSubject reports whether a subject is a [BeginSubject].
func IsBeginSubject(subject string) bool {
	return strings.HasPrefix(subject, "checkpoints.") && strings.HasSuffix(subject, "+")
}

// CheckpointFilter returns the subject that selects the checkpoints of all partitions of a
// generation.
func CheckpointFilter(generation string) string { return "checkpoints." + generation + ".*" }

// ParseCheckpointSubject is the inverse of [CheckpointSubject].
func ParseCheckpointSubject(subject string) (Address, error) {
	return parseSubject(subject, "checkpoints", partGeneration, partPartition)
}

// GenerationSubjects returns the subjects in the stream of a generation; for a further cell, pass the [CellName].
func GenerationSubjects(generation string) []string {
	return []string{
		"events." + generation + ".*.*.*",
		"deadletters." + generation + ".*.*.*",
		"states." + generation + ".*.*.*",
		"checkpoints." + generation + ".*",
		ArchiveFilter(generation),
	}
}

// SessionPart returns the two tokens that name a session in every subject, and in archives: <source>.<token>. A known
// source is its own token; the codec keeps any other text from breaking the subject.
func SessionPart(source Source, session string) string {
	return Token(string(source)) + "." + Token(session)
}

// tokenOrAny returns the token of an id for a filter, the wildcard for an empty id.
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

// parseSubject parses a subject of the given kind and parts. It accepts only subjects that
// the functions above write.
func parseSubject(subject, kind string, parts ...part) (Address, error) {
	first, rest, more := strings.Cut(subject, ".")
	if first != kind {
		return Address{}, fmt.Errorf("%w: not of kind %s", errInvalidSubject, kind)
	}
	var a Address
	for _, p := range parts {
		if !more {
			return Address{}, fmt.Errorf("%w: too few tokens for kind %s", errInvalidSubject, kind)
		}
		var token string
		var err error
		token, rest, more = strings.Cut(rest, ".")
		switch p {
		case partGeneration:
			a.Generation, a.Cell, err = parseCellName(token)
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
		return Address{}, fmt.Errorf("%w: too many tokens for kind %s", errInvalidSubject, kind)
	}
	return a, nil
}

// parsePartition parses the number of a partition in its only spelling.
func parsePartition(token string) (int, error) {
	n, err := strconv.Atoi(token)
	if err != nil || n < 0 || strconv.Itoa(n) != token {
		return 0, fmt.Errorf("%w: not the number of a partition", errInvalidSubject)
	}
	return n, nil
}

// checkName returns an error for a token that is not a plain name.
func checkName(token, what string) error {
	if !isPlain(token) {
		return fmt.Errorf("%w: not the name of a %s", errInvalidSubject, what)
	}
	return nil
}
