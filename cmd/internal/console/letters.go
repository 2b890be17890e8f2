package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/letters"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// letterRequest is a request of the pages of dead letters.
type letterRequest struct{ *request }

// Limits of a page of dead letters.
const (
	lettersRead   = 10_000  // dead letters that are read to find the selected ones
	letterPreview = 4 << 10 // shown bytes of a record
	letterLoaded  = 8 << 20 // bytes of a record to load
)

// letterQuery selects dead letters, with the names of the query in the address.
type letterQuery struct {
	Generation, Agent, Session, Reason, Status, Partition, Record string

	query events.DeadLettersQuery
}

// letterStatuses are the values of status; the last one selects all.
var letterStatuses = []string{string(core.StandingOpen), string(core.StandingSettled), string(core.StandingForgotten), "all"}

// letterQuery parses the selection of a query or a form.
func (r letterRequest) letterQuery(ctx context.Context, values url.Values) (letterQuery, error) {
	get := values.Get
	q := letterQuery{
		Generation: get("generation"), Agent: get("agent"), Session: get("session"), Reason: get("reason"), Status: get("status"), Partition: get("partition"), Record: get("record"),
	}
	for _, value := range []string{q.Agent, q.Session, q.Reason} {
		if len(value) > longestValue {
			return q, invalid("the filter is too long", "write at most 1,024 bytes")
		}
	}
	if q.Status == "" {
		q.Status = string(core.StandingOpen)
		if q.Record != "" {
			q.Status = "all" // a record is meant, in any status
		}
	}
	if !slices.Contains(letterStatuses, q.Status) {
		return q, invalid("there is no such status", "choose one of "+strings.Join(letterStatuses, ", "))
	}
	if q.Generation == "" {
		var err error
		if q.Generation, err = r.generation(ctx); err != nil {
			return q, err
		}
	}
	if envelopes.CheckGeneration(q.Generation) != nil {
		return q, notFound("there is no such generation", "choose one of the list")
	}
	f, err := parseFilter(values, r.now, r.config.Zone)
	if err != nil {
		return q, err
	}
	q.query = events.DeadLettersQuery{Source: envelopes.Source(q.Agent), Session: q.Session, Reason: q.Reason, Since: f.From, Until: f.To}
	if q.Status != "all" {
		q.query.Standing = core.Standing(q.Status)
	}
	if q.Partition != "" {
		n, err := strconv.Atoi(q.Partition)
		if err != nil || n < 0 {
			return q, invalid("the partition is no number", "write a number from 0 on")
		}
		q.query.Partitions = []int{n}
	}
	if q.Record != "" {
		n, err := strconv.ParseUint(q.Record, 10, 64)
		if err != nil || n == 0 {
			return q, invalid("the record is no sequence", "write a number that the list shows")
		}
		q.query.Sequences = []uint64{n}
	}
	return q, nil
}

// More reports whether a folded field has a value.
func (q letterQuery) More() bool {
	return q.Agent != "" || q.Session != "" || q.Partition != "" || q.Record != "" || !q.query.Since.IsZero() || !q.query.Until.IsZero()
}

// values returns the selection for a query or a form.
func (q *letterQuery) values(since, until string) url.Values {
	values := url.Values{}
	for name, value := range map[string]string{
		"generation": q.Generation, "agent": q.Agent, "session": q.Session, "reason": q.Reason, "status": q.Status, "partition": q.Partition, "record": q.Record,
		"since": since, "until": until,
	} {
		if value != "" {
			values.Set(name, value)
		}
	}
	return values
}

// letters iterates over all dead letters after a place, also those that are not selected. skipped gets messages that
// are no dead letters.
func (r letterRequest) letters(ctx context.Context, q *letterQuery, after streams.Positions, skipped func(error)) iter.Seq2[events.DeadLetter, error] {
	all := events.DeadLettersQuery{Source: q.query.Source, Session: q.query.Session, Since: q.query.Since, After: after, Through: q.query.Through}
	return func(yield func(events.DeadLetter, error) bool) {
		for l, err := range events.DeadLetters(ctx, r.config.JetStream, q.Generation, all) {
			if errors.Is(err, events.ErrDeadLetter) {
				skipped(err)
				continue
			}
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				err = notFound("generation "+q.Generation+" has no events stream", "choose another generation, or start a worker: tributary run")
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}

// lettersPage is the data of the list.
type lettersPage struct {
	letterQuery

	Generations []string
	Statuses    []string
	Rows        []letterRow
	Groups      []*letters.Count
	Read        int // dead letters that were read
	Limited     bool
	Skipped     []string
	Pager       pager
	Requeue     string // the address that asks to requeue the selected ones; empty if none can be
	Done        string
}

// letterRow is a dead letter in the list.
type letterRow struct {
	events.DeadLetter
	Path string
	At   time.Time
}

// listLetters answers with a page of dead letters.
func (r letterRequest) listLetters() error {
	page, err := r.paging(50, 500)
	if err != nil {
		return err
	}
	var view lettersPage
	err = r.permitted(r.Context(), func(ctx context.Context) error {
		q, err := r.letterQuery(ctx, r.URL.Query())
		if err != nil {
			return err
		}
		after, err := parseLetterPlace(page.After)
		if err != nil {
			return err
		}
		view.letterQuery = q
		return r.readLetters(ctx, &view, page, after)
	})
	if err != nil {
		return err
	}
	view.Statuses, view.Done = letterStatuses, r.done()
	if slices.ContainsFunc(view.Rows, func(l letterRow) bool { return l.Requeueable() == events.RequeuedNow }) {
		view.Requeue = "/pipeline/letters/requeue" + queryOf(view.values(r.filter.Since, r.filter.Until))
	}
	if list, err := pipelineRequest(r).generations(r.Context()); err == nil { // without the list the field takes any text
		for _, g := range list.Rows {
			view.Generations = append(view.Generations, g.Name)
		}
	}
	return r.page("letters", "Dead letters", view)
}

// readLetters reads the rows of a page, and counts the selected ones among the dead letters that it reads.
func (r letterRequest) readLetters(ctx context.Context, view *lettersPage, page paging, after streams.Positions) error {
	counts := letters.Counts{}
	end := ""
	for l, err := range r.letters(ctx, &view.letterQuery, after, func(err error) {
		if len(view.Skipped) < 5 {
			view.Skipped = append(view.Skipped, err.Error())
		}
	}) {
		if err != nil {
			return err
		}
		if len(view.Rows) == page.Limit || view.Read == lettersRead {
			view.Limited = view.Read == lettersRead
			view.Pager = r.pager(page, end)
			break
		}
		view.Read++
		end = letterPlace(&l)
		if !view.query.Matches(&l) {
			continue
		}
		counts.Add(&l)
		view.Rows = append(view.Rows, letterRow{l, letterPath(&l), l.Stored.In(r.filter.Zone)})
	}
	if view.Pager == (pager{}) {
		view.Pager = r.pager(page, "")
	}
	view.Groups = counts.Sorted()
	return nil
}

// letterPlace names the place of a dead letter: its cell, and its position there.
func letterPlace(l *events.DeadLetter) string { return fmt.Sprintf("%d.%d", l.Cell, l.Position) }

// letterPath returns the address of a dead letter.
func letterPath(l *events.DeadLetter) string {
	return "/pipeline/letters/" + l.Generation + "/" + letterPlace(l)
}

// parseLetterPlace returns the positions after which a list continues; nil for no place.
func parseLetterPlace(text string) (streams.Positions, error) {
	if text == "" {
		return nil, nil
	}
	first, second, ok := strings.Cut(text, ".")
	cell, err := strconv.ParseUint(first, 10, 8)
	position, err2 := strconv.ParseUint(second, 10, 64)
	if !ok || err != nil || err2 != nil {
		return nil, invalid("this is no place in the list of dead letters", "begin with the first page")
	}
	p := streams.Positions(nil).With(int(cell), position) //nolint:gosec // eight bits
	for c := range p[:cell] {
		p[c] = 1<<64 - 1 // earlier cells are done
	}
	return p, nil
}

// letter returns the dead letter that the address names.
func (r letterRequest) letter(ctx context.Context) (l events.DeadLetter, err error) {
	generation, err := r.generationName()
	if err != nil {
		return l, err
	}
	at, err := parseLetterPlace(r.PathValue("place"))
	if err != nil || at == nil || at[len(at)-1] == 0 {
		return l, notFound("there is no such dead letter", "choose one of the list")
	}
	q := letterQuery{Generation: generation}
	cell := len(at) - 1
	q.query.Through = streams.Positions(nil).With(cell, at[cell])
	at[cell]--
	var skipped error
	for l, err := range r.letters(ctx, &q, at, func(err error) { skipped = err }) {
		return l, err
	}
	if skipped != nil {
		return l, notFound(skipped.Error(), "choose a dead letter of the list")
	}
	return l, notFound("there is no such dead letter in generation "+generation, "it was purged, or its generation was dropped: choose one of the list")
}

// letterPage is the data of the page of a dead letter.
type letterPage struct {
	events.DeadLetter

	Path    string
	Fields  []letters.Field
	Text    string // the beginning of its bytes
	More    int64  // how many bytes are not shown
	Gone    bool
	Large   bool   // too large to load
	Refused string // why it cannot be requeued; empty if it can
	Done    string
}

// showLetter answers with the page of a dead letter.
func (r letterRequest) showLetter() error {
	var view letterPage
	err := r.permitted(r.Context(), func(ctx context.Context) error {
		l, err := r.letter(ctx)
		if err != nil {
			return err
		}
		view.DeadLetter = l
		data, err := r.loadLetter(ctx, &l)
		var large *problem
		switch {
		case errors.Is(err, events.ErrRecordGone):
			view.Gone = true
		case errors.As(err, &large):
			view.Large, view.More = true, l.RecordSize()
		case err != nil:
			return err
		}
		shown := data[:min(len(data), letterPreview)]
		if len(shown) > 0 {
			view.Text = terminal.Printable(string(bytes.TrimRight(shown, "\n")))
			view.More = int64(len(data) - len(shown))
		}
		return nil
	})
	if err != nil {
		return err
	}
	view.Path, view.Done = letterPath(&view.DeadLetter), r.done()
	view.Fields = letters.Fields(&view.DeadLetter, view.Gone)
	view.Refused = refusalOf(&view.DeadLetter)
	return r.page("letter", "Dead letter "+strconv.FormatUint(view.Sequence, 10), view)
}

// refusalOf returns why a dead letter cannot be requeued, as far as known; empty if it can.
func refusalOf(l *events.DeadLetter) string {
	switch is := l.Requeueable(); is {
	case events.RequeuedNow:
		return ""
	case events.RequeuedSettled:
		return "it is settled: a copy of its record was read since, or is a dead letter itself"
	default:
		return is.Cure()
	}
}

// loadLetter loads the bytes of a dead letter; too many bytes are a problem.
func (r letterRequest) loadLetter(ctx context.Context, l *events.DeadLetter) ([]byte, error) {
	if size := l.RecordSize(); size > letterLoaded {
		return nil, &problem{
			Status: http.StatusRequestEntityTooLarge, Text: "the record has " + terminal.Size(size) + ", and the console loads " + terminal.Size(letterLoaded) + " at most",
			Cure: fmt.Sprintf("tributary dlq show --raw %d writes it", l.Sequence),
		}
	}
	return l.LoadRecord(ctx, r.config.JetStream)
}

// rawLetter answers with the bytes of a dead letter as a file, which no browser shows as a page.
func (r letterRequest) rawLetter() error {
	return r.permitted(r.Context(), func(ctx context.Context) error {
		l, err := r.letter(ctx)
		if err != nil {
			return err
		}
		data, err := r.loadLetter(ctx, &l)
		if errors.Is(err, events.ErrRecordGone) {
			return notFound(err.Error(), "ship the log again: tributary ship --again")
		}
		if err != nil {
			return err
		}
		header := r.w.Header()
		header.Set("Content-Type", "application/octet-stream")
		header.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="record-%d.bin"`, l.Sequence))
		_, _ = r.w.Write(data) // fails if the browser has gone away
		return nil
	})
}

// askRequeue answers with the page that asks whether to requeue a dead letter.
func (r letterRequest) askRequeue() error {
	var l events.DeadLetter
	err := r.permitted(r.Context(), func(ctx context.Context) (err error) {
		l, err = r.letter(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if refused := refusalOf(&l); refused != "" {
		return conflict("record "+strconv.FormatUint(l.Sequence, 10)+" cannot be requeued", refused)
	}
	what := []string{
		fmt.Sprintf("The record %d (%s, of session %s of %s) is published to the raw stream again.", l.Sequence, terminal.Size(l.RecordSize()), terminal.OneLine(l.Session), terminal.OneLine(string(l.Source))),
		"A worker appends its events to the session. If the record still cannot be read, it becomes a new dead letter, which names this one.",
		"It yields its events once, however often it is requeued.",
	}
	return r.confirm("Requeue record "+strconv.FormatUint(l.Sequence, 10), confirmation{
		What: r.readOnly(what), Action: r.URL.Path, Button: "Requeue", Back: letterPath(&l), BackTo: "the dead letter",
	})
}

// readOnly adds that nothing will happen, if the console only reads.
func (r letterRequest) readOnly(what []string) []string {
	if r.config.Write {
		return what
	}
	return append(what, "This console only reads: the form is refused. Start it with --write to change things here.")
}

// requeue requeues a dead letter.
func (r letterRequest) requeue() error {
	var l events.DeadLetter
	var is events.Requeued
	err := r.change(func(ctx context.Context) (err error) {
		if l, err = r.letter(ctx); err != nil {
			return err
		}
		one := func(yield func(events.DeadLetter, error) bool) { yield(l, nil) }
		return events.Requeue(ctx, r.config.JetStream, one, func(_ events.DeadLetter, outcome events.Requeued) { is = outcome })
	})
	switch {
	case err != nil:
		return err
	case is == events.RequeuedSettled:
		return conflict("record "+strconv.FormatUint(l.Sequence, 10)+" cannot be requeued", refusalOf(&l))
	case !is.Done():
		return conflict("record "+strconv.FormatUint(l.Sequence, 10)+" cannot be requeued", is.Cure())
	}
	return r.seeOther(letterPath(&l) + "?done=" + string(is))
}

// requeueable iterates over the selected dead letters that can be requeued, among as many as a page reads. It sets
// more if others follow.
func (r letterRequest) requeueable(ctx context.Context, q *letterQuery, more *bool) iter.Seq2[events.DeadLetter, error] {
	return func(yield func(events.DeadLetter, error) bool) {
		read := 0
		for l, err := range r.letters(ctx, q, nil, func(error) {}) {
			if read++; err == nil && read > lettersRead {
				*more = true
				return
			}
			if err == nil && (!q.query.Matches(&l) || l.Requeueable() != events.RequeuedNow) {
				continue
			}
			if !yield(l, err) {
				return
			}
		}
	}
}

// askRequeueAll answers with the page that asks whether to requeue all selected dead letters.
func (r letterRequest) askRequeueAll() error {
	var q letterQuery
	counts, n, more := letters.Counts{}, 0, false
	var last streams.Positions
	err := r.permitted(r.Context(), func(ctx context.Context) (err error) {
		if q, err = r.letterQuery(ctx, r.URL.Query()); err != nil {
			return err
		}
		for l, err := range r.requeueable(ctx, &q, &more) {
			if err != nil {
				return err
			}
			n++
			counts.Add(&l)
			last = last.With(l.Cell, l.Position)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n == 0 {
		return conflict("no dead letter that is selected can be requeued", "choose others")
	}
	what := []string{fmt.Sprintf("The records of %s of generation %s are published to the raw stream again.", terminal.Plural(n, "dead letter"), q.Generation)}
	for _, c := range counts.Sorted() {
		what = append(what, fmt.Sprintf("%s of %s: %s, %s.", terminal.OneLine(c.Reason), terminal.OneLine(string(c.Source)), terminal.Plural(c.Records, "record"), terminal.Size(c.Bytes)))
	}
	if more {
		what = append(what, "There are more, which you can requeue afterwards.")
	}
	what = append(what, "Workers append their events to their sessions. A record that still cannot be read becomes a new dead letter, which names the one before.")
	fields := map[string]string{"through": strings.ReplaceAll(last.String(), " ", "_")}
	for name, values := range q.values(formTime(q.query.Since), formTime(q.query.Until)) {
		fields[name] = values[0]
	}
	return r.confirm("Requeue "+terminal.Plural(n, "dead letter"), confirmation{
		What: r.readOnly(what), Action: r.URL.Path, Fields: fields, Button: "Requeue " + terminal.Plural(n, "record"), Back: "/pipeline/letters" + queryOf(r.URL.Query()), BackTo: "the dead letters",
	})
}

// formTime writes a time of the filter so that a later form means the same time; empty for none.
func formTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// outcomeRow counts the dead letters with an outcome.
type outcomeRow struct {
	Outcome events.Requeued
	Count   int
	Cure    string
}

// requeueAll requeues the dead letters that a form selects, up to the last one that its page counted.
func (r letterRequest) requeueAll() error {
	if err := r.form(); err != nil {
		return err
	}
	var rows []outcomeRow
	err := r.change(func(ctx context.Context) error {
		q, err := r.letterQuery(ctx, r.PostForm)
		if err != nil {
			return err
		}
		for text := range strings.SplitSeq(r.PostForm.Get("through"), "_") {
			position, err := strconv.ParseUint(text, 10, 64)
			if err != nil || len(q.query.Through) > 1<<8 {
				return invalid("the form does not say up to which dead letter", "ask from the list of dead letters")
			}
			q.query.Through = append(q.query.Through, position)
		}
		more := false
		return events.Requeue(ctx, r.config.JetStream, r.requeueable(ctx, &q, &more), func(_ events.DeadLetter, is events.Requeued) {
			i := slices.IndexFunc(rows, func(o outcomeRow) bool { return o.Outcome == is })
			if i < 0 {
				i, rows = len(rows), append(rows, outcomeRow{Outcome: is, Cure: is.Cure()})
			}
			rows[i].Count++
		})
	})
	if err != nil {
		return err
	}
	return r.page("requeued", "Requeued dead letters", rows)
}
