package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/synadia-io/orbit.go/natscontext"

	"tributary/cmd/internal/rights"
	"tributary/pipeline/streams"
)

// connect connects to the broker of the settings. It fails if the broker is away, but a connection that is lost later
// reconnects. The caller closes the connection.
func (a *app) connect(ctx context.Context, opts ...nats.Option) (*nats.Conn, error) {
	c := a.config
	opts = append([]nats.Option{
		nats.Name("tributary"),
		nats.MaxReconnects(-1),
		// A connection whose packets are dropped is given up after 20 to 30 s.
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.SyncQueueLen(syncQueue),
		nats.ReconnectBufSize(-1), // a message that cannot be sent fails at once: every sender retries
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				a.log.WarnContext(ctx, "connection to the broker is lost: reconnecting", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { a.log.InfoContext(ctx, "reconnected to the broker") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if d, ok := rights.Of(err); ok {
				if a.denials.Note(d) {
					a.log.WarnContext(ctx, "the broker denies a right", "right", d.Right(), "cure", d.Cure())
				}
				return
			}
			a.log.WarnContext(ctx, "broker reports an error", "error", err)
		}),
	}, opts...)
	nc, err := c.dial(a.server, opts)
	if cure := connectionCure(err); cure != "" {
		err = fmt.Errorf("%w: %s", err, cure)
	}
	if errors.Is(err, syscall.EPIPE) { // ends a command silently if it comes from standard output
		err = errors.New(err.Error())
	}
	switch {
	case err == nil:
		a.broker.Store(nc)
		return nc, nil
	case c.NATSContext != "":
		return nil, fmt.Errorf("connect with NATS_CONTEXT %q: %w", c.NATSContext, err)
	case errors.Is(err, nats.ErrNoServers):
		return nil, fmt.Errorf("no broker at %s: start one (tributary up has one built in), or name yours in NATS_URL: %w", redactURL(c.NATSURL), err)
	default:
		return nil, fmt.Errorf("connect to %s: %w", redactURL(c.NATSURL), err)
	}
}

// syncQueue is how many messages the answer to one request may have: the broker sends at most 1,024 and a status. The
// default of the library takes 512 KiB for each request.
const syncQueue = 2048

// connectionCure returns the cure of an error of a new connection, empty if none is known.
func connectionCure(err error) string {
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	text := ""
	if err != nil {
		text = err.Error() // some errors have no type
	}
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return "correct the user or the credentials in the NATS_ settings"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "name the file with the authority of the broker's certificate in NATS_CA"
	case errors.As(err, &name):
		return "use a name of the broker's certificate in NATS_URL"
	case errors.As(err, &invalid):
		return "renew the certificate of the broker"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the broker has no TLS: remove tls:// from NATS_URL, or give the broker a certificate"
	case strings.Contains(text, "signing nonce"), strings.Contains(text, "user jwt"):
		return "correct the file of NATS_CREDS"
	case strings.Contains(text, "client certificate"):
		return "correct the files of NATS_CERT and NATS_KEY"
	case strings.Contains(text, "rootCA"), strings.Contains(text, "root certificate"):
		return "correct the file of NATS_CA"
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF):
		return "the broker has closed the connection: it may ask for a certificate, see NATS_CERT and NATS_KEY"
	case strings.Contains(text, "remote error: tls:"):
		return "the broker does not accept the certificate of this client: name one that it trusts in NATS_CERT and NATS_KEY"
	}
	return ""
}

// dial connects with NATS_CONTEXT, else with the other NATS_ settings. With named, NATS_URL replaces the servers of
// the context.
func (c *config) dial(named bool, opts []nats.Option) (*nats.Conn, error) {
	if c.NATSContext != "" {
		if named {
			opts = append(opts, servers(c.NATSURL))
		}
		nc, _, err := natscontext.Connect(c.NATSContext, opts...)
		return nc, err
	}
	opts, err := c.credentials(opts)
	if err != nil {
		return nil, err
	}
	return nats.Connect(c.NATSURL, opts...)
}

// servers replaces the servers to connect to.
func servers(urls string) nats.Option {
	return func(o *nats.Options) error {
		o.Url, o.Servers = "", strings.Split(urls, ",")
		for i, s := range o.Servers {
			o.Servers[i] = strings.TrimSpace(s)
		}
		return nil
	}
}

// requestTimeout bounds the wait for an answer of JetStream.
const requestTimeout = 5 * time.Second

// withCure adds the cure to an error of the broker.
func (a *app) withCure(err error) error {
	if d, ok := a.denials.Last(); ok && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)) {
		return fmt.Errorf("%w: the broker denies to %s: %s", err, d.Right(), d.Cure())
	}
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return fmt.Errorf("the connection to the broker is lost: try again when it is back: %w", err)
	}
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: JetStream does not answer: enable it (nats-server -js), for this account too", err)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if strings.HasSuffix(err.Error(), context.DeadlineExceeded.Error()) {
		err = fmt.Errorf("%w: no answer of the broker to a request of JetStream within %v", err, requestTimeout)
	}
	return fmt.Errorf("%w: see the log of nats-server: if its disk was full, make room and restart it", err)
}

// jetStream connects like [app.connect]. The caller closes the connection.
func (a *app) jetStream(ctx context.Context) (jetstream.JetStream, error) {
	nc, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	return jetstream.New(nc, jetstream.WithDefaultTimeout(requestTimeout))
}

// jetStreamLive is [app.jetStream] for a command that reads one generation: the one of the settings, else the live
// one.
func (a *app) jetStreamLive(ctx context.Context) (jetstream.JetStream, error) {
	js, err := a.jetStream(ctx)
	if err != nil || a.config.Generation != "" {
		return js, err
	}
	if a.config.Generation, err = streams.LiveGeneration(ctx, js); err != nil {
		js.Conn().Close()
		if _, denied := a.denials.Last(); denied {
			err = fmt.Errorf("%w: name the generation in TRIBUTARY_GENERATION", err)
		}
		return nil, err
	}
	return js, nil
}

// credentials adds the user, the certificates and the trusted authorities of the NATS_ settings.
func (c *config) credentials(opts []nats.Option) ([]nats.Option, error) {
	switch {
	case c.NATSUser != "" && c.NATSPassword == "":
		opts = append(opts, nats.Token(c.NATSUser))
	case c.NATSUser != "":
		opts = append(opts, nats.UserInfo(c.NATSUser, string(c.NATSPassword)))
	}
	if c.NATSCreds != "" {
		opts = append(opts, nats.UserCredentials(c.NATSCreds))
	}
	if c.NATSNKey != "" {
		nkey, err := nats.NkeyOptionFromSeed(c.NATSNKey)
		if err != nil {
			return nil, fmt.Errorf("NATS_NKEY: %w", err)
		}
		opts = append(opts, nkey)
	}
	if c.NATSCert != "" {
		opts = append(opts, nats.ClientCert(c.NATSCert, c.NATSKey))
	}
	if c.NATSCA != "" {
		opts = append(opts, nats.RootCAs(c.NATSCA))
	}
	if c.NATSInbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.NATSInbox))
	}
	return opts, nil
}

// serverFlag adds the flag of NATS_URL. Its default is redacted, because it may have a secret.
func (a *app) serverFlag(cmd *cobra.Command) {
	flag := cmd.Flags().VarPF(serverValue{a}, "server", "s", "broker to connect to (NATS_URL)")
	flag.DefValue = redactURL(a.config.NATSURL)
}

// serverValue is the value of that flag. It replaces the servers of NATS_CONTEXT, but not its credentials.
type serverValue struct{ *app }

func (v serverValue) String() string     { return redactURL(v.config.NATSURL) }
func (v serverValue) Set(s string) error { v.config.NATSURL, v.server = s, true; return nil }
func (serverValue) Type() string         { return "url" }

// withBroker connects to the broker and runs do.
func (a *app) withBroker(ctx context.Context, do func(context.Context, jetstream.JetStream) error) error {
	js, err := a.jetStream(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	return do(ctx, js)
}

// noStream adds the cure to the error of a missing events stream.
func (a *app) noStream(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("the broker has no generation %s: start a worker (tributary run), or name another in TRIBUTARY_GENERATION: %w", a.config.Generation, err)
	}
	return err
}
