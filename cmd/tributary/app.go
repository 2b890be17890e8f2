package main

import (
	"io"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"tributary/cmd/internal/printer"
	"tributary/cmd/internal/rights"
	"tributary/cmd/internal/terminal"
)

// Exit codes.
const (
	exitFailure     = 1
	exitUsage       = 2   // wrong arguments or settings: nothing was done
	exitPartly      = 3   // done, but some records are dead letters or were refused
	exitInterrupted = 130 // by a signal
	exitPipe        = 141 // the reader of the output has gone away; the code of a program that SIGPIPE ended
)

// partlyError ends a command that did its work, except for some records.
type partlyError string

func (e partlyError) Error() string { return string(e) }

// usageError is a mistake of the caller: wrong arguments or settings.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// app is what all commands share: the settings, the broker, the logger and the outputs. A command is a function or a
// type in its own file that gets the app.
type app struct {
	config      *config
	configError settingsError // the variables that cannot be read
	server      bool          // a flag named the broker
	denials     rights.Denials
	health      health
	broker      atomic.Pointer[nats.Conn] // the last connection; nil before the first

	stdin  io.Reader
	stdout io.Writer            // data
	stderr io.Writer            // messages, written safely for a terminal
	status *terminal.StatusLine // the last line of stderr; nil if stderr is no terminal
	log    *slog.Logger
}

// printer returns a printer of events on standard output.
func (a *app) printer() *printer.Pretty {
	return printer.NewPretty(a.stdout, a.status, a.config.NoColor == "")
}

// signalError is the cause of a context that a signal ended.
type signalError struct{ os.Signal }

func (e signalError) Error() string { return "stopped by signal: " + e.String() }

// messageColumns is the width of the terminal of standard error.
func messageColumns() int { return terminal.Columns(os.Stderr) }
