// Package load makes records to measure with: those of a folder of logs, or a generated mix of
// the kinds and sizes of real logs. The same input gives the same records in the same order.
//
// Tests and cmd/bench use it, no part of the product does. Start with [Folder], [Mix] and [Publish].
package load

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
)

// live is how many logs are read at the same time, interleaved like the records of many agents.
const live = 32

// errNoLogs is the error of a folder without a log that can be read.
var errNoLogs = errors.New("no log of a known agent")

// Folder reads the logs below a folder, except packed ones and those of unknown agents.
func Folder(dir string) ([]core.Record, error) {
	var logs [][]core.Record
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if records := frame(filepath.ToSlash(name), data); len(records) > 0 {
			logs = append(logs, records)
		}
		return nil
	})
	if err == nil && len(logs) == 0 {
		err = errNoLogs
	}
	if err != nil {
		return nil, fmt.Errorf("read the logs in %s: %w", dir, err)
	}
	return interleaved(logs), nil
}

// frame returns the records of a log; none for a file of an unknown agent.
func frame(path string, data []byte) []core.Record {
	framer := normalizers.NewFramer(normalizers.File{Name: filepath.Base(path), Path: path, Folder: filepath.ToSlash(filepath.Dir(path))})
	_, _ = framer.Write(data) // never fails
	framer.Close()
	if framer.Source() == "" || !framer.IsLog() {
		return nil
	}
	var records []core.Record
	for f, ok := framer.Next(); ok; f, ok = framer.Next() {
		if f.Err == nil {
			records = append(records, f.Record)
		}
	}
	return records
}

// interleaved returns the records of logs in turn.
func interleaved(logs [][]core.Record) []core.Record {
	var out []core.Record
	var open [][]core.Record
	for len(logs) > 0 || len(open) > 0 {
		n := min(live-len(open), len(logs))
		open = append(open, logs[:n]...)
		logs = logs[n:]
		for i := range open {
			out = append(out, open[i][0])
			open[i] = open[i][1:]
		}
		open = slices.DeleteFunc(open, func(log []core.Record) bool { return len(log) == 0 })
	}
	return out
}

// Repeat returns n records by repeating a list, each time as other files and sessions.
func Repeat(records []core.Record, n int) []core.Record {
	out := make([]core.Record, n)
	for i := range out {
		out[i] = records[i%len(records)]
		if turn := i / len(records); turn > 0 {
			out[i].Session = fmt.Sprintf("%s-%d", out[i].Session, turn)
			if out[i].Origin.File != "" {
				out[i].Origin.File = fmt.Sprintf("%s-%d", out[i].Origin.File, turn)
			}
		}
	}
	return out
}

// Limits of a batch published by a producer.
const (
	batchRecords = 256
	batchBytes   = 4 << 20
)

// Publish stores records in the raw stream, in order and in batches. Records that are too large for a message travel
// by claim check.
func Publish(ctx context.Context, js jetstream.JetStream, sent []core.Record) error {
	var batch []*nats.Msg
	bytes := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		_, err := broker.PublishBatch(ctx, js.Conn(), batch)
		batch, bytes = nil, 0
		return err
	}
	for _, r := range sent {
		m := records.Message(r)
		if claims.Claimed(len(r.Data), js.Conn().MaxPayload()) {
			if _, err := claims.NewStore(js).Put(ctx, r.Data); err != nil {
				return err
			}
			m = records.ClaimMessage(r)
		}
		if bytes += len(m.Data); len(batch) == batchRecords || bytes > batchBytes {
			if err := flush(); err != nil {
				return err
			}
			bytes = len(m.Data)
		}
		batch = append(batch, m)
	}
	return flush()
}
