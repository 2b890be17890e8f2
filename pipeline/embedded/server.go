// Package embedded runs a NATS server with JetStream in this process. Programs that only talk to a server do not
// import it, and so do not contain one.
//
// Start with [Start]. The invariant: unless [Config].SyncInterval is set, everything that the server has acknowledged
// is on disk.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// MaxPayload is the maximum size of a message in the embedded server, headers included.
const MaxPayload = 8 << 20

// Config configures a server.
type Config struct {
	StoreDir   string       // folder of the streams
	Listen     string       // host:port for clients, port 0 for any free one; empty for in-process connections only
	MaxPayload int32        // maximum message size in bytes; 0 means [MaxPayload]
	Logger     *slog.Logger // nil for no logs
	// SyncInterval is how often the server syncs its streams to disk; 0 means before each acknowledgement.
	SyncInterval time.Duration
}

// StateSubject is the service of the system account that reports the configuration and use of JetStream, and nothing of
// any account.
const StateSubject = "$SYS.REQ.SERVER.PING.STATSZ"

// Start runs a NATS server with JetStream in this process and returns when it accepts connections. Connect to its
// ClientURL, or without a socket with the option nats.InProcessServer. Stop it with Shutdown and WaitForShutdown. Its
// clients may ask for the state of JetStream, as tributary doctor does.
func Start(cfg Config) (*server.Server, error) {
	opts := &server.Options{
		ServerName: "tributary",
		JetStream:  true,
		StoreDir:   cfg.StoreDir,
		SyncAlways: cfg.SyncInterval == 0,
		MaxPayload: cfg.MaxPayload,
		NoSigs:     true,
		NoLog:      true,
		DontListen: cfg.Listen == "",

		SyncInterval: cfg.SyncInterval,
	}
	if opts.MaxPayload == 0 {
		opts.MaxPayload = MaxPayload
	}
	if cfg.Listen != "" {
		host, port, err := net.SplitHostPort(cfg.Listen)
		if err != nil {
			return nil, fmt.Errorf("listen address of the embedded server: %w", err)
		}
		if opts.Port, err = strconv.Atoi(port); err != nil {
			return nil, fmt.Errorf("listen address of the embedded server: port %q is not a number", port)
		}
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT
		}
		opts.Host = host
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded server: %w", err)
	}
	log := &serverLog{log: cfg.Logger}
	if log.log == nil {
		log.log = slog.New(slog.DiscardHandler)
	}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	err = log.awaitReady(srv)
	if err == nil {
		err = shareState(srv)
	}
	if err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, fmt.Errorf("embedded server did not start: %w", err)
	}
	return srv, nil
}

// shareState lets clients, which are users of the global account, ask for the state of the server.
func shareState(srv *server.Server) error {
	system := srv.SystemAccount()
	err := system.AddServiceExportWithResponse(StateSubject, server.Streamed, nil)
	if err == nil {
		err = srv.GlobalAccount().AddServiceImport(system, StateSubject, StateSubject)
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", StateSubject, err)
	}
	return nil
}

// serverLog passes the server's log to slog and keeps its fatal error: the server reports the reason for a failed
// start nowhere else.
type serverLog struct {
	log *slog.Logger

	mu    sync.Mutex
	fatal error
}

func (l *serverLog) Noticef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }
func (l *serverLog) Debugf(format string, v ...any)  { l.write(slog.LevelDebug, format, v) }
func (l *serverLog) Tracef(format string, v ...any)  { l.write(slog.LevelDebug, format, v) }
func (l *serverLog) Warnf(format string, v ...any)   { l.write(slog.LevelWarn, format, v) }
func (l *serverLog) Errorf(format string, v ...any)  { l.write(slog.LevelError, format, v) }

func (l *serverLog) write(level slog.Level, format string, v []any) {
	l.log.Log(context.Background(), level, "embedded server", slog.String("text", fmt.Sprintf(format, v...)))
}

func (l *serverLog) Fatalf(format string, v ...any) {
	l.Errorf(format, v...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fatal = fmt.Errorf(format, v...)
}

// awaitReady returns nil when srv accepts connections, or the reason why it never will.
func (l *serverLog) awaitReady(srv *server.Server) error {
	for range 300 {
		ready := srv.ReadyForConnections(100 * time.Millisecond)
		l.mu.Lock()
		fatal := l.fatal
		l.mu.Unlock()
		switch {
		case fatal != nil:
			return fatal
		case ready && srv.JetStreamEnabled():
			return nil
		case ready:
			return errors.New("JetStream is not enabled")
		}
	}
	return errors.New("not ready after 30 seconds")
}
