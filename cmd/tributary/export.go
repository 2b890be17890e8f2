package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/export"
	"tributary/pipeline/sessions/prices"
)

// exportFlags are the flags of export.
type exportFlags struct {
	out, format string
	raw, follow bool
	compact     bool
	every       time.Duration
	spanBytes   int
}

func exportCommand(a *app) *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export [flags] --out DIR|URL",
		Short: "Write the events to Parquet or JSON Lines files",
		Long: `Write the events of the broker to files that DuckDB, ClickHouse, Spark and pandas
read, in folders by month (UTC) and source:

  DIR/month=2026-03/source=SOURCE/part-FIRST-LAST.parquet

FIRST and LAST are the range of sequences of the events stream that a file was written
for. Each row is one event with typed columns; --raw adds the raw record. With DuckDB:
select model, sum(usage_output) from 'DIR/*/*/*.parquet' group by all

Run it again to add what was stored since then: every event is in exactly one file, even
if the last run failed. Files appear when they are complete and never change; if the
events stream is restored from a backup, the files of lost events are replaced.
--compact replaces small files by larger ones, at the end or, with --follow, as soon as
there are many: pipeline/export/README.md says what readers of the files see meanwhile.
The folder _export has the list prices of models, for costs in SQL. With --follow it
continues with new events until Ctrl-C, and then stores what it has read. It follows the
live generation: when another is promoted, or a promotion is rolled back, it writes all
files again from the new one. Without --follow, files of another generation are refused.

A URL names a folder (file:///DIR) or a bucket of Amazon S3 or a store with its
protocol, such as MinIO, R2 and Ceph (s3://BUCKET/PREFIX). The store is set by
AWS_ENDPOINT_URL and AWS_REGION; credentials are those of AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, of AWS_PROFILE in ~/.aws/credentials, or of the machine. They
need the rights s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject.`,
		Example: `  tributary export --out events
  tributary export --out events --follow --every 10m
  tributary export --out s3://telemetry/events
  tributary export --out lines --format jsonl --raw`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return exportEvents(cmd.Context(), a, &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.out, "out", "", "`place` of the files: a folder, which is made if it does not exist, or a URL")
	enumFlag(cmd, &f.format, "format", export.Parquet, "format of the files", export.Formats)
	flags.BoolVar(&f.raw, "raw", false, "add the raw records")
	flags.BoolVar(&f.compact, "compact", false, "replace small files by larger ones")
	flags.BoolVar(&f.follow, "follow", false, "continue with new events")
	flags.DurationVar(&f.every, "every", export.DefaultEvery, "with --follow, how often to store events; more rarely makes fewer files")
	flags.IntVar(&f.spanBytes, "span-bytes", export.DefaultSpanBytes, "bytes of events in one file; less needs less memory and makes more files")
	a.serverFlag(cmd)
	return cmd
}

// exportEvents writes the events to the place of the flags.
func exportEvents(ctx context.Context, a *app, f *exportFlags) error {
	switch {
	case f.out == "":
		return usageError{errors.New("--out is missing: name the folder of the files")}
	case f.every <= 0:
		return usageError{fmt.Errorf("--every %v: write a duration such as 1m", f.every)}
	case f.spanBytes <= 0:
		return usageError{fmt.Errorf("--span-bytes %d: write a number from 1 on", f.spanBytes)}
	}
	format, err := parseEnum("format", f.format, export.Formats)
	if err != nil {
		return err
	}
	out, err := parsePlace("--out", f.out)
	if err != nil {
		return usageError{err}
	}
	cfg := export.Config{
		Dir: out.dir, Format: format, Raw: f.raw, Compact: f.compact, Prices: prices.Builtin().CSV(),
		SpanBytes: f.spanBytes, Follow: f.follow, Every: f.every, Drain: a.config.DrainTimeout, Logger: a.log,
	}
	if out.bucket != "" {
		if cfg.Bucket, err = a.config.bucket(out); err != nil {
			return err
		}
		if !f.follow {
			cfg.Bucket.Limit = storeLimit
		}
	}
	cfg.Live = a.config.Generation == ""
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	cfg.Generation = a.config.Generation // the broker has named the live generation
	if cfg.Bucket == nil {
		unlock, err := lock(filepath.Join(out.dir, "_export"), "pass another folder with --out")
		if err != nil {
			return err
		}
		defer unlock()
	}
	result, err := export.Run(ctx, js, cfg)
	if err != nil {
		return a.noStream(err)
	}
	fmt.Fprintf(a.stderr, "exported %s to %s, through sequence %v\n", terminal.Plural(result.Events, "event"), terminal.Plural(result.Files, "new file"), result.Through)
	if result.Replaced > 0 {
		fmt.Fprintf(a.stderr, "another generation is live: %s replaced\n", terminal.Plural(result.Replaced, "file"))
	}
	if result.Compacted > 0 {
		fmt.Fprintf(a.stderr, "compacted: larger files replace %s\n", terminal.Plural(result.Compacted, "small file"))
	}
	if result.Removed > 0 {
		fmt.Fprintf(a.stderr, "the events stream went back in time: %s replaced\n", terminal.Plural(result.Removed, "file"))
	}
	if result.Unreadable > 0 {
		return partlyError(terminal.Plural(result.Unreadable, "event") + " could not be read")
	}
	if result.Gone > 0 {
		return partlyError(terminal.Plural(result.Gone, "event") + " without raw: their records have left the raw stream")
	}
	return nil
}
