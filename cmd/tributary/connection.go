package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/synadia-io/orbit.go/natscontext"
)

// connect connects to the broker of the settings, once: a broker that is not there is an
// error, one that goes away later is waited for. The caller closes the connection.
func (a *app) connect(ctx context.Context, opts ...nats.Option) (*nats.Conn, error) {
	c := a.config
	opts = append([]nats.Option{
		nats.Name("tributary"),
		nats.MaxReconnects(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				a.log.WarnContext(ctx, "connection to the broker lost: trying again", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { a.log.InfoContext(ctx, "connected to the broker again") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			a.log.WarnContext(ctx, "broker reports an error", "error", err)
		}),
	}, opts...)
	var nc *nats.Conn
	var err error
	if c.NATSContext != "" {
		if a.server {
			opts = append(opts, servers(c.NATSURL))
		}
		nc, _, err = natscontext.Connect(c.NATSContext, opts...)
	} else {
		if opts, err = c.credentials(opts); err != nil {
			return nil, err
		}
		nc, err = nats.Connect(c.NATSURL, opts...)
	}
	if errors.Is(err, nats.ErrAuthorization) {
		err = fmt.Errorf("%w: mend the NATS_ settings that say who we are", err)
	}
	switch {
	case err == nil:
		return nc, nil
	case c.NATSContext != "":
		return nil, fmt.Errorf("connect with NATS_CONTEXT %q: %w", c.NATSContext, err)
	case errors.Is(err, nats.ErrNoServers):
		return nil, fmt.Errorf("no broker at %s: start one (tributary up has one built in), or name yours by NATS_URL: %w", redactURL(c.NATSURL), err)
	default:
		return nil, fmt.Errorf("connect to %s: %w", redactURL(c.NATSURL), err)
	}
}

// servers connects to these instead of others.
func servers(urls string) nats.Option {
	return func(o *nats.Options) error {
		o.Url, o.Servers = "", strings.Split(urls, ",")
		for i, s := range o.Servers {
			o.Servers[i] = strings.TrimSpace(s)
		}
		return nil
	}
}

// withCure adds the cure to an error of the broker that does not tell it.
func withCure(err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: nobody answers for JetStream: turn it on (nats-server -js), for this account too", err)
	}
	return err
}

// jetStream connects as connect does. The caller closes the connection.
func (a *app) jetStream(ctx context.Context) (jetstream.JetStream, error) {
	nc, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	return jetstream.New(nc)
}

// credentials adds what the NATS_ settings say about who we are and whom we trust.
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
	return opts, nil
}

// serverFlag is the flag of NATS_URL. Its default is not shown, for it may hold a secret.
func (a *app) serverFlag(cmd *cobra.Command) {
	flag := cmd.Flags().VarPF(serverValue{a}, "server", "s", "broker to connect to (NATS_URL)")
	flag.DefValue = redactURL(a.config.NATSURL)
}

// serverValue is the flag with the URL. It wins over NATS_CONTEXT too, which then tells
// only who we are.
type serverValue struct{ *app }

func (v serverValue) String() string     { return redactURL(v.config.NATSURL) }
func (v serverValue) Set(s string) error { v.config.NATSURL, v.server = s, true; return nil }
func (serverValue) Type() string         { return "url" }
