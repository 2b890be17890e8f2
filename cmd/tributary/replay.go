package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

func replayCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Build events again beside the live ones, compare them, and cut over",
		Long: `A generation is one set of events: what one revision of the normalizers makes of the raw
records with one set of settings. Consumers read the live one. start builds another from
the raw stream; the running workers do the work, in the time that the live generation
leaves them. diff compares two generations, promote makes one live, and rollback reverts
that.

A worker works on generations of its own revision alone (tributary version prints it):
to build events of a new version, start workers of that version beside the others, and
run replay start of that version.`,
		Example: `  tributary replay start b --set tool_metadata=current
  tributary replay status b --wait
  tributary replay diff v1 b
  tributary replay promote b
  tributary replay drop v1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(replayStartCommand(a), replayStatusCommand(a), replayListCommand(a),
		replayDiffCommand(a), replayPromoteCommand(a), replayRollbackCommand(a), replayDropCommand(a))
	return cmd
}

// replayFlags are the flags of replay start.
type replayFlags struct {
	set                    []string
	since, source, session string
	sequence               uint64
	expired                bool
}

func replayStartCommand(a *app) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "start NAME [flags]",
		Short: "Build a generation beside the live one",
		Long: `Create a generation, and let the workers build it from everything that the raw stream
has. The command returns at once; replay status shows how far it is. Its settings are
those of the live generation, unless --set changes them:

` + settingValues() + `
With --since, --sequence, --source or --session it is built from a part of the raw
stream, for looking and comparing; it cannot be promoted. Sessions that began before
--since or --sequence begin there, without their earlier records.

The command may be repeated: it continues a replay with the same settings. On a
retired generation it resumes the work.`,
		Example: `  tributary replay start b
  tributary replay start b --set tool_metadata=current --set cloudevents=structured
  tributary replay start trial --since 24h`,
		Args: generationArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.replay(a.config, args[0])
			if err != nil {
				return err
			}
			since, err := parseSince(f.since, time.Now())
			if err != nil {
				return err
			}
			return a.withBroker(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				return startReplay(ctx, a, js, r, since)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.set, "set", nil, "a setting of the generation as `key=value`: "+strings.Join(streams.SettingKeys(), ", "))
	flags.StringVar(&f.since, "since", "", "only records stored since then: a duration, date or time")
	flags.Uint64Var(&f.sequence, "sequence", 0, "only records from this sequence of the raw stream on")
	sourceFlag(cmd, &f.source, "only records of this agent")
	flags.StringVar(&f.session, "session", "", "only records of this session: its whole id")
	flags.BoolVar(&f.expired, "allow-expired", false, "continue although records have left the raw stream: sessions may begin in the middle")
	a.serverFlag(cmd)
	return cmd
}

// settingValues lists the settings of a generation for the help.
func settingValues() string {
	var b strings.Builder
	for _, key := range streams.SettingKeys() {
		fmt.Fprintf(&b, "  --set %s=%s\n", key, strings.Join(streams.SettingValues(key), "|"))
	}
	return b.String()
}

// replay returns the request that the flags describe, without --since.
func (f *replayFlags) replay(c *config, name string) (replay.Request, error) {
	r := replay.Request{Name: name, Part: streams.Part{Sequence: f.sequence, Session: f.session}, Expired: f.expired}
	if f.since != "" && f.sequence != 0 {
		return r, usageError{errors.New("pass either --since or --sequence")}
	}
	for _, s := range f.set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return r, usageError{fmt.Errorf("--set %q: write key=value", s)}
		}
		if err := r.Settings.Set(key, value); err != nil {
			return r, usageError{fmt.Errorf("--set %w", err)}
		}
	}
	if r.Settings.Redacted() {
		redactor, err := c.redactor(r.Settings.Redact)
		if err != nil {
			return r, err
		}
		r.Settings.RedactKey, r.Settings.RedactRules = redactor.Fingerprint(), redactor.RulesFingerprint()
	}
	var err error
	r.Part.Source, err = parseSource(f.source)
	return r, err
}

// startReplay starts a replay and names the next command.
func startReplay(ctx context.Context, a *app, js jetstream.JetStream, r replay.Request, since time.Time) error {
	if _, err := readGenerations(ctx, js); err != nil {
		return err
	}
	if !since.IsZero() {
		var err error
		if r.Part.Sequence, err = replay.RawSequenceAt(ctx, js, since); err != nil {
			return err
		}
	}
	g, err := replay.Start(ctx, js, r)
	if err != nil {
		return withReplayCure(err)
	}
	fmt.Fprintf(a.stderr, "the workers of revision %d build %s (%s): tributary replay status %s shows how far they are\n", g.Revision, g.Name, g.Settings, g.Name)
	return nil
}
