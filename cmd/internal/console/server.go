package console

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Serve answers requests at a listener, which it closes, until ctx ends. Requests in progress then have a second to
// end.
func (c *Console) Serve(ctx context.Context, listener net.Listener) error {
	return c.serve(ctx, listener, c.server())
}

// server returns a server with limits.
func (c *Console) server() *http.Server {
	return &http.Server{
		Handler:           c,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      c.limits.Duration + 30*time.Second, // a live stream extends it with each event
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(c.config.Logger.Handler(), slog.LevelDebug), // such as failed TLS handshakes
	}
}

func (c *Console) serve(ctx context.Context, listener net.Listener, server *http.Server) error {
	server.RegisterOnShutdown(c.Close)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(ending) != nil { // a request is still in progress
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
