package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"tributary/cmd/internal/rights"
	"tributary/cmd/internal/terminal"
	"tributary/pipeline/embedded"
	"tributary/pipeline/streams"
)

// serverState is the state of JetStream on a server, as the server reports it.
type serverState struct {
	Server struct {
		Name string `json:"name"`
	} `json:"server"`
	Stats struct {
		JetStream struct {
			Config struct {
				MaxStorage int64 `json:"max_storage"`
				Interval   int64 `json:"sync_interval"` // nanoseconds
				Always     bool  `json:"sync_always"`
			} `json:"config"`
			Stats struct {
				Storage int64 `json:"storage"`
			} `json:"stats"`
		} `json:"jetstream"`
	} `json:"statsz"`
}

// Parts of a limit whose use is reported.
const (
	limitNear = 0.80 // is a warning
	limitFull = 0.95 // is a problem
)

// limits compares the usage of the account, the streams and the reporting servers with their limits. At a limit the
// broker stores nothing, not even heartbeats of workers. unknown is the check for a broker that shows no limits.
func (x *examination) limits(ctx context.Context, list []streams.StreamStatus, servers []serverState, unknown Check) (Check, error) {
	limits, err := streams.ReadLimits(ctx, x.js, x.Topology.Replicas, list)
	if err != nil {
		return unknown, err
	}
	whose := "the account and the streams"
	for _, s := range servers {
		if is := s.Stats.JetStream; is.Config.MaxStorage > 0 {
			limits = append(limits, streams.Limit{Name: "storage of the server " + terminal.OneLine(s.Server.Name), Used: is.Stats.Storage, Max: is.Config.MaxStorage, Bytes: true})
			whose = "the account, the streams and the servers"
		}
	}
	verdict := OK
	var near []string
	for _, l := range limits {
		share := l.Share()
		switch {
		case share >= limitFull:
			verdict = Problem
		case share < limitNear:
			continue
		case verdict == OK:
			verdict = Warning
		}
		text := fmt.Sprintf("%s: %d of %d", l.Name, l.Used, l.Max)
		if l.Bytes {
			text = fmt.Sprintf("%s: %s of %s", l.Name, terminal.Size(l.Used), terminal.Size(l.Max))
		}
		near = append(near, fmt.Sprintf("%s (%.0f%%)", text, 100*share))
	}
	switch {
	case len(limits) == 0:
		return Check{Name: unknown.Name, Verdict: OK, Text: "neither the account nor a stream has one"}, nil
	case near == nil:
		return Check{Name: unknown.Name, Verdict: OK, Text: "less than 80% of each limit of " + whose + " is used"}, nil
	}
	return Check{
		unknown.Name, verdict, strings.Join(near, ", "),
		"raise the limit, or remove what is old; the workers go on by themselves (deploy/limits.md, Bound the disk)",
	}, nil
}

// servers asks the servers for their state. They answer users of the system account, and of accounts that import the
// service. If alone, the first answer is the only one.
func (x *examination) servers(ctx context.Context, alone bool) (list []serverState) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	stop := x.Denials.Watch(func(rights.Denial) { cancel() }) // the check of durability reports it
	defer stop()
	inbox := x.js.Conn().NewInbox()
	sub, err := x.js.Conn().SubscribeSync(inbox)
	if err != nil {
		return nil
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := x.js.Conn().PublishRequest(embedded.StateSubject, inbox, nil); err != nil {
		return nil
	}
	for len(list) == 0 || !alone {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil || len(m.Data) == 0 { // nobody answers
			return list
		}
		var s serverState
		if json.Unmarshal(m.Data, &s) == nil {
			list = append(list, s)
		}
	}
	return list
}

// full reports whether a limit is reached, which may be why the workers are silent.
func (d *Diagnosis) full() bool {
	for _, c := range d.Checks {
		if c.Name == "limits" && c.Verdict == Problem {
			return true
		}
	}
	return false
}
