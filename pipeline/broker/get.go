package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// GetRequest is a request for stored messages (nats-server, JSApiMsgGetRequest).
type GetRequest struct {
	Sequence      uint64   `json:"seq,omitzero"`
	LastBySubject string   `json:"last_by_subj,omitzero"`
	NextBySubject string   `json:"next_by_subj,omitzero"` // first message at or after Sequence
	MultiLast     []string `json:"multi_last,omitempty"`
	Batch         int      `json:"batch,omitzero"`
	NoHeaders     bool     `json:"no_hdr,omitzero"`
	MaxBytes      int      `json:"max_bytes,omitzero"`
}

// Stored is a message stored in a stream.
type Stored struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Header   []byte    `json:"hdrs"` // as on the wire; not set by [MessagesOf]
	Data     []byte    `json:"data"`
	Time     time.Time `json:"time"`
}

// LeaderGet reads one message from the leader of the stream, so the answer is never stale. (nats.go uses a direct get
// if the stream allows it, which any replica answers.) It returns [jetstream.ErrMsgNotFound] if there is no such
// message.
func LeaderGet(ctx context.Context, js jetstream.JetStream, stream string, req GetRequest) (Stored, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return Stored{}, err
	}
	type answer struct {
		Message Stored              `json:"message"`
		Error   *jetstream.APIError `json:"error"`
	}
	a, err := askLeader(ctx, js, "STREAM.MSG.GET."+stream, body, func(a answer) bool { return !away(a.Error) })
	switch {
	case err != nil:
		return Stored{}, err
	case a.Error == nil:
		return a.Message, nil
	case a.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return Stored{}, jetstream.ErrMsgNotFound
	}
	return Stored{}, a.Error
}

// LastStored reads the newest message of a subject, which may have wildcards, from the leader of the stream. It
// returns [jetstream.ErrMsgNotFound] if there is none.
func LastStored(ctx context.Context, js jetstream.JetStream, stream, subject string) (*jetstream.RawStreamMsg, error) {
	return ReadStored(ctx, js, stream, GetRequest{LastBySubject: subject})
}

// NextStored reads the first message at or after a sequence of a subject, which may have wildcards, as [LastStored]
// does.
func NextStored(ctx context.Context, js jetstream.JetStream, stream, subject string, from uint64) (*jetstream.RawStreamMsg, error) {
	return ReadStored(ctx, js, stream, GetRequest{Sequence: max(from, 1), NextBySubject: subject})
}

// ReadStored is [LeaderGet] with decoded headers. It also ends when the connection is lost.
func ReadStored(ctx context.Context, js jetstream.JetStream, stream string, req GetRequest) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := UntilDisconnected(ctx, js.Conn()) // nobody answers a request on a lost connection
	defer cancel()
	m, err := LeaderGet(ctx, js, stream, req)
	if err != nil {
		return nil, CauseOf(ctx, err)
	}
	out := &jetstream.RawStreamMsg{Subject: m.Subject, Sequence: m.Sequence, Data: m.Data, Time: m.Time}
	if len(m.Header) > 0 {
		if out.Header, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return nil, fmt.Errorf("headers of message %d of stream %s: %w", m.Sequence, stream, err)
		}
	}
	return out, nil
}

// StreamInfo is the state of a stream according to its leader (nats-server, StreamInfo).
type StreamInfo struct {
	Created time.Time `json:"created"`
	Config  struct {
		MaxAge            int64 `json:"max_age"` // nanoseconds; for each limit, 0 or less means none
		MaxMsgs           int64 `json:"max_msgs"`
		MaxBytes          int64 `json:"max_bytes"`
		MaxMsgsPerSubject int64 `json:"max_msgs_per_subject"`

		Discard string `json:"discard"` // old or new

		Metadata map[string]string `json:"metadata"`
	} `json:"config"`
	State struct {
		FirstSeq  uint64    `json:"first_seq"`
		FirstTime time.Time `json:"first_ts"` // set if the stream has messages
		LastSeq   uint64    `json:"last_seq"`
		LastTime  time.Time `json:"last_ts"`
		Deleted   uint64    `json:"num_deleted"` // removed messages behind the first one
	} `json:"state"`
	Cluster clusterInfo         `json:"cluster"`
	Error   *jetstream.APIError `json:"error"`
}

// LeaderInfo asks the leader of a stream for its state.
func LeaderInfo(ctx context.Context, js jetstream.JetStream, stream string) (StreamInfo, error) {
	a, err := askLeader(ctx, js, "STREAM.INFO."+stream, nil, func(a StreamInfo) bool {
		return a.Error == nil && a.Cluster.leads() || a.Error != nil && !away(a.Error)
	})
	switch {
	case err != nil:
		return StreamInfo{}, err
	case a.Error != nil:
		return StreamInfo{}, a.Error
	case !a.Cluster.leads():
		return StreamInfo{}, errLeaderless
	}
	return a, nil
}

// LastSequence asks the leader of a stream for its last sequence.
func LastSequence(ctx context.Context, js jetstream.JetStream, stream string) (uint64, error) {
	info, err := LeaderInfo(ctx, js, stream)
	return info.State.LastSeq, err
}

// errLeaderless means that no leader answered, only replicas, which may be behind.
var errLeaderless = &jetstream.APIError{
	Code: http.StatusServiceUnavailable, ErrorCode: codeUnavailable, Description: "no leader of the stream answers",
}

// codeUnavailable is the error code of a server that knows no leader (nats-server, JSClusterNotAvailErr).
const codeUnavailable = 10008

// away reports whether an error comes from a server that knows no leader.
func away(err *jetstream.APIError) bool { return err != nil && err.ErrorCode == codeUnavailable }

// electionTimeout is the shortest time after which replicas without news from their leader elect another one
// (nats-server, minElectionTimeoutDefault).
const electionTimeout = 4 * time.Second

// clusterInfo is what a server knows about the replicas of a stream (nats-server, ClusterInfo).
type clusterInfo struct {
	Leader   string `json:"leader"`
	Replicas []struct {
		Active int64 `json:"active"` // nanoseconds since the last answer; 0 for never
	} `json:"replicas"` // without the leader
}

// leads reports whether the answering server leads the stream: it believes so, and so many replicas have answered it
// recently that the others cannot have elected another leader.
func (c clusterInfo) leads() bool {
	if len(c.Replicas) == 0 {
		return true // it is the only one
	}
	heard := 1 // itself
	for _, r := range c.Replicas {
		if r.Active > 0 && time.Duration(r.Active) < electionTimeout {
			heard++
		}
	}
	return c.Leader != "" && 2*heard > len(c.Replicas)+1
}

// leaderGrace is how much later than a replica the leader may answer.
const leaderGrace = 500 * time.Millisecond

// askLeader sends a request that the leader of a stream answers. A replica that has lost its leader, because it is
// cut off or its disk is full, answers too, and often first, with an error or with outdated data. leads reports
// whether an answer is acceptable; askLeader returns an unacceptable one only if no better one arrives.
func askLeader[A any](ctx context.Context, js jetstream.JetStream, verb string, body []byte, leads func(A) bool) (answer A, err error) {
	began := time.Now()
	defer func() { err = NameRequest(err, verb, began) }()
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	nc := js.Conn()
	inbox, err := OpenInbox(nc)
	if err != nil {
		return answer, err
	}
	defer inbox.Close()
	if err := nc.PublishRequest(APISubject(js, verb), inbox.Subject, body); err != nil {
		return answer, err
	}
	for answered := false; ; answered = true {
		m, err := inbox.Next(ctx)
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

// MessagesOf reads the newest message of each subject, from any replica. Subjects without a message are missing in
// the result. The server limits the matching subjects to 1,024.
func MessagesOf(ctx context.Context, js jetstream.JetStream, stream string, subjects []string) (map[string]Stored, error) {
	return LastMessagesPaged(ctx, js, stream, subjects, 16<<20)
}

// staleTries and stalePause bound the wait for a replica that is behind; a healthy one catches up within
// milliseconds.
const (
	staleTries = 10
	stalePause = 20 * time.Millisecond
)

// errStale means that the answering replica stays behind.
var errStale = errors.New("replica has not got the checkpoint yet")

// MessagesAsOf is [MessagesOf] from a replica that has stored the checkpoint, or a later message of its subject,
// which is in the result, too. It asks again while the answer comes from a replica that is behind.
func MessagesAsOf(ctx context.Context, js jetstream.JetStream, stream string, checkpoint Place, subjects []string) (map[string]Stored, error) {
	subjects = append([]string{checkpoint.Subject}, subjects...) // first, because a replica answers in this order
	for tries := 0; ; tries++ {
		stored, err := MessagesOf(ctx, js, stream, subjects)
		switch {
		case err != nil:
			return nil, err
		case stored[checkpoint.Subject].Sequence >= checkpoint.Sequence:
			return stored, nil
		case tries == staleTries:
			return nil, errStale
		}
		if err := Pause(ctx, stalePause); err != nil {
			return nil, err
		}
	}
}

// LastMessagesPaged is [MessagesOf] in pages of about pageBytes, so that no answer makes this connection a slow
// consumer.
func LastMessagesPaged(ctx context.Context, js jetstream.JetStream, stream string, subjects []string, pageBytes int) (map[string]Stored, error) {
	r, err := openRequests(ctx, js, "DIRECT.GET."+stream)
	if err != nil {
		return nil, err
	}
	defer r.close()
	found := make(map[string]Stored, len(subjects))
	for from := uint64(0); ; {
		if err := r.send(GetRequest{Sequence: from, MultiLast: subjects, MaxBytes: pageBytes}); err != nil {
			return nil, err
		}
		pending, last, err := r.readPage(found)
		if err != nil {
			return nil, fmt.Errorf("read last messages of stream %s: %w", stream, err)
		}
		if pending == 0 {
			return found, nil
		}
		from = last + 1
	}
}

// NextMessages reads messages at or after a sequence of a subject, which may have wildcards, from any replica: the
// first ones in order, without their headers. It returns none if there are none.
func NextMessages(ctx context.Context, js jetstream.JetStream, stream, subject string, from uint64, most, maxBytes int) ([]Stored, error) {
	r, err := openRequests(ctx, js, "DIRECT.GET."+stream)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.send(GetRequest{Sequence: max(from, 1), NextBySubject: subject, Batch: most, MaxBytes: maxBytes}); err != nil {
		return nil, err
	}
	found := make(map[string]Stored)
	if _, _, err := r.readPage(found); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("read next messages of stream %s: %w", stream, err)
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Stored) int { return cmp.Compare(a.Sequence, b.Sequence) }), nil
}

// requests are requests of one kind to the JetStream API. Several may be in flight, each with one answer or more. All
// together have [RequestTimeout].
type requests struct {
	js     jetstream.JetStream
	verb   string
	began  time.Time
	ctx    context.Context
	cancel context.CancelFunc
	inbox  *Inbox
}

// openRequests prepares requests of a kind. The caller closes the result.
func openRequests(ctx context.Context, js jetstream.JetStream, verb string) (*requests, error) {
	r := &requests{js: js, verb: verb, began: time.Now()}
	var err error
	if r.inbox, err = OpenInbox(js.Conn()); err != nil {
		return nil, err
	}
	r.ctx, r.cancel = context.WithTimeout(ctx, RequestTimeout)
	return r, nil
}

func (r *requests) close() {
	r.cancel()
	r.inbox.Close()
}

// send sends a request.
func (r *requests) send(request any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return r.js.Conn().PublishRequest(APISubject(r.js, r.verb), r.inbox.Subject, body)
}

// next returns the next answer.
func (r *requests) next() (*nats.Msg, error) {
	m, err := r.inbox.Next(r.ctx)
	if err == nil && m.Header.Get("Status") == "503" {
		err = nats.ErrNoResponders
	}
	if err != nil {
		return nil, NameRequest(err, r.verb, r.began)
	}
	return m, nil
}

// readPage reads the messages of one answer into found. It returns how many are still to be requested, and the
// sequence of the last one received.
func (r *requests) readPage(found map[string]Stored) (pending, last uint64, err error) {
	for {
		m, err := r.next()
		if err != nil {
			return 0, 0, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			stored := Stored{Subject: m.Header.Get(jetstream.SubjectHeader), Data: m.Data}
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
			return 0, 0, fmt.Errorf("a message was removed while it was read: %w", jetstream.ErrMsgNotFound)
		default:
			return 0, 0, fmt.Errorf("status %s %s", status, m.Header.Get("Description"))
		}
	}
}

// requestAll sends requests of one kind at once, and returns the first error in their answers.
func requestAll[R any](ctx context.Context, js jetstream.JetStream, verb string, list []R) error {
	if len(list) == 0 {
		return nil
	}
	r, err := openRequests(ctx, js, verb)
	if err != nil {
		return err
	}
	defer r.close()
	for _, request := range list {
		if err := r.send(request); err != nil {
			return err
		}
	}
	for range list {
		m, err := r.next()
		if err != nil {
			return err
		}
		var answer struct {
			Error *jetstream.APIError `json:"error"`
		}
		if err := json.Unmarshal(m.Data, &answer); err != nil {
			return err
		}
		if answer.Error != nil {
			return answer.Error
		}
	}
	return nil
}

// APISubject returns the subject of a JetStream API request, with the prefix of js.
func APISubject(js jetstream.JetStream, verb string) string {
	switch o := js.Options(); {
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "." + verb
	case o.Domain != "":
		return "$JS." + o.Domain + ".API." + verb
	default:
		return jetstream.DefaultAPIPrefix + verb
	}
}

// CountFrom counts the messages of subjects from a stream sequence on. It creates a consumer, which reports the
// number, and deletes it.
func CountFrom(ctx context.Context, js jetstream.JetStream, stream string, sequence uint64, filters ...string) (uint64, error) {
	consumer, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		FilterSubjects:    filters,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       sequence,
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: 5 * time.Second,
		MemoryStorage:     true,
		HeadersOnly:       true,
	})
	if err != nil {
		return 0, fmt.Errorf("count messages of stream %s: %w", stream, err)
	}
	info := consumer.CachedInfo()
	return info.NumPending, Wrap(js.DeleteConsumer(ctx, stream, info.Name), "count messages of stream "+stream)
}
