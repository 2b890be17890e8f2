package ship

import (
	"context"
	"fmt"
	"os"
	"time"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// Discovery finds the session of an agent that prints plain text: the agent names a log
// file after the session while it runs.
type Discovery struct {
	Source  envelopes.Source // of an agent whose row in the table of vendors has PrintedText
	Dir     string           // folder of the log; need not exist yet
	Poll    time.Duration    // time between two looks; default 200 ms
	Timeout time.Duration    // after which the text is shipped without its session; default 10 minutes
}

// plainText returns how the agent's plain text and its session are known.
func (d Discovery) plainText() *core.PrintedText {
	return normalizers.VendorOf(d.Source).Framing.PrintedText
}

// Flag returns the name of the flag that asks for this Discovery on the command line.
func (d Discovery) Flag() string { return d.plainText().Flag }

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
		if id := d.plainText().SessionOfLog(e.Name()); id != "" {
			return id
		}
	}
	return ""
}
