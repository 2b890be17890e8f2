package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/genai"
)

// traceFlags are the flags of trace.
type traceFlags struct {
	source, output string
	otlp, content  bool
}

func traceCommand(a *app) *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:   "trace [flags] ID",
		Short: "Show a session as spans, or export them by OTLP",
		Long: `Show what a session did as spans by the GenAI semantic conventions of OpenTelemetry:
invoke_agent for each turn and each run of a subagent, chat for each call of a
model, execute_tool for each tool call. The beginning of the id is enough if no
other session has the same.

Each turn is a trace, which links to the previous turn. Times, tokens and outcomes are
those of the events. Ids of traces and spans depend only on ids of the session and its
events: exporting a session again gives the same traces.

--otlp sends the spans to the receiver that the settings OTEL_EXPORTER_OTLP_ENDPOINT,
_PROTOCOL, _HEADERS and the like name, by default http://localhost:4318. Prompts,
answers, and arguments and results of tools are left out without --content.
-o json prints one span per line.`,
		Example: `  tributary trace 0b6a7f58
  tributary trace 0b6a7f58 -o json | jq 'select(.status == "error")'
  OTEL_EXPORTER_OTLP_ENDPOINT=http://jaeger:4318 tributary trace 0b6a7f58 --otlp`,
		Args: oneArg("session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(f.output, "pretty", "json"); err != nil {
				return err
			}
			if f.otlp && cmd.Flags().Changed("output") {
				return usageError{errors.New("--otlp prints nothing: leave out --output")}
			}
			source, err := parseSource(f.source)
			if err != nil {
				return err
			}
			return traceSession(cmd.Context(), a, source, args[0], &f)
		},
	}
	sourceFlag(cmd, &f.source, "agent of the session, if two have the same id")
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", "pretty", "pretty or json")
	flags.BoolVar(&f.otlp, "otlp", false, "export the spans to the receiver of the OTEL_EXPORTER_OTLP_ settings")
	flags.BoolVar(&f.content, "content", false, "with prompts, answers, and arguments and results of tools")
	a.serverFlag(cmd)
	return cmd
}

// traceSession prints or exports the spans of the session with this id or beginning of an id.
func traceSession(ctx context.Context, a *app, source envelopes.Source, id string, f *traceFlags) error {
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	session, err := findSession(ctx, a, js, source, id)
	if err != nil {
		return a.noStream(err)
	}
	spans, skipped, err := sessionSpans(ctx, a, js, session, f.content)
	switch {
	case err != nil:
		return err
	case len(spans) == 0:
		fmt.Fprintf(a.stderr, "session %s has no spans: no prompt, no answer and no tool\n", terminal.OneLine(session.Session))
	case f.otlp:
		err = exportSpans(ctx, a, spans)
	case f.output == "json":
		err = printSpansJSON(a.stdout, spans)
	default:
		first, last := spanDays(spans)
		table := spanTable(spans, first != last)
		if first != last {
			first += " to " + last
		}
		fmt.Fprintf(a.stdout, "%s %s  %s  %s\n\n", session.Source, terminal.OneLine(session.Session), first, terminal.Plural(len(spans), "span"))
		err = table.Write(a.stdout, terminal.TableWidth(a.stdout))
	}
	if err == nil && skipped > 0 {
		err = partlyError(terminal.Plural(skipped, "event") + " could not be read")
	}
	return err
}

// sessionSpans reads the events of a session. It returns the spans, and how many events could not be read.
func sessionSpans(ctx context.Context, a *app, js jetstream.JetStream, session events.SessionID, content bool) (spans []*genai.Span, skipped int, err error) {
	view := genai.New(content)
	q := events.Query{Source: session.Source, Session: session.Session}
	for e, err := range events.Read(ctx, js, a.config.Generation, q) {
		if err != nil && e.Position == 0 {
			return nil, 0, err
		}
		if err != nil {
			fmt.Fprintf(a.stderr, "skipped: %v\n", err)
			skipped++
			continue
		}
		view.Add(&e.AgentEventV1)
	}
	return view.Spans(), skipped, context.Cause(ctx)
}

// spanDays returns the days of the first and the last span, in the local time zone.
func spanDays(spans []*genai.Span) (first, last string) {
	days := make([]string, len(spans))
	for i, s := range spans {
		days[i] = s.Start.Local().Format(time.DateOnly)
	}
	return slices.Min(days), slices.Max(days)
}

// spanTable is the tree of spans as a table. With days, times have the date.
func spanTable(spans []*genai.Span, days bool) terminal.Table {
	layout := time.TimeOnly
	if days {
		layout = "01-02 " + time.TimeOnly
	}
	t := terminal.Table{Columns: []terminal.Column{
		{Head: "SPAN", Text: true},
		{Head: "START", Priority: 4},
		{Head: "TIME", Right: true, Priority: 5},
		{Head: "INPUT", Right: true, Priority: 2},
		{Head: "OUTPUT", Right: true, Priority: 3},
		{Head: "ERROR", Priority: 6},
		{Head: "TRACE", Priority: 1},
	}}
	for _, s := range spans {
		row := []string{
			strings.Repeat("  ", s.Depth()) + terminal.OneLine(s.Name), s.Start.Local().Format(layout), s.End.Sub(s.Start).Round(time.Millisecond).String(),
			"", "", terminal.OneLine(s.Failure), "",
		}
		if u := s.Usage; u != nil {
			row[3], row[4] = terminal.Thousands(u.Input+u.CacheRead+u.CacheWrite), terminal.Thousands(u.Output+u.Reasoning)
		}
		if s.Parent == nil {
			row[6] = s.TraceID.String()
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// spanJSON is the JSON form of a span.
type spanJSON struct {
	TraceID    string         `json:"trace_id"`
	SpanID     string         `json:"span_id"`
	ParentID   *string        `json:"parent_span_id"`
	Name       string         `json:"name"`
	Kind       string         `json:"kind"`
	Start      time.Time      `json:"start"`
	End        time.Time      `json:"end"`
	Status     string         `json:"status"` // unset or error
	Attributes map[string]any `json:"attributes"`
}

// printSpansJSON prints one span per line.
func printSpansJSON(w io.Writer, spans []*genai.Span) error {
	for _, s := range spans {
		v := spanJSON{
			TraceID: s.TraceID.String(), SpanID: s.SpanID.String(), Name: s.Name, Kind: s.Kind().String(),
			Start: s.Start, End: s.End, Status: "unset", Attributes: map[string]any{},
		}
		if s.Parent != nil {
			id := s.Parent.SpanID.String()
			v.ParentID = &id
		}
		if s.Failure != "" {
			v.Status = "error"
		}
		for _, attr := range s.Attributes {
			v.Attributes[string(attr.Key)] = attr.Value.AsInterface()
		}
		if err := terminal.WriteJSON(w, &v); err != nil {
			return err
		}
	}
	return nil
}
