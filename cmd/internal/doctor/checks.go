package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/terminal"
	"tributary/normalizers"
	"tributary/pipeline/embedded"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// The verdicts of a check.
const (
	OK      = "ok"
	Warning = "warning" // works now, but not in every case
	Problem = "problem"
	Unknown = "unknown" // the broker does not state it, or denies the right to read it
)

// Check is a question about the broker and its answer.
type Check struct {
	Name    string `json:"name"` // rights, streams, replicas, lag, clock, retention, durability, limits, drift, receivers
	Verdict string `json:"verdict"`
	Text    string `json:"text"`
	Cure    string `json:"cure,omitzero"`
}

// Limits of checks.
const (
	lagLate   = 10 * time.Minute // how long a record may wait, here and at an edge
	skewLimit = 2 * time.Second  // of two clocks, beyond the time of a request
)

// broker answers the questions about the broker.
func (x *examination) broker(ctx context.Context) error {
	var clock Check
	err := x.permitted(ctx, "the streams", func(ctx context.Context) (err error) {
		if clock, err = checkClock(ctx, x.js); err == nil {
			x.d.Streams, err = streams.ReadStreams(ctx, x.js, x.Topology)
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(x.d.Streams) == 0 {
		x.d.Checks = append(x.d.Checks, x.d.checkRights())
		return nil
	}
	raw := x.d.Streams[0]
	servers := x.servers(ctx, raw.Cluster == "")
	limits := Check{Name: "limits", Verdict: Unknown, Text: "the broker does not show this user the limits of the account"}
	if err := x.permitted(ctx, "the limits of the account", func(ctx context.Context) (err error) {
		limits, err = x.limits(ctx, x.d.Streams, servers, limits)
		return err
	}); err != nil {
		return err
	}
	x.d.Checks = append(x.d.Checks, x.d.checkRights(), x.d.checkStreams(), x.d.checkReplicas(), x.d.checkLag(), clock, x.d.checkRetention(raw, x.Topology.EventsMaxAge),
		checkDurability(raw, servers), limits, x.d.checkDrift(), receivers{x.d}.check())
	return nil
}

// checkProblems returns the checks that are problems, each with its cure.
func (d *Diagnosis) checkProblems() []string {
	var list []string
	for _, c := range d.Checks {
		if c.Verdict == Problem {
			list = append(list, c.Name+": "+c.Text+": "+c.Cure)
		}
	}
	return list
}

// permitted runs a part of the examination. A part that needs a denied right ends at once, without an error;
// checkRights reports the right.
func (x *examination) permitted(ctx context.Context, what string, do func(context.Context) error) error {
	denied, err := x.Denials.During(ctx, do)
	if denied != nil {
		x.d.unseen = append(x.d.unseen, what+" ("+denied.Right()+"): "+denied.Cure())
		return nil
	}
	return err
}

// checkRights reports what the examination could not see.
func (d *Diagnosis) checkRights() Check {
	if len(d.unseen) == 0 {
		return Check{Name: "rights", Verdict: OK, Text: "this user may read everything that is examined"}
	}
	first, cure, _ := strings.Cut(d.unseen[0], ": ")
	return Check{"rights", Unknown, "this user may not read " + first + andMore(len(d.unseen)-1), cure}
}

func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more", n)
}

// checkStreams compares the configuration of the streams with the one that workers create.
func (d *Diagnosis) checkStreams() Check {
	var drift []string
	for _, s := range d.Streams {
		if len(s.Drift) > 0 {
			drift = append(drift, s.Name+": "+strings.Join(s.Drift, ", "))
		}
	}
	if len(drift) == 0 {
		return Check{Name: "streams", Verdict: OK, Text: terminal.Plural(len(d.Streams), "stream") + " as the workers create them"}
	}
	return Check{
		"streams", Problem, strings.Join(drift, "; "),
		"start a worker with the settings of the others, which changes what can be changed, or set it back with nats stream edit",
	}
}

// checkReplicas finds replicas that are missing or behind.
func (d *Diagnosis) checkReplicas() Check {
	c := Check{Name: "replicas", Verdict: OK, Text: "none: each stream is on one server"}
	var gone, behind, leaderless []string
	for _, s := range d.Streams {
		if s.Replicas > 1 {
			c.Text = fmt.Sprintf("%d of each stream, all current", s.Replicas)
			if s.Leader == "" {
				leaderless = append(leaderless, s.Name)
			}
		}
		gone, behind = append(gone, s.Gone...), append(behind, s.Behind...)
	}
	unique := func(list []string) string {
		slices.Sort(list)
		return strings.Join(slices.Compact(list), ", ")
	}
	var texts []string
	if len(leaderless) > 0 {
		texts = append(texts, "without a leader: "+unique(leaderless))
	}
	if len(gone) > 0 {
		texts = append(texts, "gone: "+unique(gone))
	}
	if len(behind) > 0 {
		texts = append(texts, "behind: "+unique(behind))
	}
	if len(texts) > 0 {
		return Check{
			"replicas", Problem, strings.Join(texts, "; "),
			"start the servers that are gone; if one stays behind, see its log and deploy/recovery.md, Power failures. Until then the loss of another one stops everything",
		}
	}
	return c
}

// checkLag judges how long the oldest record has waited.
func (d *Diagnosis) checkLag() Check {
	lag, oldest := d.Lag()
	c := Check{Name: "lag", Verdict: OK, Text: d.DescribeLag()}
	if len(d.Partitions) == 0 {
		c.Verdict = Unknown
		return c
	}
	if oldest != nil && lag > 0 && d.At.Sub(*oldest) > lagLate {
		c.Verdict, c.Cure = Problem, "start more workers, up to one a partition; if the lag does not shrink, see their log"
	}
	return c
}

// checkClock compares the clocks of this machine and the broker.
func checkClock(ctx context.Context, js jetstream.JetStream) (Check, error) {
	asked := time.Now()
	at, err := streams.BrokerTime(ctx, js)
	if err != nil {
		return Check{}, err
	}
	took := time.Since(asked)
	skew := at.Sub(asked.Add(took / 2)).Round(time.Millisecond)
	c := Check{Name: "clock", Verdict: OK, Text: "this machine and the broker agree"}
	if skew.Abs() > skewLimit+took {
		c.Verdict = Warning
		c.Text = fmt.Sprintf("the clock of the broker is %v ahead of that of this machine", skew)
		if skew < 0 {
			c.Text = fmt.Sprintf("the clock of the broker is %v behind that of this machine", -skew)
		}
		c.Cure = "let NTP set both: ages in the metrics of workers compare the two"
	}
	return c, nil
}

// checkRetention compares how long raw records are kept with what a replay needs.
func (d *Diagnosis) checkRetention(raw streams.StreamStatus, eventsMaxAge time.Duration) Check {
	_, oldest := d.Lag()
	switch {
	case raw.MaxAge > 0 && oldest != nil && d.At.Sub(*oldest) > raw.MaxAge/2:
		return Check{
			"retention", Problem, fmt.Sprintf("raw records are kept for %v, and the oldest that is not processed has waited for %v", raw.MaxAge, d.age(*oldest)),
			"raise TRIBUTARY_RAW_MAX_AGE of the workers before it expires",
		}
	case raw.Dropping:
		return Check{
			"retention", Problem, "a limit of messages or bytes discards raw records, also those that are not processed",
			"let the stream refuse new ones instead, nats stream edit " + raw.Name + " --discard=new --max-msgs-per-subject=-1, and set TRIBUTARY_RAW_MAX_AGE",
		}
	case raw.MaxAge > 0 && (eventsMaxAge == 0 || eventsMaxAge > raw.MaxAge):
		return Check{
			"retention", Warning, fmt.Sprintf("raw records are kept for %v, events for longer: a new generation lacks those of older records", raw.MaxAge),
			"keep raw records for as long as the events: TRIBUTARY_RAW_MAX_AGE, TRIBUTARY_EVENTS_MAX_AGE",
		}
	}
	return Check{Name: "retention", Verdict: OK, Text: "raw records are kept for as long as the events: a replay makes all of them again"}
}

// checkDrift lists the agents whose records have what no rule reads, or whose version is newer than the last checked
// one, as the workers found since they started.
func (d *Diagnosis) checkDrift() Check {
	if len(d.Answers) == 0 {
		return Check{Name: "drift", Verdict: Unknown, Text: "no worker has answered"}
	}
	found := make(map[worker.Drifted]int64) // the items, by the rest
	for _, w := range d.Answers {
		for _, is := range w.Drift {
			n := is.Items
			is.Items = 0
			found[is] += n
		}
	}
	const most = 5
	var said []string
	for is, n := range found {
		text := terminal.OneLine(string(is.Source) + " " + is.Version)
		v := normalizers.VendorOf(is.Source)
		if is.Newer && v != nil {
			text += " is newer than " + v.Checked + ", the last version that was checked"
		}
		if n > 0 && is.Newer {
			text += ", and"
		}
		if n > 0 {
			text += " has " + terminal.Plural(int(n), "item") + " that no rule reads"
		}
		said = append(said, text)
	}
	slices.Sort(said)
	if len(said) == 0 {
		return Check{Name: "drift", Verdict: OK, Text: "the workers have found nothing that no rule reads"}
	}
	listed := said[:min(most, len(said))]
	return Check{
		"drift", Warning, strings.Join(listed, "; ") + andMore(len(said)-len(listed)),
		"tributary drift, on the machine of the logs, lists it with its places; update Tributary: the records are kept whole",
	}
}

// checkDurability judges what a power failure loses.
func checkDurability(raw streams.StreamStatus, servers []serverState) Check {
	known, always, interval := false, false, time.Duration(0)
	if len(servers) > 0 {
		sync := servers[0].Stats.JetStream.Config
		known, always, interval = sync.Always || sync.Interval > 0, sync.Always, time.Duration(sync.Interval)
	}
	const name = "durability"
	alone := raw.Replicas < 2
	switch {
	case known && always && alone:
		return Check{Name: name, Verdict: OK, Text: "every commit is synced to the disk before it is acknowledged"}
	case known && always:
		return Check{
			name, Warning, "sync_interval is always on a cluster, which can damage a compressed stream on a server that restarts",
			"leave sync_interval at its default, see deploy/recovery.md, Power failures",
		}
	case !alone:
		return Check{Name: name, Verdict: OK, Text: fmt.Sprintf("%d replicas: nothing is lost while a majority keeps its power", raw.Replicas)}
	case known:
		return Check{
			name, Warning, fmt.Sprintf("one server, which syncs every %v: a power failure loses what it has acknowledged since", interval),
			"set sync_interval: always in jetstream of nats-server, or use three replicas",
		}
	}
	return Check{
		name, Unknown, "one server, which does not state its sync_interval to this user: with the default, a power failure loses up to 2 minutes of acknowledged records",
		"set sync_interval: always in jetstream of nats-server, unless it is, or use three replicas; an account that imports " + embedded.StateSubject + " of the system account sees which it is",
	}
}
