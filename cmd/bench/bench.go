package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/terminal"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/load"
	"tributary/pipeline/streams"
)

// measure measures what the flags ask for, and prints the report.
func measure(ctx context.Context, f *flags, folder string) (err error) {
	b := &bench{flags: f, report: report{CPUs: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Raw: f.raw, Sync: f.sync}}
	if b.report.Version, err = programVersion(ctx, f.program); err != nil {
		return err
	}
	if terminal.IsTerminal(os.Stderr) {
		b.status = terminal.NewStatusLine(os.Stderr)
	}
	b.show("reads the records")
	if err := b.readRecords(folder); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tributary-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := b.connect(ctx, dir); err != nil {
		return err
	}
	defer func() {
		b.show("")
		err = errors.Join(err, b.close(context.WithoutCancel(ctx)))
	}()
	for _, part := range parts {
		if !slices.Contains(f.parts, part) {
			continue
		}
		if err := b.part(ctx, part); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	b.show("")
	return b.report.write(os.Stdout, f.output)
}

// bench is a run of the command.
type bench struct {
	flags   *flags
	records []core.Record
	report  report
	status  *terminal.StatusLine // nil without a terminal

	url    string
	server *process // nil if the user has a server
	js     jetstream.JetStream
	runs   int // generations that were made
}

// show prints on a terminal what bench does.
func (b *bench) show(line string) {
	if line != "" {
		line = "bench " + line
	}
	b.status.Show(line)
}

// defaultRecords is the default number of generated records.
const defaultRecords = 50_000

// readRecords reads the records of the folder, or generates them.
func (b *bench) readRecords(folder string) error {
	var err error
	n := b.flags.records
	if folder == "" {
		if n == 0 {
			n = defaultRecords
		}
		b.records, err = load.Mix(n, 0)
		b.report.Logs = "generated"
	} else {
		b.records, err = load.Folder(folder)
		b.report.Logs = folder
		if n > 0 && err == nil {
			b.records = load.Repeat(b.records, n)
		}
	}
	sessions := make(map[events.SessionID]bool)
	for _, r := range b.records {
		sessions[events.SessionID{Source: r.Source, Session: r.Session}] = true
		b.report.Bytes += int64(len(r.Data))
	}
	b.report.Records, b.report.Sessions = len(b.records), len(sessions)
	return err
}

// connect starts a server, or connects to the one of the user, which must not have the streams that bench creates.
func (b *bench) connect(ctx context.Context, dir string) error {
	b.url = b.flags.server
	var nc *nats.Conn
	var err error
	if b.url == "" {
		if b.server, b.url, err = startServer(ctx, dir, b.flags.sync); err != nil {
			return err
		}
		nc, err = nats.Connect(b.url)
	} else {
		nc, err = connect(b.url, b.flags.creds)
	}
	if err == nil {
		b.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(requestTimeout))
	}
	var names []string
	if err == nil {
		names, err = b.streams(ctx)
	}
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("the server has streams that bench would use: %s: name one, or an account, without them", strings.Join(names, ", "))
	}
	if err != nil {
		if nc != nil {
			nc.Close()
		}
		return errors.Join(err, b.server.stop())
	}
	b.report.Server = nc.ConnectedServerVersion()
	return nil
}

// requestTimeout bounds the wait for an answer of JetStream.
const requestTimeout = 5 * time.Second

// connect connects to a server, with the credentials of a file unless its name is empty.
func connect(url, creds string) (*nats.Conn, error) {
	options := []nats.Option{nats.Name("tributary bench")}
	if creds != "" {
		options = append(options, nats.UserCredentials(creds))
	}
	nc, err := nats.Connect(url, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to the server of --server: %w", err)
	}
	return nc, nil
}

// streams returns the streams on the server that bench creates.
func (b *bench) streams(ctx context.Context) ([]string, error) {
	var names []string
	list := b.js.StreamNames(ctx)
	for name := range list.Name() {
		switch name {
		case load.FloorStream, streams.RawStream, streams.SessionsStream, "OBJ_" + streams.ClaimsBucket:
			names = append(names, name)
		default:
			if strings.HasPrefix(name, "KV_TRIBUTARY") || strings.HasPrefix(name, streams.EventsStream("")) || strings.HasPrefix(name, streams.RawStream+"_") {
				names = append(names, name)
			}
		}
	}
	return names, list.Err()
}

// reset removes the streams.
func (b *bench) reset(ctx context.Context) error {
	names, err := b.streams(ctx)
	for _, name := range names {
		err = errors.Join(err, b.js.DeleteStream(ctx, name))
	}
	return err
}

// close removes the streams and ends the server that bench started.
func (b *bench) close(ctx context.Context) error {
	err := b.reset(ctx)
	b.js.Conn().Close()
	return errors.Join(err, b.server.stop())
}

// part runs one measurement with new streams.
func (b *bench) part(ctx context.Context, part string) error {
	if err := b.reset(ctx); err != nil {
		return err
	}
	switch part {
	case "throughput":
		return b.throughput(ctx)
	case "latency":
		return b.latency(ctx)
	default:
		return b.takeover(ctx)
	}
}

// newGeneration creates a generation for the next worker.
func (b *bench) newGeneration(ctx context.Context) (streams.Topology, error) {
	b.runs++
	top := streams.DefaultTopology()
	top.Generation, top.Settings.Raw = fmt.Sprintf("bench-%d", b.runs), streams.RawMode(b.flags.raw)
	return top, streams.Provision(ctx, b.js, top)
}
