package receive

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of connections. The time of a body is one of [Limits].
const (
	headerTime  = 5 * time.Second
	headerBytes = 32 << 10
	idleTime    = 5 * time.Minute
	callsAtOnce = 128 // of a connection of HTTP/2
)

// Serve answers requests at listeners, which it closes, and takes what is published to [Config.Subjects], until ctx
// ends, and then what is in progress within grace. Every listener takes HTTP/1.1, HTTP/2 and gRPC, by TLS if it is not
// nil.
func (r *Receiver) Serve(ctx context.Context, secure *tls.Config, grace time.Duration, listeners ...net.Listener) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(secure == nil)
	server := &http.Server{
		Handler:           r,
		TLSConfig:         secure,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: callsAtOnce, SendPingTimeout: time.Minute},
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          slog.NewLogLogger(r.config.Logger.Handler(), slog.LevelDebug), // such as failed TLS handshakes
	}
	unsubscribe, err := r.subscribe(ctx)
	if err != nil {
		for _, l := range listeners {
			_ = l.Close()
		}
		return err
	}
	stop := r.startHeartbeats(ctx, listeners)
	defer stop()
	served := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() {
			if secure != nil {
				served <- server.ServeTLS(l, "", "")
			} else {
				served <- server.Serve(l)
			}
		}()
	}
	var failed error
	ended := 0
	select {
	case failed = <-served:
		ended++
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	var taking sync.WaitGroup
	defer taking.Wait()
	taking.Go(func() { unsubscribe(ending) })
	if server.Shutdown(ending) != nil { // a request is still in progress
		_ = server.Close()
	}
	for ; ended < len(listeners); ended++ {
		if err := <-served; failed == nil {
			failed = err
		}
	}
	if errors.Is(failed, http.ErrServerClosed) {
		return nil
	}
	return failed
}
