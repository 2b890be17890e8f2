package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// denial is a right that the broker has denied to this user. The broker answers a request
// without the right to make it with an error of the connection alone, so the request itself
// ends in a timeout.
type denial struct {
	list    string // of the permissions: publish or subscribe
	subject string
}

var denialText = regexp.MustCompile(`(?i)Permissions Violation for (Publish|Subscription) to "([^"]+)"`)

// denialOf returns the right that an error of a connection denies.
func denialOf(err error) (denial, bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return denial{}, false
	}
	m := denialText.FindStringSubmatch(err.Error())
	switch {
	case m == nil:
		return denial{}, false
	case strings.EqualFold(m[1], "publish"):
		return denial{"publish", m[2]}, true
	default:
		return denial{"subscribe", m[2]}, true
	}
}

// right is what the broker denies.
func (d denial) right() string { return d.list + " to " + d.subject }

// cure names the line of the configuration that grants the right.
func (d denial) cure() string {
	cure := `add "` + d.grant() + `" to "` + d.list + `" in the permissions of this user at the broker`
	if d.list == "subscribe" {
		cure = "set NATS_INBOX_PREFIX to the prefix that the user may subscribe to, or " + cure
	}
	return cure
}

// grantedTokens are the tokens of a subject that a right names, by its beginning. What is behind
// them, such as the name of a consumer, differs each time.
var grantedTokens = []struct {
	prefix string
	tokens int
}{
	{"$JS.API.CONSUMER.MSG.NEXT.", 6},
	{"$JS.API.CONSUMER.", 5},
	{"$JS.ACK.", 3},
	{"$KV.", 2},
	{"$O.", 2},
	{"events.", 2},
	{"deadletters.", 2},
	{"states.", 2},
	{"checkpoints.", 2},
	{"archives.", 2},
	{"sessions.", 1},
	{"_INBOX", 1},
}

// grant is the subject that the configuration of the broker must list.
func (d denial) grant() string {
	if strings.HasPrefix(d.subject, "raw.") {
		return "raw.*.*"
	}
	tokens := strings.Split(d.subject, ".")
	for _, g := range grantedTokens {
		if strings.HasPrefix(d.subject, g.prefix) && g.tokens < len(tokens) {
			return strings.Join(tokens[:g.tokens], ".") + ".>"
		}
	}
	return d.subject
}

// denials are the rights that the broker has denied to this process.
type denials struct {
	mu    sync.Mutex
	list  []denial
	noted func(denial) // reports what is denied; nil while the log does
}

// note notes a denial, and reports whether the log should have it.
func (d *denials) note(one denial) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.list, one) {
		d.list = append(d.list, one)
	}
	if d.noted != nil {
		d.noted(one)
	}
	return d.noted == nil
}

// watch calls noted with each denial, instead of logging it, until stop is called. noted must not
// use the denials.
func (d *denials) watch(noted func(denial)) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noted = noted
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.noted = nil
	}
}

// last returns the newest one.
func (d *denials) last() (denial, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.list) == 0 {
		return denial{}, false
	}
	return d.list[len(d.list)-1], true
}
