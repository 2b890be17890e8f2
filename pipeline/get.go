package pipeline

import (
	"context"
	"errors"
	"fmt"
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
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := js.Conn().RequestWithContext(ctx, apiSubject(js, "STREAM.MSG.GET."+stream), body)
	if err != nil {
		return storedMessage{}, err
	}
	var answer struct {
		Message storedMessage       `json:"message"`
		Error   *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return storedMessage{}, fmt.Errorf("decode answer of stream %s: %w", stream, err)
	}
	if answer.Error != nil {
		if answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return storedMessage{}, jetstream.ErrMsgNotFound
		}
		return storedMessage{}, answer.Error
	}
	return answer.Message, nil
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
