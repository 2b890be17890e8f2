package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// getRequest asks for stored messages (nats-server, JSApiMsgGetRequest).
type getRequest struct {
	Sequence      uint64   `json:"seq,omitzero"`
	LastBySubject string   `json:"last_by_subj,omitzero"`
	NextBySubject string   `json:"next_by_subj,omitzero"` // the first from Sequence on
	MultiLast     []string `json:"multi_last,omitempty"`
	Batch         int      `json:"batch,omitzero"`
	NoHeaders     bool     `json:"no_hdr,omitzero"`
	MaxBytes      int      `json:"max_bytes,omitzero"`
}

// storedMessage is a message as it lies in a stream.
type storedMessage struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Header   []byte    `json:"hdrs"` // as they are on the wire; [lastMessages] leaves them out
	Data     []byte    `json:"data"`
	Time     time.Time `json:"time"`
}

// leaderGet reads one message through the leader of the stream, so that the answer is
// never stale. nats.go uses a direct get wherever the stream allows one. The error is
// [jetstream.ErrMsgNotFound] when there is no such message.
func leaderGet(ctx context.Context, js jetstream.JetStream, stream string, req getRequest) (storedMessage, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return storedMessage{}, err
	}
	type answer struct {
		Message storedMessage       `json:"message"`
		Error   *jetstream.APIError `json:"error"`
	}
	a, err := askLeader(ctx, js, "STREAM.MSG.GET."+stream, body, func(a answer) bool { return !away(a.Error) })
	switch {
	case err != nil:
		return storedMessage{}, err
	case a.Error == nil:
		return a.Message, nil
	case a.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return storedMessage{}, jetstream.ErrMsgNotFound
	}
	return storedMessage{}, a.Error
}

// lastSequence asks the leader of a stream for the last sequence that it stored.
func lastSequence(ctx context.Context, js jetstream.JetStream, stream string) (uint64, error) {
	type answer struct {
		State struct {
			LastSeq uint64 `json:"last_seq"`
		} `json:"state"`
		Cluster clusterInfo         `json:"cluster"`
		Error   *jetstream.APIError `json:"error"`
	}
	a, err := askLeader(ctx, js, "STREAM.INFO."+stream, nil, func(a answer) bool {
		return a.Error == nil && a.Cluster.leads() || a.Error != nil && !away(a.Error)
	})
	switch {
	case err != nil:
		return 0, err
	case a.Error != nil:
		return 0, a.Error
	case !a.Cluster.leads():
		return 0, errLeaderless
	}
	return a.State.LastSeq, nil
}

// errLeaderless: only replicas answered that may be behind.
var errLeaderless = &jetstream.APIError{
	Code: http.StatusServiceUnavailable, ErrorCode: codeUnavailable, Description: "no leader of the stream answers",
}

// codeUnavailable is the server's word that it knows no leader (nats-server,
// JSClusterNotAvailErr).
const codeUnavailable = 10008

// away reports whether the answer is of a server that knows no leader.
func away(err *jetstream.APIError) bool { return err != nil && err.ErrorCode == codeUnavailable }

// electionTimeout is the shortest time in which replicas elect a leader without having
// heard of another (nats-server, minElectionTimeoutDefault).
const electionTimeout = 4 * time.Second

// clusterInfo is what a server knows of the replicas of a stream (nats-server,
// ClusterInfo).
type clusterInfo struct {
	Leader   string `json:"leader"`
	Replicas []struct {
		Active int64 `json:"active"` // nanoseconds since it was heard of; 0 for never
	} `json:"replicas"` // without the leader
}

// leads reports whether who says this leads the stream: it means to, and has heard of so
// many replicas of late that they cannot have elected another.
func (c clusterInfo) leads() bool {
	if len(c.Replicas) == 0 {
		return true // there are no others
	}
	heard := 1
	for _, r := range c.Replicas {
		if r.Active > 0 && time.Duration(r.Active) < electionTimeout {
			heard++
		}
	}
	return c.Leader != "" && 2*heard > len(c.Replicas)+1
}

// leaderGrace is how long the leader may answer later than a replica.
const leaderGrace = 500 * time.Millisecond

// askLeader sends a request that the leader of a stream answers. A replica that has lost
// sight of the leader, because it was cut off or its disk is full, answers too, and often
// first: that there is none, or what it knew last. An answer that leads does not accept is
// returned when no other comes.
func askLeader[A any](ctx context.Context, js jetstream.JetStream, verb string, body []byte, leads func(A) bool) (answer A, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	nc := js.Conn()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return answer, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(apiSubject(js, verb), inbox, body); err != nil {
		return answer, err
	}
	for answered := false; ; answered = true {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case err != nil && answered:
			return answer, nil
		case err != nil:
			return answer, err
		case m.Header.Get("Status") == "503":
			return answer, nats.ErrNoResponders
		}
		var a A
		if err := json.Unmarshal(m.Data, &a); err != nil {
			return answer, fmt.Errorf("decode answer to %s: %w", verb, err)
		}
		if answer = a; leads(a) {
			return answer, nil
		}
		if !answered {
			defer time.AfterFunc(leaderGrace, cancel).Stop()
		}
	}
}

// lastMessages reads the newest message of each subject with one request that any
// replica may answer. Subjects without a message are missing in the result. Those that
// match may be at most 1,024 (the server's limit).
func lastMessages(ctx context.Context, js jetstream.JetStream, stream string, subjects []string) (map[string]storedMessage, error) {
	return lastMessagesPaged(ctx, js, stream, subjects, 16<<20)
}

// lastMessagesPaged asks for about pageBytes at a time, so that an answer never makes
// this connection a slow consumer.
func lastMessagesPaged(ctx context.Context, js jetstream.JetStream, stream string, subjects []string, pageBytes int) (map[string]storedMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	nc := js.Conn()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	found := make(map[string]storedMessage, len(subjects))
	for from := uint64(0); ; {
		body, err := json.Marshal(getRequest{Sequence: from, MultiLast: subjects, MaxBytes: pageBytes})
		if err != nil {
			return nil, err
		}
		if err := nc.PublishRequest(apiSubject(js, "DIRECT.GET."+stream), inbox, body); err != nil {
			return nil, err
		}
		pending, last, err := readPage(ctx, sub, found)
		if err != nil {
			return nil, fmt.Errorf("read last messages of stream %s: %w", stream, err)
		}
		if pending == 0 {
			return found, nil
		}
		from = last + 1
	}
}

// readPage reads the messages of one answer into found. It returns how many are still to
// be asked for, and the sequence of the last one that came.
func readPage(ctx context.Context, sub *nats.Subscription, found map[string]storedMessage) (pending, last uint64, err error) {
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return 0, 0, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			stored := storedMessage{Subject: m.Header.Get(jetstream.SubjectHeader), Data: m.Data}
			if stored.Sequence, err = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64); err != nil {
				return 0, 0, fmt.Errorf("sequence of an answer: %w", err)
			}
			if stored.Time, err = time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer)); err != nil {
				return 0, 0, fmt.Errorf("time of an answer: %w", err)
			}
			found[stored.Subject] = stored
			last = stored.Sequence
		case "204":
			pending, err = strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
			return pending, last, err
		case "404":
			if m.Header.Get("Description") == "No Results" {
				return 0, 0, nil
			}
			return 0, 0, errors.New("a message went away while it was read")
		case "503":
			return 0, 0, nats.ErrNoResponders
		default:
			return 0, 0, fmt.Errorf("status %s %s", status, m.Header.Get("Description"))
		}
	}
}

// apiSubject is a subject of the JetStream API as js reaches it.
func apiSubject(js jetstream.JetStream, verb string) string {
	switch o := js.Options(); {
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "." + verb
	case o.Domain != "":
		return "$JS." + o.Domain + ".API." + verb
	default:
		return jetstream.DefaultAPIPrefix + verb
	}
}
