package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"

	"tributary/envelopes"
	"tributary/pipeline/records"
)

// Values of TRIBUTARY_IDENTITY.
const (
	identityPseudonym = "pseudonym"
	identityOff       = "off"
)

// sender returns who sends the records, as far as the settings allow; nil for nothing. It includes labels for any
// identity, because somebody set them to be sent.
func sender(ctx context.Context, a *app) (*envelopes.Edge, error) {
	labels, err := records.ParseLabels(a.config.Labels)
	if err != nil {
		return nil, usageError{fmt.Errorf("TRIBUTARY_LABELS: %w", err)}
	}
	e := &envelopes.Edge{Labels: labels}
	rename, err := a.config.renaming()
	if err != nil {
		return nil, err
	}
	if a.config.Identity != identityOff {
		e.Host = hostname()
		if u, err := user.Current(); err == nil {
			e.User = u.Username
		} else {
			a.log.WarnContext(ctx, "user name is unknown, and records do not state it: set USER, or TRIBUTARY_IDENTITY=off", "error", err)
		}
	}
	e.Host, e.User = rename(e.Host, e.User)
	if err := records.CheckEdge(e); err != nil {
		return nil, fmt.Errorf("records cannot state who sends them: %w: set TRIBUTARY_IDENTITY to pseudonym or off", err)
	}
	if e.IsZero() {
		return nil, nil //nolint:nilnil // states nothing
	}
	return e, nil
}

// renaming returns what records state instead of a host and a user, by TRIBUTARY_IDENTITY.
func (c *config) renaming() (func(host, user string) (string, string), error) {
	switch c.Identity {
	case identityOff:
		return func(string, string) (string, string) { return "", "" }, nil
	case identityPseudonym:
		key, err := c.redactKey(true)
		if err != nil {
			return nil, fmt.Errorf("TRIBUTARY_IDENTITY=%s: %w", identityPseudonym, err)
		}
		pseudonym := func(kind, name string) string {
			if name == "" {
				return ""
			}
			return key.Pseudonym(kind, name)
		}
		return func(host, user string) (string, string) { return pseudonym("host", host), pseudonym("user", user) }, nil
	default:
		return func(host, user string) (string, string) { return host, user }, nil
	}
}

// logSender logs what the records state about their sender.
func logSender(ctx context.Context, a *app, e *envelopes.Edge) {
	if e != nil {
		a.log.InfoContext(ctx, "records state who sends them", "host", e.Host, "user", e.User, "labels", records.FormatLabels(e.Labels))
	}
}

// hostOf returns the host of e, empty if e is nil.
func hostOf(e *envelopes.Edge) string { return cmp.Or(e, &envelopes.Edge{}).Host }

// hostname returns the name of this machine, empty if it has none.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
