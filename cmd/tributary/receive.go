package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/envelopes"
	"tributary/pipeline/receive"
)

func receiveCommand(a *app) *cobra.Command {
	var insecure bool
	cmd := &cobra.Command{
		Use:   "receive [flags]",
		Short: "Take what agents export by OpenTelemetry, and their hooks",
		Long: `Take records over HTTP and gRPC, and store them in the raw stream, until a signal: what
agents export by OpenTelemetry (OTLP: /v1/logs, /v1/traces, /v1/metrics, and gRPC), what
they post to hooks (/v1/hooks/AGENT), and records of other producers, one a line
(/v1/records/SOURCE/SESSION). A request has succeeded when the broker has acknowledged
every record of it. While the broker is away, requests are refused, and clients send
them again. With TRIBUTARY_RECEIVE_SUBJECTS it takes what collectors publish to subjects
of the broker, too.

It listens on this machine alone, and asks nobody for a proof. Another address needs
senders that prove who they are: TRIBUTARY_RECEIVE_TOKENS names a file of tokens,
TRIBUTARY_RECEIVE_CLIENT_CA the authority of client certificates, and
TRIBUTARY_RECEIVE_USER_HEADER the header of a proxy. It also needs a certificate
(TRIBUTARY_RECEIVE_CERT and _KEY), or --insecure-listen behind a proxy that has one.
Events have the user that was verified as edge, with verified: true.`,
		Example: `  tributary receive                         on this machine
  tributary receive --listen :4318 --grpc :4317
  tributary receive --redact                secrets are replaced before they are stored`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			p := &recordReceiver{app: a, insecure: insecure}
			if err := p.prepare(ctx); err != nil {
				return err
			}
			logRedaction(ctx, a, p.config.Redactor)
			logSender(ctx, a, p.config.Admission.Edge)
			telemetry, err := a.startTelemetry(ctx, hostname())
			if err != nil {
				return err
			}
			defer a.shutdown(ctx, telemetry)
			stop, err := a.serveHTTP(ctx, telemetry)
			if err != nil {
				return err
			}
			defer stop()
			nc, err := a.connect(ctx, nats.RetryOnFailedConnect(true))
			if err != nil {
				return err
			}
			defer nc.Close()
			js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(requestTimeout))
			if err != nil {
				return err
			}
			serve, err := p.listen(ctx, js, telemetry)
			if err != nil {
				return err
			}
			return serve(ctx)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&a.config.ReceiveListen, "listen", a.config.ReceiveListen, `address for HTTP, "" for none (TRIBUTARY_RECEIVE_LISTEN)`)
	flags.StringVar(&a.config.ReceiveGRPC, "grpc", a.config.ReceiveGRPC, `address for gRPC, "" for none (TRIBUTARY_RECEIVE_GRPC)`)
	flags.BoolVar(&insecure, "insecure-listen", false, "listen for other machines without TLS: behind a proxy that has it")
	a.redactFlags(cmd, "replace secrets before they are stored; --redact=metadata_only replaces all content, full nothing")
	a.serverFlag(cmd)
	return cmd
}

// recordReceiver is the receiver of the commands receive and up.
type recordReceiver struct {
	*app

	insecure bool // other machines may reach it without TLS

	config receive.Config
	secure *tls.Config // nil for none
}

// addresses returns the addresses of the settings.
func (p *recordReceiver) addresses() []string {
	var list []string
	for _, address := range []string{p.app.config.ReceiveListen, p.app.config.ReceiveGRPC} {
		if address != "" {
			list = append(list, address)
		}
	}
	return list
}

// prepare reads the settings and their files.
func (p *recordReceiver) prepare(ctx context.Context) error {
	c := p.app.config
	subjects, err := receive.ParseSubjects(c.ReceiveSubjects)
	if err != nil {
		return err
	}
	if len(p.addresses())+len(subjects) == 0 {
		return usageError{errors.New("the receiver has no address: set TRIBUTARY_RECEIVE_LISTEN, TRIBUTARY_RECEIVE_GRPC or TRIBUTARY_RECEIVE_SUBJECTS")}
	}
	redactor, err := c.redactor(c.Redact)
	if err != nil {
		return err
	}
	p.config = receive.Config{
		Subjects: subjects, Redactor: redactor,
		Limits: receive.Limits{
			Body: int64(c.ReceiveMaxBody) << 20, InFlight: int64(c.ReceiveMaxInFlight) << 20, Records: c.ReceiveMaxRecords,
			Requests: c.ReceiveMaxRequests, BodyTime: c.ReceiveBodyTimeout,
		},
		Host: hostname(), Version: version(), Logger: p.log,
	}
	if err := p.secureBy(c); err != nil {
		return err
	}
	if err := p.admit(ctx, c); err != nil {
		return err
	}
	for _, address := range p.addresses() {
		switch {
		case local(address):
		case p.config.Admission.Open():
			return usageError{fmt.Errorf("the receiver cannot listen on %s: other machines reach this address, and everybody could send: "+
				"set TRIBUTARY_RECEIVE_TOKENS, TRIBUTARY_RECEIVE_CLIENT_CA or TRIBUTARY_RECEIVE_USER_HEADER, or listen on 127.0.0.1", address)}
		case p.secure == nil && !p.insecure:
			return usageError{fmt.Errorf("the receiver cannot listen on %s: other machines reach this address: name a certificate in TRIBUTARY_RECEIVE_CERT and _KEY, "+
				"pass --insecure-listen behind a proxy that has one, or listen on 127.0.0.1", address)}
		}
	}
	return nil
}

// secureBy reads the certificates.
func (p *recordReceiver) secureBy(c *config) error {
	certificate, err := newCertificate("TRIBUTARY_RECEIVE", c.ReceiveCert, c.ReceiveKey, p.log)
	if err != nil {
		return err
	}
	if certificate != nil {
		p.secure = &tls.Config{GetCertificate: certificate.get, MinVersion: tls.VersionTLS12}
	}
	if c.ReceiveClientCA == "" {
		return nil
	}
	if p.secure == nil {
		return usageError{errors.New("TRIBUTARY_RECEIVE_CLIENT_CA: certificates of senders need TLS: set TRIBUTARY_RECEIVE_CERT and _KEY")}
	}
	data, err := os.ReadFile(c.ReceiveClientCA)
	if err != nil {
		return usageError{fmt.Errorf("TRIBUTARY_RECEIVE_CLIENT_CA: %w", err)}
	}
	p.secure.ClientCAs, p.secure.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if !p.secure.ClientCAs.AppendCertsFromPEM(data) {
		return usageError{fmt.Errorf("TRIBUTARY_RECEIVE_CLIENT_CA: %s has no certificate", c.ReceiveClientCA)}
	}
	p.config.Admission.Certificates = true
	return nil
}

// admit decides who may send, and what records state of them.
func (p *recordReceiver) admit(ctx context.Context, c *config) (err error) {
	a := &p.config.Admission
	a.Header = c.ReceiveUserHeader
	if a.Proxies, err = proxies("TRIBUTARY_RECEIVE_PROXIES", c.ReceiveProxies); err != nil {
		return err
	}
	if len(a.Proxies) > 0 && a.Header == "" {
		return usageError{errors.New("TRIBUTARY_RECEIVE_PROXIES: name the header of the proxies in TRIBUTARY_RECEIVE_USER_HEADER")}
	}
	if c.ReceiveTokens != "" {
		if a.Tokens, err = receive.ReadTokens(c.ReceiveTokens, p.log); err != nil {
			return usageError{fmt.Errorf("TRIBUTARY_RECEIVE_TOKENS: %w", err)}
		}
	}
	if a.Rename, err = c.renaming(); err != nil {
		return err
	}
	is, err := sender(ctx, p.app)
	if is != nil && !a.Open() {
		is = &envelopes.Edge{Labels: is.Labels} // host and user are those that are verified
	}
	a.Edge = is
	return err
}

// listen opens the addresses and prints them. serve answers requests until its context ends, then closes them.
func (p *recordReceiver) listen(ctx context.Context, js jetstream.JetStream, t *telemetry) (serve func(context.Context) error, err error) {
	p.config.Tracer, p.config.Meter = t.tracer(), t.metrics.Meter(scope)
	r, err := receive.New(js, p.config) //nolint:contextcheck // it counts nothing for a request
	if err != nil {
		return nil, usageError{err}
	}
	var listeners []net.Listener
	var shown []string
	for _, address := range p.addresses() {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return nil, fmt.Errorf("the receiver cannot listen on %s: name other addresses in TRIBUTARY_RECEIVE_LISTEN and TRIBUTARY_RECEIVE_GRPC: %w", address, err)
		}
		listeners, shown = append(listeners, l), append(shown, l.Addr().String())
	}
	for _, s := range p.config.Subjects {
		shown = append(shown, s.Address())
	}
	p.health.watch(r)
	fmt.Fprintf(p.stderr, "receiver at %s\n", strings.Join(shown, " and "))
	return func(ctx context.Context) error {
		return r.Serve(ctx, p.secure, p.app.config.DrainTimeout, listeners...)
	}, nil
}

// serveReceiver takes what agents on this machine export, until stop. Another program may have the addresses: then up
// goes on without.
func (u *up) serveReceiver(ctx context.Context, t *telemetry) (stop func()) {
	p := &recordReceiver{app: u.app}
	if u.once || len(p.addresses()) == 0 && u.config.ReceiveSubjects == "" {
		return func() {}
	}
	for _, address := range p.addresses() {
		if !local(address) {
			u.log.WarnContext(ctx, "up takes nothing from agents: its receiver is for this machine alone; use tributary receive", "address", address)
			return func() {}
		}
	}
	err := p.prepare(ctx)
	var serve func(context.Context) error
	if err == nil {
		serve, err = p.listen(ctx, u.js, t)
	}
	if err != nil {
		fmt.Fprintf(u.stderr, "nothing is taken that agents export or post: %v\n", err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := serve(ctx); err != nil {
			u.log.ErrorContext(ctx, "nothing is received any more", "error", err)
		}
	})
	return func() {
		cancel()
		serving.Wait()
	}
}
