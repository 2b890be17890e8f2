package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tributary/cmd/internal/console"
	"tributary/cmd/internal/figures"
)

func consoleCommand(a *app) *cobra.Command {
	var priceFile, zone string
	var providers []string
	var insecure bool
	cmd := &cobra.Command{
		Use:   "console [flags]",
		Short: "Show the stream in a browser",
		Long: `Serve a page that shows sessions, figures, tools and the state of the pipeline of the
broker, until a signal. The rights of the user at the broker decide what is seen. Without
--write nothing can be changed there. Nothing is read before the page is opened.

It listens on this machine alone. Another address needs a certificate
(TRIBUTARY_CONSOLE_CERT and _KEY), or --insecure-listen behind a proxy that has one, and
asks for a token: TRIBUTARY_CONSOLE_TOKEN, or a new one, which is part of the printed
address. Or a proxy names its user in the header of TRIBUTARY_CONSOLE_USER_HEADER. Names
of hosts other than localhost are in TRIBUTARY_CONSOLE_HOSTS, or in the certificate.

` + pricesHelp,
		Example: `  tributary console
  tributary console --write                 titles, pins, dead letters and generations can be changed
  tributary console -s nats://nats.example:4222 --listen 127.0.0.1:0`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			location, err := time.LoadLocation(zone)
			if err != nil {
				return usageError{fmt.Errorf("--tz %q: write Local, UTC or a name such as Europe/Berlin", zone)}
			}
			pricing, err := newPricing(priceFile, providers)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			js, err := a.jetStream(ctx)
			if err != nil {
				return err
			}
			defer js.Conn().Close()
			page := consolePage{app: a, js: js, generation: a.config.Generation, pricing: pricing, zone: location, insecure: insecure}
			serve, err := page.listen(ctx)
			if err != nil {
				return err
			}
			return serve(ctx)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&a.config.ConsoleListen, "listen", a.config.ConsoleListen, "address of the page (TRIBUTARY_CONSOLE_LISTEN)")
	flags.BoolVar(&insecure, "insecure-listen", false, "listen for other machines without TLS: behind a proxy that has it")
	a.writeFlag(flags)
	flags.StringVar(&zone, "tz", "Local", "time zone of times where an address names none, such as UTC or Europe/Berlin")
	pricesFlags(flags, &priceFile, &providers)
	a.serverFlag(cmd)
	return cmd
}

// writeFlag adds the flag with which the console changes things.
func (a *app) writeFlag(flags *pflag.FlagSet) {
	flags.BoolVar(&a.config.ConsoleWrite, "write", a.config.ConsoleWrite, "let the console change titles, pins, dead letters and generations (TRIBUTARY_CONSOLE_WRITE)")
}

// defaultConsole is the default address of the console.
const defaultConsole = "127.0.0.1:8423"

// consolePage is the page of the console, for the commands console and up.
type consolePage struct {
	*app

	js         jetstream.JetStream
	generation string // to show; empty for the live one
	pricing    *figures.Pricing
	zone       *time.Location // nil for the local zone
	insecure   bool           // other machines may reach it without TLS
	anyPort    bool           // any free port will do if the port is in use

	address string      // of the page, once it listens
	opened  func() bool // whether a page has been asked for; set once it listens
}

// listen opens the address of the settings and prints the address of the page. serve answers requests until its
// context ends, then closes the address.
func (p *consolePage) listen(ctx context.Context) (serve func(context.Context) error, err error) {
	address := p.config.ConsoleListen
	here := local(address)
	certificate, err := newCertificate("TRIBUTARY_CONSOLE", p.config.ConsoleCert, p.config.ConsoleKey, p.log)
	if err != nil {
		return nil, err
	}
	if !here && certificate == nil && !p.insecure {
		return nil, usageError{fmt.Errorf("TRIBUTARY_CONSOLE_LISTEN=%q: other machines reach this address: name a certificate in TRIBUTARY_CONSOLE_CERT and _KEY, "+
			"pass --insecure-listen to tributary console behind a proxy that has one, or listen on 127.0.0.1", address)}
	}
	guard, query, err := p.guard(here, certificate)
	if err != nil {
		return nil, err
	}
	page, err := console.New(console.Config{
		JetStream: p.js, Generation: p.generation, Pricing: p.pricing, Zone: p.zone,
		Write: p.config.ConsoleWrite, Guard: guard, Version: version(), Denials: &p.denials, Cure: p.withCure, Logger: p.log,
	})
	if err != nil {
		return nil, usageError{err}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if p.anyPort && errors.Is(err, syscall.EADDRINUSE) {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("the console cannot listen on %s: name another address in TRIBUTARY_CONSOLE_LISTEN, such as 127.0.0.1:0 for any free port: %w", address, err)
	}
	scheme := "http"
	if certificate != nil {
		scheme = "https"
		listener = tls.NewListener(listener, &tls.Config{GetCertificate: certificate.get, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12})
	}
	p.opened = page.Opened
	p.address = scheme + "://" + shownAddress(listener.Addr(), guard.Hosts) + "/" + query
	fmt.Fprintf(p.stderr, "console at %s\n", p.address)
	return func(ctx context.Context) error { return page.Serve(ctx, listener) }, nil
}

// guard returns the rules of admission, and the query of the printed address, which has the token if it is new.
func (p *consolePage) guard(here bool, certificate *certificate) (g console.Guard, query string, err error) {
	c := p.config
	g = console.Guard{Addresses: !here, Header: c.ConsoleUserHeader, TLS: certificate != nil, Hosts: list(c.ConsoleHosts)}
	if certificate != nil {
		g.Hosts = append(g.Hosts, certificate.current.Leaf.DNSNames...)
	}
	if g.Proxies, err = proxies("TRIBUTARY_CONSOLE_PROXIES", c.ConsoleProxies); err != nil {
		return g, "", err
	}
	switch {
	case c.ConsoleToken != "" && c.ConsoleTokenFile != "":
		return g, "", usageError{errors.New("TRIBUTARY_CONSOLE_TOKEN: set it or TRIBUTARY_CONSOLE_TOKEN_FILE, not both")}
	case c.ConsoleToken != "":
		g.Token = string(c.ConsoleToken)
	case c.ConsoleTokenFile != "":
		data, err := os.ReadFile(c.ConsoleTokenFile)
		if err != nil {
			return g, "", fmt.Errorf("TRIBUTARY_CONSOLE_TOKEN_FILE: %w", err)
		}
		if g.Token = strings.TrimSpace(string(data)); g.Token == "" {
			return g, "", usageError{fmt.Errorf("TRIBUTARY_CONSOLE_TOKEN_FILE: %s is empty: write a token into it", c.ConsoleTokenFile)}
		}
	case !here && g.Header == "":
		g.Token = rand.Text()
		query = "?token=" + g.Token
	}
	return g, query, nil
}

// proxies returns the addresses of proxies that a setting names.
func proxies(name, setting string) (prefixes []netip.Prefix, err error) {
	for _, text := range list(setting) {
		prefix, err := netip.ParsePrefix(text)
		if address, single := netip.ParseAddr(text); single == nil {
			prefix, err = address.Prefix(address.BitLen())
		}
		if err != nil {
			return nil, usageError{fmt.Errorf("%s=%q: write addresses such as 10.0.0.7 or 10.0.0.0/8, separated by commas", name, text)}
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

// list splits a setting that has several values.
func list(setting string) []string {
	return strings.FieldsFunc(setting, func(r rune) bool { return r == ',' || r == ' ' })
}

// shownAddress returns the address at which a browser of this machine reaches a listener, by the first of hosts if
// there is one.
func shownAddress(address net.Addr, hosts []string) string {
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		return address.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	for _, name := range hosts {
		if !strings.Contains(name, "*") {
			return net.JoinHostPort(cmp.Or(name, host), port)
		}
	}
	return net.JoinHostPort(host, port)
}

// local reports whether only programs of this machine can reach an address.
func local(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
