package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
)

func dlqRequeueCommand(a *app) *cobra.Command {
	var filter *letterFilter
	var all, dryRun bool
	var output string
	cmd := &cobra.Command{
		Use:   "requeue [flags] [SEQUENCE...]",
		Short: "Publish the records of dead letters again",
		Long: `Publish the records of dead letters to the raw stream again. A worker appends
their events to their sessions. A record that still cannot be read becomes a new
dead letter, which names the one before it.

One line per dead letter names its record, its generation and the outcome:
requeued, waiting (it was requeued minutes ago), settled (it was read later, or became a
new dead letter), or why it cannot be requeued: forgotten, no_session, gone, too_large.

The command may be interrupted and repeated: a record yields its events once, even if it
is requeued again. The exit code is 3 if some could not be requeued.`,
		Example: `  tributary dlq requeue 4711 4712
  tributary dlq requeue --reason panic --dry-run
  tributary dlq requeue --all -o json | jq -c 'select(.done | not)'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !all && !filter.isSet(cmd, args) {
				return usageError{errors.New("name sequences or a filter, or pass --all")}
			}
			if err := checkOutput(output, "pretty", "json"); err != nil {
				return err
			}
			return filter.selectLetters(cmd, a, args, func(ctx context.Context, s *letterSelection) error {
				report := requeueReport{letterSelection: s, json: output == "json", counts: make(map[events.Requeued]int)}
				letters := s.letters(ctx)
				if !dryRun {
					err := a.traced(ctx, "requeue", func(ctx context.Context) error {
						return events.Requeue(ctx, s.js, letters, report.add)
					})
					return cmp.Or(err, report.close("requeued"))
				}
				for l, err := range letters {
					if err != nil {
						return err
					}
					report.add(l, l.Requeueable())
				}
				return report.close("would requeue")
			})
		},
	}
	filter = letterFlags(cmd, a, allLetters)
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters of the generation")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be requeued, and change nothing")
	cmd.Flags().StringVarP(&output, "output", "o", "pretty", "pretty or json")
	return cmd
}

// requeueReport prints the outcome of requeued dead letters.
type requeueReport struct {
	*letterSelection
	json   bool
	failed error // to write the first line that could not be written
	counts map[events.Requeued]int
}

// requeuedLine is the JSON line of a dead letter.
type requeuedLine struct {
	Sequence   uint64           `json:"sequence"`
	Generation string           `json:"generation"`
	Source     envelopes.Source `json:"source"`
	Session    string           `json:"session"`
	Outcome    events.Requeued  `json:"outcome"`
	Done       bool             `json:"done"` // no further attempt is needed
}

// add prints and counts the outcome of a dead letter. It adds the cure to the first refusals of each reason.
func (r *requeueReport) add(l events.DeadLetter, outcome events.Requeued) {
	const shown = 5
	r.counts[outcome]++
	var err error
	if r.json {
		err = terminal.WriteJSON(r.stdout, requeuedLine{l.Sequence, l.Generation, l.Source, l.Session, outcome, outcome.Done()})
	} else {
		_, err = fmt.Fprintf(r.stdout, "%d\t%s\t%s\n", l.Sequence, l.Generation, outcome)
	}
	r.failed = cmp.Or(r.failed, err)
	r.missing.found(&l)
	if !outcome.Done() && r.counts[outcome] <= shown {
		fmt.Fprintf(r.stderr, "%d: %s\n", l.Sequence, outcome.Cure())
	}
}

// close prints the counts; verb names what was done.
func (r *requeueReport) close(verb string) error {
	refused := 0
	for outcome, n := range r.counts {
		if !outcome.Done() {
			refused += n
		}
	}
	text := verb + " " + terminal.Plural(r.counts[events.RequeuedNow], "dead letter")
	if n := r.counts[events.RequeuedBefore]; n > 0 {
		text += fmt.Sprintf(", %s requeued before", terminal.Thousands(int64(n)))
	}
	if n := r.counts[events.RequeuedSettled]; n > 0 {
		text += fmt.Sprintf(", %s settled before", terminal.Thousands(int64(n)))
	}
	fmt.Fprintln(r.stderr, text)
	if r.failed != nil {
		return r.failed
	}
	if refused > 0 {
		return partlyError(terminal.Plural(refused, "dead letter") + " cannot be requeued")
	}
	return r.missed()
}
