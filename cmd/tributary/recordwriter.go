package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/events"
)

// recordWriter prints the raw records of events: one record once for consecutive events of it.
type recordWriter struct {
	app  *app
	js   jetstream.JetStream
	last uint64 // raw sequence of the last event
	gone int    // how many records have left the raw stream
}

// write prints the record of an event as its agent wrote it, and ends it with a line end.
func (w *recordWriter) write(ctx context.Context, e *events.Event) error {
	if e.Provenance.RawSequence == w.last {
		return nil
	}
	w.last = e.Provenance.RawSequence
	data, err := e.LoadRecord(ctx, w.js)
	if errors.Is(err, events.ErrRecordGone) {
		w.missing(e)
		return nil
	}
	if err != nil {
		return err
	}
	if len(data) == 0 || data[len(data)-1] != '\n' {
		data = append(data, '\n')
	}
	_, err = terminal.JSONWriter(w.app.stdout).Write(data)
	return err
}

// missing prints that a record has left the raw stream.
func (w *recordWriter) missing(e *events.Event) {
	w.gone++
	fmt.Fprintf(w.app.stderr, "record %d of %s %s is gone: it expired or was removed from the raw stream\n",
		e.Provenance.RawSequence, e.Source, terminal.OneLine(e.SessionID))
}

// err returns the error of records that were missing, nil if none were.
func (w *recordWriter) err() error {
	if w.gone == 0 {
		return nil
	}
	return partlyError(terminal.Plural(w.gone, "record") + " could not be printed")
}
