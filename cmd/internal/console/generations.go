package console

import (
	"context"
	"fmt"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// generationList has the generations of the broker and their progress.
type generationList struct {
	Live     string
	Rows     []generationRow
	Open     string // what an interrupted command left; empty for nothing
	Finish   string // the address that finishes that
	RollBack string // the generation to which the live one can be rolled back; empty for none
	At       time.Time

	all *streams.Generations
}

// generationRow is a generation and its progress.
type generationRow struct {
	streams.Generation
	replay.Progress
	State   streams.State
	Partial string // the part of the raw stream that it covers; empty for all
	Unread  string // why its progress could not be read; empty if it was
	Rate    float64
	Left    string // about how long it takes; empty if unknown

	Promote, RollBack, Drop bool // whether the change can be asked for
}

// Waits returns how many records are not done.
func (g *generationRow) Waits() uint64 { return g.Total - min(g.Done, g.Total) }

// Find returns the row of a name, nil for none.
func (l *generationList) Find(name string) *generationRow {
	for i := range l.Rows {
		if l.Rows[i].Name == name {
			return &l.Rows[i]
		}
	}
	return nil
}

// generations returns the generations as they are or were a few seconds ago.
func (r pipelineRequest) generations(ctx context.Context) (*generationList, error) {
	return r.state.generations.get(ctx, "", examineEvery, nil, func(ctx context.Context) (*generationList, error) {
		before := r.state.generations.value // of the last reading; nobody else reads now
		var list *generationList
		err := r.permitted(ctx, func(ctx context.Context) (err error) {
			list, err = r.readGenerations(ctx)
			return noWorker(err)
		})
		if err != nil {
			return nil, err
		}
		if before != nil {
			list.setRates(before)
		}
		return list, nil
	})
}

// readGenerations reads the generations.
func (r pipelineRequest) readGenerations(ctx context.Context) (*generationList, error) {
	js := r.config.JetStream
	if _, err := js.Stream(ctx, streams.RawStream); err != nil {
		return nil, err
	}
	all, err := streams.ReadGenerations(ctx, js)
	if err != nil {
		return nil, err
	}
	list := &generationList{Live: all.Live, At: time.Now(), all: all}
	if c := all.Cutover; c.Open() {
		list.Open, list.Finish = c.Interrupted(), "/pipeline/generations/"+c.To+"/"+c.Command
	}
	if _, to, err := all.Rollback(""); err == nil {
		list.RollBack = to
	}
	for _, g := range all.List {
		row := generationRow{Generation: g, State: g.State}
		if g.Part != (streams.Part{}) {
			row.Partial = g.Part.String()
		}
		if g.State != streams.StateDropping && g.State != streams.StateStarting {
			switch row.Progress, err = replay.ReadProgress(ctx, js, g); {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case err != nil:
				row.Unread = err.Error()
			}
			row.State = row.Progress.State(&g)
		}
		busy := all.Cutover.Involves(g.Name)
		row.Promote = !busy && g.State == streams.StateReplaying && row.Partial == ""
		row.RollBack = !busy && g.Name == list.RollBack
		row.Drop = !busy && g.State != streams.StateLive
		list.Rows = append(list.Rows, row)
	}
	return list, nil
}

// setRates sets the rates of the generations since an earlier reading.
func (l *generationList) setRates(before *generationList) {
	seconds := l.At.Sub(before.At).Seconds()
	for i := range l.Rows {
		g := &l.Rows[i]
		was := before.Find(g.Name)
		if was == nil || seconds < 1 || seconds > 60 || g.Done <= was.Done || g.CaughtUp {
			continue
		}
		g.Rate = float64(g.Done-was.Done) / seconds
		g.Left = terminal.Rough(time.Duration(float64(g.Waits()) / g.Rate * float64(time.Second)))
	}
}

// generationPage is the data of the page of a generation.
type generationPage struct {
	*generationRow
	Live    string
	Expired []string
	Changed string // what was just changed; empty for nothing
}

// showGeneration answers with the page of a generation.
func (r pipelineRequest) showGeneration() error {
	name, err := r.generationName()
	if err != nil {
		return err
	}
	list, err := r.generations(r.Context())
	if err != nil {
		return err
	}
	g := list.Find(name)
	if g == nil {
		return notFound("there is no generation "+name, "choose one of the list of the pipeline")
	}
	page := generationPage{generationRow: g, Live: list.Live, Changed: r.done()}
	err = r.permitted(r.Context(), func(ctx context.Context) error {
		expired, err := replay.ReadExpired(ctx, r.config.JetStream)
		for _, e := range expired {
			if e.Generation == name {
				page.Expired = append(page.Expired, terminal.Plural(int(e.Records), "record")+" of "+e.Stream+" left the stream before they were read") //nolint:gosec // a number of records
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.page("generation", "Generation "+name, page)
}

// step is a change of a generation: the text that asks, and the function that makes it.
type step struct {
	title, button string
	danger        bool
	consequences  func(all *streams.Generations, g *generationRow) []string
	do            func(ctx context.Context, r *request, name string) error
	done          string // see [changes]
}

// steps are the changes, by the last word of their addresses.
var steps = map[string]step{
	streams.CommandPromote: {
		title: "Promote", button: "Make %s live", done: "promoted",
		consequences: func(all *streams.Generations, g *generationRow) []string {
			list := []string{
				g.Name + " becomes the live generation: workers, the commands and every consumer that follows the live one read it from then on.",
				all.Live + " is retired: it keeps its events, and no worker works on it. A rollback makes it live again.",
				fmt.Sprintf("%s has done %s of %s, and has %s and %s.", g.Name, terminal.Thousands(int64(g.Done)), plural(g.Total, "record"), plural(g.Events, "event"), plural(g.DeadLetters, "dead letter")), //nolint:gosec // a number of records
			}
			if all.Cutover.Involves(g.Name) {
				list = append(list, "This finishes a change that was interrupted: "+sentence(all.Cutover.Interrupted()))
			} else if !g.CaughtUp {
				list = append(list, "It is refused if "+g.Name+" has not done every record some seconds later.")
			}
			return list
		},
		do: func(ctx context.Context, r *request, name string) error {
			_, err := replay.Promote(ctx, r.config.JetStream, name, false)
			return err
		},
	},
	streams.CommandRollback: {
		title: "Roll back", button: "Make %s live again", done: "back",
		consequences: func(all *streams.Generations, g *generationRow) []string {
			from := all.Live
			if all.Cutover.Involves(g.Name) {
				from = all.Cutover.From
			}
			return []string{
				g.Name + " becomes the live generation again: workers, the commands and every consumer that follows the live one read it from then on.",
				g.Name + " goes on where it stopped, and lacks the records since then for seconds or minutes.",
				from + " is retired: it keeps its events, and no worker works on it until its replay is started again.",
			}
		},
		do: func(ctx context.Context, r *request, name string) error {
			_, _, err := replay.RollBackTo(ctx, r.config.JetStream, name)
			return err
		},
	},
	"drop": {
		title: "Drop", button: "Remove %s for good", danger: true, done: "dropped",
		consequences: func(_ *streams.Generations, g *generationRow) []string {
			return []string{
				fmt.Sprintf("%s and %s of %s are removed for good, with its states, its settings and its records of sessions.", plural(g.Events, "event"), plural(g.DeadLetters, "dead letter"), g.Name),
				"Consumers and subscriptions that read " + g.Name + " have nothing more to read.",
				"The raw records stay: a generation can be built from them again.",
			}
		},
		do: func(ctx context.Context, r *request, name string) error {
			return replay.Drop(ctx, r.config.JetStream, name)
		},
	},
}

func plural(n uint64, noun string) string {
	return terminal.Plural(int(n), noun) //nolint:gosec // a number of records
}

// step returns the change that the address names.
func (r pipelineRequest) step() (name string, s step, err error) {
	if name, err = r.generationName(); err != nil {
		return "", step{}, err
	}
	s, ok := steps[r.PathValue("step")]
	if !ok {
		return "", step{}, notFound("there is no such page", "follow the links of the console")
	}
	return name, s, nil
}

// askStep answers with the page that asks whether to change a generation.
func (r pipelineRequest) askStep() error {
	name, s, err := r.step()
	if err != nil {
		return err
	}
	r.state.generations.forget() // the page must show the current state
	list, err := r.generations(r.Context())
	if err != nil {
		return err
	}
	g := list.Find(name)
	if g == nil {
		return notFound("there is no generation "+name, "choose one of the list of the pipeline")
	}
	what := s.consequences(list.all, g)
	return r.confirm(s.title+" "+name, confirmation{
		What: letterRequest(r).readOnly(what), Action: r.URL.Path, Fields: map[string]string{"live": list.Live, "state": string(g.Generation.State)},
		Button: fmt.Sprintf(s.button, name), Danger: s.danger, Back: "/pipeline/generations/" + name, BackTo: "generation " + name,
	})
}

// takeStep changes a generation, unless the generations changed after the page asked.
func (r pipelineRequest) takeStep() error {
	name, s, err := r.step()
	if err != nil {
		return err
	}
	if err := r.form(); err != nil {
		return err
	}
	failed := r.change(func(ctx context.Context) error {
		all, err := streams.ReadGenerations(ctx, r.config.JetStream)
		if err != nil {
			return noWorker(err)
		}
		g, err := all.Find(name)
		if err != nil {
			return err
		}
		if r.PostForm.Get("live") != all.Live || r.PostForm.Get("state") != string(g.State) {
			return conflict("the generations have changed since this page asked: "+all.Live+" is live, and "+name+" is "+string(g.State), "look again, and decide anew")
		}
		return s.do(ctx, r.request, name)
	})
	r.state.generations.forget()
	r.state.diagnosis.forget()
	if failed != nil {
		return failed
	}
	address := "/pipeline/generations/" + name
	if s.done == "dropped" {
		address = "/pipeline"
	}
	return r.seeOther(address + "?done=" + s.done)
}
