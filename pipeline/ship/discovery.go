package ship

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"time"
)

// Discovery finds the session of a running Copilot CLI. `copilot -p` does not print its
// session, but names a log file after it in the folder of its option --log-dir.
type Discovery struct {
	Dir     string        // folder of the log; need not exist yet
	Poll    time.Duration // time between two looks; default 200 ms
	Timeout time.Duration // after which the text is shipped without its session; default 10 minutes
}

// sessionLog matches the name of the log of a session.
var sessionLog = regexp.MustCompile(`^(?:session-)?([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})\.log$`)

// sessionOfLog returns the session that a log of Copilot CLI is named after, in the
// spelling of the name; empty for other files.
func sessionOfLog(name string) string {
	if m := sessionLog.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}

// find waits for the log and returns the session. The error is errNoSession after the
// timeout, or that of ctx.
func (d Discovery) find(ctx context.Context) (string, error) {
	orElse(&d.Poll, 200*time.Millisecond)
	orElse(&d.Timeout, 10*time.Minute)
	poll, timeout := time.NewTicker(d.Poll), time.NewTimer(d.Timeout)
	defer poll.Stop()
	defer timeout.Stop()
	for {
		if id := d.look(); id != "" {
			return id, nil
		}
		select {
		case <-poll.C:
		case <-timeout.C:
			return "", fmt.Errorf("%w in %s after %v", errNoSession, d.Dir, d.Timeout)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// look returns the session of the first log in the folder; empty while there is none, or
// the folder cannot be read.
func (d Discovery) look() string {
	entries, _ := os.ReadDir(d.Dir)
	for _, e := range entries {
		if id := sessionOfLog(e.Name()); id != "" {
			return id
		}
	}
	return ""
}
