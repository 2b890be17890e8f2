package pipelinetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"tributary/envelopes"
	"tributary/pipeline/ship"
)

// Log is the log of a session with a past: what happens to files on machines with agents.
type Log struct {
	Source   envelopes.Source
	Session  string
	Machines []*Machine
	Sent     *Sent
	Flood    func() string // sometimes returns the text of a drawn record; nil for short texts
	// Passed counts the records that were shipped to a place that the session had passed. It is negative if the number
	// is unknown because a producer was killed.
	Passed int
	Past   []string // what happened, to find a fault

	number   int
	shipped  map[string]bool // records by place
	furthest int             // the furthest place
	backups  [][]byte
}

// Machine has its own copy of a log, and its own state of ship.
type Machine struct {
	Content []byte

	dir    string
	states [][]byte // the states of ship; the last one is in use unless another was put back
}

// NewLog returns a log on this many machines, with its first line.
func NewLog(tb testing.TB, source envelopes.Source, session string, machines int) *Log {
	tb.Helper()
	l := &Log{Source: source, Session: session, Sent: &Sent{}, shipped: make(map[string]bool), furthest: -1}
	for range machines {
		l.Machines = append(l.Machines, &Machine{dir: tb.TempDir(), Content: l.First()})
	}
	l.backups = [][]byte{l.First()}
	return l
}

// First returns the first line of the log.
func (l *Log) First() []byte {
	if l.Source == envelopes.Codex {
		return fmt.Appendf(nil, `{"timestamp":"2026-03-01T10:00:00.000Z","type":"session_meta","payload":{"id":%q,"timestamp":"2026-03-01T10:00:00.000Z","cwd":"/home/ada/garden","originator":"codex_cli_rs","cli_version":"0.42.0"}}`+"\n", l.Session)
	}
	return fmt.Appendf(nil, `{"type":"mode","mode":"normal","sessionId":%q}`+"\n", l.Session)
}

// Record returns a new prompt. Texts of equal length give records of equal length, so that different records lie at
// the same places.
func (l *Log) Record(text string) []byte {
	l.number++
	at := time.Date(2026, 3, 1, 10, 0, 1, 0, time.UTC).Add(time.Duration(l.number) * time.Millisecond).Format("2006-01-02T15:04:05.000Z")
	if l.Source == envelopes.Codex {
		return fmt.Appendf(nil, `{"timestamp":%q,"type":"event_msg","payload":{"type":"user_message","message":%q,"kind":"plain"}}`+"\n", at, text)
	}
	return fmt.Appendf(nil, `{"type":"user","uuid":"u-%06d","sessionId":%q,"timestamp":%q,"message":{"role":"user","content":%q}}`+"\n", l.number, l.Session, at, text)
}

// Write appends prompts to the log of a machine.
func (l *Log) Write(m *Machine, records int) {
	for range records {
		m.Content = append(m.Content, l.Record(fmt.Sprintf("water bed %06d", l.number))...)
	}
}

// Rewind removes the last records of a log.
func (m *Machine) Rewind(records int) {
	for range records {
		if i := bytes.LastIndexByte(m.Content[:len(m.Content)-1], '\n'); i > 0 {
			m.Content = m.Content[:i+1]
		}
	}
}

// PutBack puts an earlier state of ship on the machine in use; -1 for none.
func (m *Machine) PutBack(state int) error {
	if state < 0 {
		if err := os.Remove(m.offsets()); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return os.WriteFile(m.offsets(), m.states[state], 0o600)
}

func (m *Machine) offsets() string { return filepath.Join(m.dir, "offsets.json") }

// Draw makes one thing happen to the log, and returns the machine.
func (l *Log) Draw(random *rand.Rand) (*Machine, error) {
	m := l.Machines[random.IntN(len(l.Machines))]
	switch random.IntN(10) {
	case 0:
		m.Rewind(random.IntN(20))
	case 1: // a backup of this or another machine
		m.Content = slices.Clone(l.backups[random.IntN(len(l.backups))])
	case 2:
		m.Content = l.First()
	case 3:
		state := random.IntN(len(m.states)+1) - 1
		l.note(m, "has state %d of %d", state, len(m.states))
		return m, m.PutBack(state)
	case 4:
		l.backups = append(l.backups, slices.Clone(m.Content))
	case 5:
		if l.Flood != nil {
			m.Content = append(m.Content, l.Record(l.Flood())...)
		}
	default:
		l.Write(m, random.IntN(12))
	}
	return m, nil
}

// note notes what happens to a machine.
func (l *Log) note(m *Machine, format string, args ...any) {
	last, _ := bytes.CutSuffix(m.Content, []byte{'\n'})
	last = last[bytes.LastIndexByte(last, '\n')+1:]
	l.Past = append(l.Past, fmt.Sprintf("machine %d: "+format, append([]any{slices.Index(l.Machines, m)}, args...)...)+
		fmt.Sprintf("; its log has %d records in %d bytes, up to %q", bytes.Count(m.Content, []byte{'\n'}), len(m.Content), KeyOf("", last)))
}

// Ship ships the log of a machine once and notes what was sent, also if it fails because the caller closed the
// connection.
func (l *Log) Ship(ctx context.Context, nc *nats.Conn, m *Machine, change ...func(*ship.Config)) error {
	folder := filepath.Join(m.dir, "logs", "2026")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "rollout-"+l.Session+".jsonl"), m.Content, 0o644); err != nil {
		return err
	}
	c := ship.Config{
		Roots:   []ship.Root{{Source: l.Source, Dir: filepath.Join(m.dir, "logs"), Suffixes: []string{".jsonl"}}},
		Offsets: m.offsets(), Once: true, Idle: time.Hour,
	}
	for _, f := range change {
		f(&c)
	}
	s, err := ship.New(nc, c)
	if err != nil {
		return err
	}
	ended := s.Run(ctx)
	l.note(m, "shipped, %v: %d records, %d of them duplicates", ended, s.Summary().Records, s.Summary().Duplicates)
	saved, err := os.ReadFile(m.offsets())
	switch {
	case err == nil:
		m.states = append(m.states, saved)
	case ended == nil || !errors.Is(err, fs.ErrNotExist):
		return errors.Join(ended, err)
	}
	place := 0
	for line := range bytes.Lines(m.Content) {
		if ended != nil {
			l.Passed = -1
			l.Sent.May(l.Session, line)
		} else {
			l.Sent.Must(l.Session, line)
			l.pass(place, line)
		}
		place += len(line)
	}
	return ended
}

// pass counts a record at a place that the session had passed.
func (l *Log) pass(place int, line []byte) {
	if is := fmt.Sprint(place, " ", string(line)); !l.shipped[is] {
		l.shipped[is] = true
		if place <= l.furthest && l.Passed >= 0 {
			l.Passed++
		}
	}
	l.furthest = max(l.furthest, place)
}

// Has reports whether the log of a machine has the record with a key.
func (l *Log) Has(key string) bool {
	if !strings.HasPrefix(key, l.Session+" ") {
		return false
	}
	for _, m := range l.Machines {
		for line := range bytes.Lines(m.Content) {
			if KeyOf(l.Session, line) == key {
				return true
			}
		}
	}
	return false
}
