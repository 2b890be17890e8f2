package receive

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// idempotencyKey is the header with which a client names a request: with the same key it is the same request.
const idempotencyKey = "Idempotency-Key"

const typeLines = "application/x-ndjson"

// Errors of hooks and records.
var (
	errHookType  = refuse(http.StatusUnsupportedMediaType, "the content type has to be application/json")
	errHooks     = refuse(http.StatusNotFound, "the path names no agent whose hooks are read")
	errHook      = refuse(http.StatusBadRequest, "the body is not the JSON object of a hook")
	errSession   = refuse(http.StatusBadRequest, "the hook has no session_id")
	errLinesType = refuse(http.StatusUnsupportedMediaType, "the content type has to be application/x-ndjson")
	errSource    = refuse(http.StatusBadRequest, "the path names no known source: tributary agents lists them")
	errName      = refuse(http.StatusBadRequest, "a session id has 1 to 1,024 bytes")
	errManyLines = refuse(http.StatusRequestEntityTooLarge, "the request has more records than TRIBUTARY_RECEIVE_MAX_RECORDS allows: send fewer at once")
)

// hook stores what a hook of an agent posts. The answer is empty, which the agent takes for consent. Hooks have neither
// a time nor an id, so two equal ones are two records unless the client names them.
func (r *Receiver) hook(w http.ResponseWriter, c *call) error {
	source, known := normalizers.SourceOfHooks(c.PathValue("agent"))
	if !known {
		return errHooks
	}
	if mediaType(c.Request) != typeJSON {
		return errHookType
	}
	data, err := r.readBody(w, c)
	if err != nil {
		return err
	}
	if err := surveyJSON(data); err != nil {
		return err
	}
	var of struct {
		Session string `json:"session_id"`
	}
	switch {
	case json.Unmarshal(data, &of, lenient.Options) != nil:
		return errHook
	case !validSession(of.Session):
		return errSession
	}
	b, err := r.newBatch(c)
	if err != nil {
		return err
	}
	id := unidentified
	if key := c.Header.Get(idempotencyKey); key != "" {
		id = digest("key", key)
	}
	b.add(core.Record{Source: source, Session: of.Session, Data: data, Origin: core.Origin{Time: time.Now().UTC()}}, id)
	_, err = b.store()
	return err
}

// refusedLine is a line that is not stored.
type refusedLine struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}

// maxRefused is how many refused lines an answer names.
const maxRefused = 100

// linesAnswer is the answer to lines that are stored, except for those that the raw stream can never store.
type linesAnswer struct {
	Stored  int           `json:"stored"`
	Refused []refusedLine `json:"refused,omitempty"`
}

// records stores the lines of a request as records of a session: all of them, or none if one is no JSON.
func (r *Receiver) records(w http.ResponseWriter, c *call) error {
	kind := mediaType(c.Request)
	if kind != typeLines && kind != "application/jsonl" && kind != typeJSON {
		return errLinesType
	}
	source, session := envelopes.Source(c.PathValue("source")), c.PathValue("session")
	switch {
	case !slices.Contains(envelopes.Sources, source):
		return errSource
	case !validSession(session):
		return errName
	}
	data, err := r.readBody(w, c)
	if err != nil {
		return err
	}
	b, err := r.newBatch(c)
	if err != nil {
		return err
	}
	key := c.Header.Get(idempotencyKey)
	var refused []refusedLine
	var numbers []int // of the records of b
	line := 0
	for text := range bytes.Lines(data) {
		line++
		text = bytes.TrimSpace(text)
		switch {
		case len(text) == 0:
			continue
		case len(numbers) == r.limits.Records:
			return errManyLines
		case core.TooManyValues(text) || !jsontext.Value(text).IsValid(lenient.Options):
			refused = append(refused, refusedLine{line, "not JSON"})
			continue
		}
		id := ""
		if key != "" {
			id = digest("key", key, strconv.Itoa(line))
		}
		b.add(core.Record{Source: source, Session: session, Data: text}, id)
		numbers = append(numbers, line)
	}
	if refused != nil {
		return &refusal{http: http.StatusBadRequest, text: "nothing is stored, because some lines are no JSON", lines: refused[:min(len(refused), maxRefused)]}
	}
	large, err := b.store()
	if err != nil {
		return err
	}
	answer := linesAnswer{Stored: len(numbers) - len(large)}
	for i, number := range numbers {
		if large[i] && len(answer.Refused) < maxRefused {
			answer.Refused = append(answer.Refused, refusedLine{number, "too large for the raw stream"})
		}
	}
	w.Header().Set("Content-Type", typeJSON)
	_ = json.MarshalWrite(w, answer) // fails if the client has gone away
	if len(large) > 0 {
		return &partlyRefused{large: len(large)}
	}
	return nil
}
