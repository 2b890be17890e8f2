package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline"
)

// How near a limit is.
const (
	limitNear = 0.80 // a warning
	limitFull = 0.95 // a problem
)

// checkLimits judges how near the account and the streams are to their limits. Beyond them nothing is
// stored, not even the heartbeats of the workers. unknown is the check when the broker does not say.
func (a *app) checkLimits(ctx context.Context, js jetstream.JetStream, streams []pipeline.StreamStatus, unknown check) (check, error) {
	limits, err := pipeline.AccountLimits(ctx, js, a.config.Replicas)
	if err != nil {
		return unknown, err
	}
	for i := range limits {
		limits[i].Name += " of the account"
	}
	for _, s := range streams {
		if s.MaxBytes > 0 {
			limits = append(limits, pipeline.Limit{Name: "stream " + s.Name, Used: int64(s.Bytes), Max: s.MaxBytes, Bytes: true})
		}
		if s.MaxMessages > 0 {
			limits = append(limits, pipeline.Limit{Name: "messages of the stream " + s.Name, Used: int64(s.Messages), Max: s.MaxMessages})
		}
	}
	verdict := verdictOK
	var near []string
	for _, l := range limits {
		share := float64(l.Used) / float64(l.Max)
		switch {
		case share >= limitFull:
			verdict = verdictProblem
		case share < limitNear:
			continue
		case verdict == verdictOK:
			verdict = verdictWarning
		}
		text := fmt.Sprintf("%s: %d of %d", l.Name, l.Used, l.Max)
		if l.Bytes {
			text = fmt.Sprintf("%s: %s of %s", l.Name, size(l.Used), size(l.Max))
		}
		near = append(near, fmt.Sprintf("%s (%.0f%%)", text, 100*share))
	}
	switch {
	case len(limits) == 0:
		return check{Name: unknown.Name, Verdict: verdictOK, Text: "neither the account nor a stream has one"}, nil
	case near == nil:
		return check{Name: unknown.Name, Verdict: verdictOK, Text: "less than 80% of each limit of the account and the streams is used"}, nil
	}
	return check{
		unknown.Name, verdict, strings.Join(near, ", "),
		"raise the limit, or remove what is old; the workers go on by themselves (pipeline/README.md, Limits of the broker)",
	}, nil
}

// full returns whether a limit is reached, so that silence of the workers may be its effect.
func (d *diagnosis) full() bool {
	for _, c := range d.Checks {
		if c.Name == "limits" && c.Verdict == verdictProblem {
			return true
		}
	}
	return false
}
