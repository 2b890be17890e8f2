package receive

import (
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// refusal is why a request is refused. Its text repeats nothing of the request.
type refusal struct {
	http  int
	retry time.Duration // after which the client may send the request again; 0 for never
	text  string
	lines []refusedLine // of a request of lines
}

// Error implements error.
func (r *refusal) Error() string { return r.text }

func refuse(http int, text string) error { return &refusal{http: http, text: text} }

func refuseFor(http int, retry time.Duration, text string) error {
	return &refusal{http: http, retry: retry, text: text}
}

// refusalOf returns the refusal that err is or wraps. Any other error is one of the broker.
func refusalOf(err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	return &refusal{http: http.StatusServiceUnavailable, retry: awayRetry, text: "the broker does not accept records: try again"}
}

// How long clients wait before they send a request again.
const (
	awayRetry = 5 * time.Second // the broker is away
	busyRetry = time.Second     // other requests are in progress
)

// outcomes are the outcomes of requests, which metrics count.
var outcomes = []string{
	"stored", "partly", "malformed", "unauthenticated", "forbidden", "slow", "too_large", "unsupported", "too_many", "unavailable",
}

// outcomeOf returns the outcome of a request, one of outcomes.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "stored"
	case errors.As(err, new(*partlyRefused)):
		return "partly"
	}
	switch refusalOf(err).http {
	case http.StatusUnauthorized:
		return "unauthenticated"
	case http.StatusForbidden:
		return "forbidden"
	case http.StatusRequestTimeout:
		return "slow"
	case http.StatusRequestEntityTooLarge:
		return "too_large"
	case http.StatusUnsupportedMediaType:
		return "unsupported"
	case http.StatusTooManyRequests:
		return "too_many"
	case http.StatusServiceUnavailable:
		return "unavailable"
	default:
		return "malformed"
	}
}

// code returns the code of gRPC for r. Clients send a request again after Unavailable and DeadlineExceeded, and after
// ResourceExhausted if it has a delay.
func (r *refusal) code() codes.Code {
	switch r.http {
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusRequestTimeout:
		return codes.DeadlineExceeded
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case http.StatusUnsupportedMediaType:
		return codes.Unimplemented
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	default:
		return codes.InvalidArgument
	}
}

// status returns r as OpenTelemetry defines the body of an error.
func (r *refusal) status() *status.Status {
	s := &status.Status{Code: int32(r.code()), Message: r.text} //nolint:gosec // codes are small
	if r.retry > 0 {
		if info, err := anypb.New(&errdetails.RetryInfo{RetryDelay: durationpb.New(r.retry)}); err == nil {
			s.Details = append(s.Details, info)
		}
	}
	return s
}

// answerer writes answers in the encoding of a request.
type answerer interface {
	// accept writes the response to a stored export request; nil for that of a whole success, which is empty.
	accept(w http.ResponseWriter, r response) error
	refuse(w http.ResponseWriter, r *refusal)
}

// response is the response to an export request in both encodings.
type response interface {
	MarshalProto() ([]byte, error)
	MarshalJSON() ([]byte, error)
}

const (
	typeProtobuf = "application/x-protobuf"
	typeJSON     = "application/json"
	typeGRPC     = "application/grpc"
)

// answererOf returns the answerer for a request.
func answererOf(req *http.Request) answerer {
	kind := mediaType(req)
	switch {
	case kind == typeGRPC || strings.HasPrefix(kind, typeGRPC+"+"):
		return grpcAnswerer{}
	case kind == typeProtobuf:
		return protobufAnswerer{}
	default:
		return jsonAnswerer{}
	}
}

// mediaType returns the media type of a request without parameters, in lower case.
func mediaType(req *http.Request) string {
	kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return kind
}

// writeHeader writes the status and the headers of a refusal over HTTP.
func writeHeader(w http.ResponseWriter, kind string, r *refusal) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(r.retry/time.Second)))
	}
	if r.http == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if r.http == http.StatusUnsupportedMediaType {
		w.Header().Set("Accept-Encoding", "gzip, zstd")
	}
	w.WriteHeader(r.http)
}

// protobufOf returns a response in protobuf.
func protobufOf(r response) ([]byte, error) {
	if r == nil {
		return nil, nil
	}
	return r.MarshalProto()
}

type protobufAnswerer struct{}

func (protobufAnswerer) accept(w http.ResponseWriter, r response) error {
	body, err := protobufOf(r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", typeProtobuf)
	_, _ = w.Write(body) // fails if the client has gone away
	return nil
}

func (protobufAnswerer) refuse(w http.ResponseWriter, r *refusal) {
	writeHeader(w, typeProtobuf, r)
	body, err := proto.Marshal(r.status())
	if err == nil {
		_, _ = w.Write(body) // fails if the client has gone away
	}
}

type jsonAnswerer struct{}

func (jsonAnswerer) accept(w http.ResponseWriter, r response) (err error) {
	body := []byte("{}")
	if r != nil {
		if body, err = r.MarshalJSON(); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", typeJSON)
	_, _ = w.Write(body) // fails if the client has gone away
	return nil
}

func (jsonAnswerer) refuse(w http.ResponseWriter, r *refusal) {
	writeHeader(w, typeJSON, r)
	_ = json.MarshalWrite(w, struct { // fails if the client has gone away
		Code    int           `json:"code"`
		Message string        `json:"message"`
		Refused []refusedLine `json:"refused,omitempty"`
	}{int(r.code()), r.text, r.lines})
}

// grpcAnswerer answers unary calls of gRPC: one message, and the outcome in trailers.
type grpcAnswerer struct{}

// grpcTrailers are the trailers of an answer.
const (
	grpcStatus  = "Grpc-Status"
	grpcMessage = "Grpc-Message"
	grpcDetails = "Grpc-Status-Details-Bin"
)

func (grpcAnswerer) accept(w http.ResponseWriter, r response) error {
	body, err := protobufOf(r)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", typeGRPC)
	h.Set("Trailer", grpcStatus)
	_, _ = w.Write(append(frameHead(len(body)), body...)) // fails if the client has gone away
	h.Set(grpcStatus, strconv.Itoa(int(codes.OK)))
	return nil
}

func (grpcAnswerer) refuse(w http.ResponseWriter, r *refusal) {
	h := w.Header()
	h.Set("Content-Type", typeGRPC)
	h.Set("Grpc-Accept-Encoding", "gzip,zstd,identity")
	h.Set("Trailer", grpcStatus+", "+grpcMessage+", "+grpcDetails)
	w.WriteHeader(http.StatusOK)
	h.Set(grpcStatus, strconv.Itoa(int(r.code())))
	h.Set(grpcMessage, r.text) // printable ASCII without %, so it needs no encoding
	if details, err := proto.Marshal(r.status()); err == nil {
		h.Set(grpcDetails, base64.RawStdEncoding.EncodeToString(details))
	}
}

// partlyRefused counts the records of a stored request that were not stored.
type partlyRefused struct {
	session, agent, large int // without a session, of no known agent, too large for the stream
}

func (p *partlyRefused) count() int { return p.session + p.agent + p.large }

// Error implements error. It is the message of a partial success.
func (p *partlyRefused) Error() string {
	var list []string
	add := func(n int, why string) {
		if n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, why))
		}
	}
	add(p.agent, "of no known agent (service.name and scope name it)")
	add(p.session, "without a session (an attribute such as session.id names it)")
	add(p.large, "too large for the raw stream")
	return "records that are not stored: " + strings.Join(list, ", ")
}
