// Package doctor examines a broker, its streams, workers, edges, receivers and readers: [Examine] returns a [Diagnosis],
// whose problems name their cures.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/rights"
	"tributary/cmd/internal/terminal"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/export"
	"tributary/pipeline/replay"
	"tributary/pipeline/runner"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
	"tributary/pipeline/worker"
)

// Options say what to examine, and how.
type Options struct {
	Topology  streams.Topology // with the generation; empty members are not compared with the broker
	GapsSince time.Time        // only gaps found since then are problems
	Exports   []Export
	Denials   *rights.Denials // of the connection
	Skipped   func(error)     // gets messages under the subject of a dead letter that are no dead letters
}

// Export is an export to examine, too.
type Export struct {
	Place  string // as the user names it
	Config export.Config
}

// Diagnosis is the result of [Examine].
type Diagnosis struct {
	Server     string `json:"server"` // name and version
	MaxPayload int64  `json:"max_payload"`
	replay.Status
	Records       summaries.Status       `json:"session_records"`
	Streams       []streams.StreamStatus `json:"streams"`
	Expired       []replay.Expired       `json:"expired,omitempty"` // records that left the raw stream before they were read
	Subscriptions []subscribe.Status     `json:"subscriptions,omitempty"`
	Exports       []Exported             `json:"exports,omitempty"` // of the places that the user named
	Checks        []Check                `json:"checks"`
	Edges         []streams.Edge         `json:"edges"`            // seen in the last 7 days
	Receivers     []streams.Receiver     `json:"receivers"`        // as above
	Waiting       []streams.Worker       `json:"waiting,omitzero"` // workers of another revision, which do nothing
	Answers       []runner.State         `json:"answers,omitzero"` // of the workers that answered
	Problems      []string               `json:"problems"`         // each with its cure

	serverName  string
	unseen      []string // what this user may not read, with the cures
	edgesRead   bool     // false when this user may not read the heartbeats of edges and receivers
	recordsRead bool     // false when this user may not read the records of sessions
}

// examination inspects the broker for a diagnosis.
type examination struct {
	Options
	js jetstream.JetStream
	d  *Diagnosis
}

// Examine inspects the broker and changes nothing. The check of rights lists what the broker denies to the user. It
// fails if the broker shows nothing.
func Examine(ctx context.Context, js jetstream.JetStream, o Options) (*Diagnosis, error) {
	nc := js.Conn()
	d := &Diagnosis{serverName: nc.ConnectedServerName(), Server: nc.ConnectedServerName() + " " + nc.ConnectedServerVersion(), MaxPayload: nc.MaxPayload(), Problems: []string{}}
	d.At, d.Generation = time.Now(), o.Topology.Generation // replaced by the time of the broker
	x := &examination{o, js, d}
	for _, part := range []struct {
		what string
		read func(context.Context) error
	}{
		{"the progress of the workers", x.progress},
		{"what expired unread", x.expired},
		{"the generations", x.generations},
		{"the log of erasures", x.erasures},
		{"the errors of the workers", func(ctx context.Context) error {
			answers, err := runner.Ask(ctx, nc, len(d.Workers)+len(d.Waiting))
			d.Answers = slices.DeleteFunc(answers, func(w runner.State) bool { return w.Generation != "" && w.Generation != d.Generation })
			return err
		}},
		{"the edges and receivers", func(ctx context.Context) (err error) {
			if d.Edges, err = streams.Edges(ctx, js); err == nil {
				d.Receivers, err = streams.Receivers(ctx, js)
			}
			d.edgesRead = err == nil
			return err
		}},
		{"the records of sessions", x.sessions},
		{"the subscriptions", x.subscriptions},
		{"the exports", x.exports},
		{"the dead letters", x.deadLetters},
	} {
		if err := x.permitted(ctx, part.what, part.read); err != nil {
			return nil, err
		}
	}
	if err := worker.CheckPayload(nc); err != nil {
		d.Problems = append(d.Problems, err.Error())
	}
	d.Problems = append(d.Problems, d.edgeProblems()...)
	d.Problems = append(d.Problems, receivers{d}.problems()...)
	if err := x.broker(ctx); err != nil {
		return nil, err
	}
	d.judgeAnswers()
	d.Problems = append(d.Problems, d.checkProblems()...)
	return d, nil
}

// progress reads and judges the progress of the workers.
func (x *examination) progress(ctx context.Context) error {
	status, err := x.steadyStatus(ctx)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrBucketNotFound):
		return fmt.Errorf("%w: start a worker, which creates what is missing: tributary run", err)
	case err != nil:
		return err
	}
	x.d.Status = status
	x.d.judge()
	x.d.judgeStopped()
	x.d.judgeGaps(x.GapsSince)
	return nil
}

// steadyStatus reads the progress. Workers may be slow, or between two generations, so it waits until they work on all
// partitions, for as long as other workers wait for a heartbeat.
func (x *examination) steadyStatus(ctx context.Context) (replay.Status, error) {
	for beat := 0; ; beat++ {
		status, err := replay.ReadStatus(ctx, x.js, x.Topology)
		if err != nil || settled(status) || beat == streams.AliveBeats || len(status.Workers) == 0 && !x.workerAnswers(ctx) {
			return status, err
		}
		if err := broker.Pause(ctx, streams.DefaultHeartbeat); err != nil {
			return status, err
		}
	}
}

// settled reports whether each partition has a worker or cannot continue, and a worker is alive.
func settled(s replay.Status) bool {
	return anyAlive(s) && !slices.ContainsFunc(s.Partitions, replay.PartitionStatus.Idle)
}

// workerAnswers reports whether a worker answers, which may be about to write its first heartbeat.
func (x *examination) workerAnswers(ctx context.Context) bool {
	answers, err := runner.Ask(ctx, x.js.Conn(), 1)
	return err == nil && len(answers) > 0
}

// anyAlive reports whether a worker is alive.
func anyAlive(s replay.Status) bool {
	return slices.ContainsFunc(s.Workers, func(w streams.Worker) bool { return !w.Silent(s.At) })
}

// judgeAnswers reports the errors of the workers that answered, and explains missing heartbeats.
func (d *Diagnosis) judgeAnswers() {
	if i := slices.Index(d.Problems, problemNoWorker); i >= 0 {
		switch {
		case d.full():
			d.Problems[i] = "no worker is seen: while a limit is reached, the heartbeats of workers cannot be stored: see limits"
		case len(d.Answers) > 0:
			d.Problems[i] = fmt.Sprintf("no heartbeat of a worker is stored, although %s: see the log of nats-server: if its disk was full, make room and restart it, because until then it stores nothing",
				terminal.Plural(len(d.Answers), "worker")+" answered")
		}
	}
	if len(d.stopped()) > 0 {
		return // the stopped partitions are reported already
	}
	for _, w := range d.Answers {
		if w.Unready >= unreadyPatience && w.Error != "" && w.Age() < answerFresh {
			first, _, _ := strings.Cut(w.NotReady, "\n")
			d.Problems = append(d.Problems, fmt.Sprintf("worker %s is not ready: %s: its last error, %v ago: %s", terminal.OneLine(w.Name), terminal.OneLine(first), w.Age(), terminal.OneLine(w.Error)))
		}
	}
}

const (
	answerFresh     = time.Minute // limits the age of the last error of a worker that is not ready
	unreadyPatience = 5           // seconds: a worker is unready for a moment when generations or workers change
)

const problemNoWorker = "no worker is alive: start one with tributary run"

// judge finds the problems.
func (d *Diagnosis) judge() {
	problem := func(format string, args ...any) { d.Problems = append(d.Problems, fmt.Sprintf(format, args...)) }
	alive := anyAlive(d.Status)
	if !alive {
		problem(problemNoWorker)
	}
	names := make(map[string]int)
	for _, w := range d.Workers {
		if w.Silent(d.At) {
			continue
		}
		if names[w.Name]++; names[w.Name] == 2 {
			problem("several workers have the name %s: give each a name of its own in TRIBUTARY_WORKER", w.Name)
		}
		if len(w.Hanging) > 0 {
			problem("worker %s: the normalizer has not returned from the record %d, and other workers get its partitions: restart it", w.Name, w.Hanging[0])
		}
	}
	var idle []int
	unarchived := 0
	for _, p := range d.Partitions {
		unarchived += p.Unarchived
		if p.Idle() && alive {
			idle = append(idle, p.Partition)
		}
		if p.Suspect() {
			problem("partition %d: record %d, %s, may have ended %d workers: give them more memory, else it becomes a dead letter by itself",
				p.Partition, p.Next, terminal.Size(p.NextSize), p.Tries)
		}
		if p.Slow > 0 {
			problem("partition %d: the normalizer did not return from record %d: it is tried again, and becomes a dead letter by itself", p.Partition, p.Slow)
		}
	}
	if unarchived > 0 {
		problem("the archives have no room for %s of sessions that ended long ago, which take memory of the broker: replay into a new generation, whose archives begin empty: tributary replay start",
			terminal.Plural(unarchived, "state"))
	}
	if len(idle) > 0 {
		problem("no worker owns the partitions %s: if it remains so, see the log of the workers", numbers(idle))
	}
}

// stopped returns the partitions that cannot continue, by their cure.
func (d *Diagnosis) stopped() map[string][]replay.PartitionStatus {
	stopped := make(map[string][]replay.PartitionStatus)
	for _, p := range d.Partitions {
		if p.Fault != "" {
			stopped[p.Cure] = append(stopped[p.Cure], p)
		}
	}
	return stopped
}

// judgeStopped reports the partitions that cannot continue. Those with the same cure are one problem.
func (d *Diagnosis) judgeStopped() {
	stopped := d.stopped()
	for _, cure := range slices.Sorted(maps.Keys(stopped)) {
		var list []int
		for _, p := range stopped[cure] {
			list = append(list, p.Partition)
		}
		what := fmt.Sprintf("partition %s has stopped: %s", numbers(list), stopped[cure][0].Fault)
		if len(list) > 1 {
			what = fmt.Sprintf("partitions %s have stopped: %s", numbers(list), stopped[cure][0].Fault)
		}
		d.Problems = append(d.Problems, what+": "+cure)
	}
}

// maxSearched limits the dead letters that doctor searches for problems.
const maxSearched = 10_000

// deadLetters finds open dead letters whose reason lies with the workers or the broker, and sessions with damaged
// states. See [records.Reason].
func (x *examination) deadLetters(ctx context.Context) error {
	if x.d.DeadLetters > maxSearched {
		return nil // the overview names the command that finds them
	}
	open := map[string]string{
		"crashed":       "ended its workers and is a dead letter: give the workers more memory, then tributary dlq requeue %d",
		"claim_missing": "has lost its object in the bucket CLAIMS and is a dead letter: ship the logs again (tributary ship --again), then tributary dlq requeue %d",
		"unsearched":    "takes too much work to search for secrets and is a dead letter without its bytes: tributary dlq requeue %d, where other rules are used",
		"timeout":       "took too long and is a dead letter: update the workers, then tributary dlq requeue %d",
	}
	damaged := make(map[string]bool)
	for l, err := range events.DeadLetters(ctx, x.js, x.Topology.Generation, events.DeadLettersQuery{}) {
		if errors.Is(err, events.ErrDeadLetter) {
			x.Skipped(err)
			continue
		}
		if err != nil {
			return err
		}
		session := fmt.Sprintf("session %s of %s", terminal.OneLine(l.Session), terminal.OneLine(string(l.Source)))
		if text := open[l.Reason]; text != "" && l.Standing == core.StandingOpen {
			x.d.Problems = append(x.d.Problems, fmt.Sprintf("record %d, %s, %s, "+text, l.Sequence, terminal.Size(l.RecordSize()), session, l.Sequence))
		}
		if l.Reason == "state" && !damaged[session] {
			damaged[session] = true
			x.d.Problems = append(x.d.Problems, fmt.Sprintf("%s has dead letters: %s", session, terminal.OneLine(l.Error)))
		}
	}
	return nil
}

// seeRights stands for a value that this user may not read. The check rights has the cure.
const seeRights = "unknown: see rights"

// DescribeLag describes how many records are not processed, and for how many partitions the number is unknown.
func (d *Diagnosis) DescribeLag() string {
	lag, oldest := d.Lag()
	stopped := 0
	for _, p := range d.stopped() {
		stopped += len(p)
	}
	switch {
	case len(d.Partitions) == 0:
		return seeRights
	case stopped == len(d.Partitions):
		return "unknown: all partitions have stopped"
	case oldest == nil && stopped == 0:
		return "none: every record is done"
	}
	text := "none"
	if oldest != nil {
		text = fmt.Sprintf("%d records, the oldest stored %v ago", lag, d.age(*oldest))
	}
	if stopped > 0 {
		text += fmt.Sprintf(", without the %s that stopped", terminal.Plural(stopped, "partition"))
	}
	return text
}

// Lag returns how many records are not processed, and when the oldest was stored.
func (d *Diagnosis) Lag() (lag uint64, oldest *time.Time) {
	for _, p := range d.Partitions {
		lag += p.Lag
		if p.Oldest != nil && (oldest == nil || p.Oldest.Before(*oldest)) {
			oldest = p.Oldest
		}
	}
	return lag, oldest
}

// age returns the time since t.
func (d *Diagnosis) age(t time.Time) time.Duration { return d.At.Sub(t).Round(100 * time.Millisecond) }

// numbers writes sorted numbers as ranges: 0-3 7.
func numbers(list []int) string {
	if len(list) == 0 {
		return "none"
	}
	return streams.Ranges(list)
}
