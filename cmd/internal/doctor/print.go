package doctor

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// hang is the indent of continued lines.
const hang = 2

// Print writes the diagnosis for people, in lines of at most width columns. w must be safe for a terminal, see
// [terminal.Safe].
func (d *Diagnosis) Print(w io.Writer, width int) error {
	for i, part := range []struct {
		table *terminal.Table
		notes []string // below the table
	}{
		{overviewTable(d), nil},
		{partitionTable(d), nil},
		{edgeTable(d), d.EdgeNotes()},
		{receivers{d}.table(), receivers{d}.notes()},
		{readerTable(d), nil},
		{streamTable(d), nil},
		{checkTable(d), nil},
	} {
		if i > 0 && len(part.table.Rows) > 0 {
			fmt.Fprintln(w)
		}
		if err := part.table.Write(w, width); err != nil {
			return err
		}
		for _, note := range part.notes {
			fmt.Fprintln(w, strings.Join(terminal.Wrap(note, width, hang), "\n"))
		}
	}
	for i, p := range d.Problems {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, strings.Join(terminal.Wrap("problem: "+p, width, hang), "\n"))
	}
	return nil
}

// overviewTable lists the broker, the workers and the sums over all partitions.
func overviewTable(d *Diagnosis) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{{}, {Wrap: true}}}
	t.Add("broker", fmt.Sprintf("%s, records up to %s in one message", d.Server, terminal.Size(d.MaxPayload)))
	spread := fmt.Sprintf("%d partitions", len(d.Partitions))
	if d.Cells > 1 {
		spread += fmt.Sprintf(" in %d cells", d.Cells)
	}
	if len(d.Partitions) == 0 {
		spread = "of which this user may not read the progress"
	}
	t.Add("generation", d.Generation+", "+spread)
	for _, worker := range d.Workers {
		if worker.Silent(d.At) {
			t.Add("worker", fmt.Sprintf("%s: no heartbeat for %v, considered dead", worker.Name, d.age(worker.Seen)))
			continue
		}
		var owned []int
		for _, p := range d.Partitions {
			if p.Worker == worker.Name {
				owned = append(owned, p.Partition)
			}
		}
		t.Add("worker", worker.Name+": partitions "+numbers(owned))
	}
	for _, worker := range d.Answers {
		if worker.Error != "" {
			t.Add("last error", fmt.Sprintf("%s, %v ago: %s", terminal.OneLine(worker.Name), worker.Age(), terminal.OneLine(worker.Error)))
		}
	}
	t.Add("lag", d.DescribeLag())
	if d.DeadLetters > 0 {
		list := "tributary dlq ls lists the open ones"
		if d.DeadLetters > maxSearched {
			list += ", with --reason crashed those that ended workers"
		}
		t.Add("dead letters", fmt.Sprintf("%d, including settled ones: %s", d.DeadLetters, list))
	}
	t.Add("sessions", d.DescribeRecords())
	if n := d.acknowledgedExpired(); n > 0 {
		t.Add("expired", terminal.Plural(int(n), "record")+" before they were read, which are acknowledged")
	}
	if n := d.expired(); n > 0 {
		t.Add("expired", "the first records of "+terminal.Plural(n, "session")+", before this generation began")
	}
	addRewrites(t, d)
	return t
}

// addRewrites adds the sessions whose files changed at places that had been read. That is no problem: both versions
// are events. It also names records at places whose earlier records have expired.
func addRewrites(t *terminal.Table, d *Diagnosis) {
	shown, more := 0, 0
	for _, p := range d.Partitions {
		more += p.RewrittenSessions
		for _, s := range p.Rewritten {
			if shown++; shown > maxShownGaps {
				break
			}
			more--
			where := fmt.Sprintf("session %s of %s", terminal.OneLine(s.Session), terminal.OneLine(string(s.Source)))
			if s.Rewritten > 0 {
				t.Add("rewritten", fmt.Sprintf("%s: %s at places that were read before, and both are events: its log was rewritten, or grows on two machines",
					where, terminal.Plural(s.Rewritten, "other record")))
			}
			if s.Undecided > 0 {
				t.Add("undecided", fmt.Sprintf("%s: %s at places whose earlier records have expired, taken for duplicates", where, terminal.Plural(s.Undecided, "record")))
			}
		}
	}
	if more > 0 {
		t.Add("rewritten", terminal.Plural(more, "other session"))
	}
}

// partitionTable lists the partitions that lag or have stopped.
func partitionTable(d *Diagnosis) *terminal.Table {
	t := terminal.NewTable("PARTITION", "WORKER", "DONE UP TO", "LAG", "OLDEST")
	for _, p := range d.Partitions {
		if p.Lag == 0 && p.Fault == "" {
			continue
		}
		age := ""
		if p.Oldest != nil {
			age = d.age(*p.Oldest).String()
		}
		t.Add(strconv.Itoa(p.Partition), p.Worker, strconv.FormatUint(p.Raw, 10), strconv.FormatUint(p.Lag, 10), age)
	}
	return t
}

// EdgeState returns the state of an edge in a word.
func (d *Diagnosis) EdgeState(e streams.Edge) string {
	switch {
	case e.Ended:
		return ended
	case d.since(e.Seen) > edgeSilent:
		return silent
	case !e.Follows:
		return "sending"
	}
	return "following"
}

// edgeTable lists the edges.
func edgeTable(d *Diagnosis) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{
		{Head: "EDGE"}, {Head: "VERSION", Priority: 1}, {Head: "STATE"}, {Head: "SEEN"}, {Head: "FILES"}, {Head: "UNSENT"}, {Head: "HELD BACK", Priority: 2},
	}}
	for _, e := range d.Edges {
		unsent := "none"
		if e.Behind > 0 {
			unsent = EdgeBacklog(e)
		}
		t.Add(terminal.OneLine(e.ID), terminal.OneLine(e.Version), d.EdgeState(e), terminal.Rough(d.since(e.Seen))+" ago", strconv.Itoa(e.Files), unsent, strconv.Itoa(e.Held))
	}
	return t
}

// EdgeNotes names the edges that skip hidden folders, or files that are no logs of known agents.
func (d *Diagnosis) EdgeNotes() []string {
	var notes []string
	for _, e := range d.Edges {
		if e.Hidden > 0 {
			notes = append(notes, fmt.Sprintf("edge %s: skipped %s: its log names the first, and ship sends what is in one that is named",
				terminal.OneLine(e.ID), terminal.Plural(e.Hidden, "hidden folder")))
		}
		if e.Unknown > 0 {
			notes = append(notes, fmt.Sprintf("edge %s: does not send %s, the last: %s",
				terminal.OneLine(e.ID), terminal.Plural(e.Unknown, "file"), terminal.OneLine(e.UnknownLast)))
		}
	}
	return notes
}

// readerTable lists how far subscriptions and exports are.
func readerTable(d *Diagnosis) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{
		{Head: "READER", Wrap: true}, {Head: "GENERATION"}, {Head: "DONE UP TO", Priority: 1}, {Head: "BEHIND"}, {Head: "OLDEST"}, {Head: "STATE", Wrap: true},
	}}
	add := func(name string, r *events.ReaderStatus) {
		oldest := ""
		if !r.Oldest.IsZero() {
			oldest = d.age(r.Oldest).String()
		}
		t.Add(name, terminal.OneLine(r.Generation), fmt.Sprint(r.Done), strconv.FormatUint(r.Behind, 10), oldest, ReaderState(r))
	}
	for _, s := range d.Subscriptions {
		add("subscription "+terminal.OneLine(s.Name), &s.ReaderStatus)
	}
	for _, e := range d.Exports {
		add("export "+terminal.OneLine(e.Place), &e.ReaderStatus)
	}
	return t
}

// ReaderState describes the state of a reader.
func ReaderState(r *events.ReaderStatus) string {
	switch {
	case r.Generation == "":
		return "unreadable"
	case r.Dropped:
		return "its generation was dropped"
	case r.WentBack:
		return "its stream went back in time"
	case r.Expired > 0:
		return "events expired unread"
	case r.Behind == 0:
		return "has every event"
	}
	return "goes on"
}

// streamTable lists the streams.
func streamTable(d *Diagnosis) *terminal.Table {
	t := terminal.NewTable("STREAM", "MESSAGES", "SIZE", "REPLICAS", "LEADER")
	for _, s := range d.Streams {
		leader := s.Leader
		if s.Cluster == "" && leader == "" {
			leader = d.serverName
		}
		t.Add(s.Name, terminal.Thousands(int64(s.Messages)), terminal.Size(int64(s.Bytes)), strconv.Itoa(s.Replicas), terminal.OneLine(leader))
	}
	return t
}

// checkTable lists the checks.
func checkTable(d *Diagnosis) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{{Head: "CHECK"}, {Head: "VERDICT"}, {Wrap: true}}}
	for _, c := range d.Checks {
		t.Add(c.Name, c.Verdict, c.Text)
		if c.Cure != "" && c.Verdict != Problem { // the cures of problems are at the end
			t.Add("", "", c.Cure)
		}
	}
	return t
}
