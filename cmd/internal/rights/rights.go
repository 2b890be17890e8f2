// Package rights finds the rights that the broker denies to the user of a connection, and the line of the broker's
// configuration that grants each. The connection passes its errors to [Of] and [Denials.Note].
package rights

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// Denial is a right that the broker denied to this user. The broker reports it as an error of the connection; the
// request itself gets no answer and times out.
type Denial struct {
	list    string // of permissions: publish or subscribe
	subject string
}

var denialText = regexp.MustCompile(`(?i)Permissions Violation for (Publish|Subscription) to "([^"]+)"`)

// Of returns the right that an error of a connection denies, false for other errors.
func Of(err error) (Denial, bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return Denial{}, false
	}
	m := denialText.FindStringSubmatch(err.Error())
	switch {
	case m == nil:
		return Denial{}, false
	case strings.EqualFold(m[1], "publish"):
		return Denial{"publish", m[2]}, true
	default:
		return Denial{"subscribe", m[2]}, true
	}
}

// Right names the denied right.
func (d Denial) Right() string { return d.list + " to " + d.subject }

// Cure names the line of the configuration that grants the right.
func (d Denial) Cure() string {
	cure := `add "` + d.grant() + `" to "` + d.list + `" in the permissions of this user at the broker`
	if d.list == "subscribe" && strings.HasPrefix(d.subject, "_") { // of answers, not one of the settings
		cure = "set NATS_INBOX_PREFIX to the prefix that the user may subscribe to, or " + cure
	}
	return cure
}

// grantedTokens is how many tokens of a subject a right names, by the beginning of the subject. The tokens after
// them, such as the name of a consumer, differ each time.
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
	{"erasures.", 1},
	{"_INBOX", 1},
}

// grant returns the subject that the broker's configuration must list.
func (d Denial) grant() string {
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

// Denials are the rights that the broker denied to a process. The zero value is ready for use, by several goroutines;
// nil notes nothing.
type Denials struct {
	mu       sync.Mutex
	list     []Denial
	watchers []*func(Denial)
}

// Note notes a denial. It reports whether the caller should log it, because nobody watches.
func (d *Denials) Note(one Denial) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.list, one) {
		d.list = append(d.list, one)
	}
	for _, noted := range d.watchers {
		(*noted)(one)
	}
	return len(d.watchers) == 0
}

// Watch calls noted with each denial until stop; meanwhile denials are not logged. noted must not use the denials.
func (d *Denials) Watch(noted func(Denial)) (stop func()) {
	if d == nil {
		return func() {}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchers = append(d.watchers, &noted)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.watchers = slices.DeleteFunc(d.watchers, func(w *func(Denial)) bool { return w == &noted })
	}
}

// During runs do, and ends its context if the broker denies a right, because a denied request gets no answer. It
// returns the first denial, nil if there was none. Denials of other requests of the connection count, too.
func (d *Denials) During(ctx context.Context, do func(context.Context) error) (denied *Denial, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := d.Watch(func(is Denial) {
		if denied == nil {
			denied = &is
		}
		cancel()
	})
	err = do(ctx)
	stop()
	return denied, err
}

// Last returns the newest denial.
func (d *Denials) Last() (Denial, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.list) == 0 {
		return Denial{}, false
	}
	return d.list[len(d.list)-1], true
}
