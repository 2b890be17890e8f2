package ship

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"time"
)

// Discovery finds out which session of Copilot CLI is running: `copilot -p` does not say
// so in what it prints, but names a log after it, in the folder that --log-dir tells.
type Discovery struct {
	Dir     string        // where the log will be; need not exist yet
	Poll    time.Duration // between two looks; default 200 ms
	Timeout time.Duration // after which it gives up; default 10 minutes
}

// sessionLog is the name of the log of a session.
var sessionLog = regexp.MustCompile(`^(?:session-)?([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})\.log$`)

// SessionOfLog is the session that a log of Copilot CLI is named after, in the letters of
// the name; empty for other files.
func SessionOfLog(name string) string {
	if m := sessionLog.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}

// Find waits for the log and returns the session. The error is [ErrNoSession] after the
// timeout, or that of ctx.
func (d Discovery) Find(ctx context.Context) (string, error) {
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
			return "", fmt.Errorf("%w in %s after %v", ErrNoSession, d.Dir, d.Timeout)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// look returns the session of the first log in the folder. A folder that cannot be read
// has none yet.
func (d Discovery) look() string {
	entries, _ := os.ReadDir(d.Dir)
	for _, e := range entries {
		if id := SessionOfLog(e.Name()); id != "" {
			return id
		}
	}
	return ""
}
