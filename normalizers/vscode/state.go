package vscode

import (
	"regexp"
	"slices"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

const (
	maxRequests = 16       // whose changes are read
	maxCalls    = 256      // of a request
	maxEnded    = 256      // texts of an answer
	maxPieces   = 256      // of a text
	maxText     = 24 << 10 // bytes of a text that may go on
	maxResults  = 16 << 10 // bytes of the results of the unshown calls of a request
)

// state is what a session remembers: the entries of a journal name a request by its number, and a part of an answer by
// its number in that.
type state struct {
	Document core.DocumentHead    `json:"d,omitzero"`
	Count    int                  `json:"n,omitzero"` // of requests
	Requests core.Window[request] `json:"r,omitzero"` // the latest
	Created  lenient.Number       `json:"c,omitzero"` // milliseconds
	Copies   int                  `json:"f,omitzero"` // requests at the start that a fork copied
	chat.Joined
}

// request is a request whose answer may still change. Its slices are not changed in place.
type request struct {
	Index   int                      `json:"i,omitzero"`
	ID      lenient.Text             `json:"id,omitzero"`
	Model   lenient.Text             `json:"m,omitzero"`
	Parts   int                      `json:"p,omitzero"` // of its answer
	Texts   []string                 `json:"t,omitzero"` // parts at the end of the answer that are one text
	Calls   core.Window[shownCall]   `json:"c,omitzero"`
	Summed  bool                     `json:"s,omitzero"` // the tokens of all its API calls were stated
	Unshown core.Window[unshownCall] `json:"u,omitzero"`
	Ended   core.Window[endedText]   `json:"e,omitzero"` // texts and thoughts of the answer before the last text
	Stopped bool                     `json:"x,omitzero"` // by a human
	Rounds  bool                     `json:"r,omitzero"` // the texts of the model were stated
	Limited bool                     `json:"l,omitzero"` // the limit of calls ended it
}

// endedText is a text of an answer that nothing is added to.
type endedText struct {
	Part int                 `json:"p,omitzero"` // with which it begins
	Of   envelopes.EventType `json:"o,omitzero"`
	Key  core.Fingerprint    `json:"k,omitzero"` // of its statements
}

// shownCall is a call in an answer, with what only the answer states of its result.
type shownCall struct {
	Part   int            `json:"p,omitzero"`
	ID     lenient.Text   `json:"id,omitzero"`
	Tool   lenient.Text   `json:"n,omitzero"`
	Exit   *int64         `json:"x,omitzero"`
	Millis lenient.Number `json:"l,omitzero"`
	Failed bool           `json:"f,omitzero"`
}

// unshownCall is a call that the model is known to have made before the answer shows it.
type unshownCall struct {
	ID       lenient.Text `json:"id,omitzero"`
	Tool     lenient.Text `json:"n,omitzero"`
	Returned bool         `json:"r,omitzero"` // its result is known
	Text     *string      `json:"t,omitzero"` // of the result of a shell; or a short one; nil for another
}

// Clone implements [core.State].
func (s *state) Clone() core.State { c := *s; return &c }

// Size implements [core.State].
func (s *state) Size() (n int) {
	for _, q := range s.Requests {
		n += 64 + len(q.ID) + len(q.Model) + 40*len(q.Ended)
		for _, t := range q.Texts {
			n += 16 + len(t)
		}
		for _, c := range q.Calls {
			n += 64 + len(c.ID) + len(c.Tool)
		}
		for _, c := range q.Unshown {
			n += 64 + len(c.ID) + len(c.Tool) + c.size()
		}
	}
	return n
}

// Shrink implements [core.State]. It drops the oldest request.
func (s *state) Shrink() bool {
	if len(s.Requests) == 0 {
		return false
	}
	if s.Requests = s.Requests[1:]; len(s.Requests) == 0 {
		s.Requests = nil
	}
	return true
}

// request returns what is known of the n-th request.
func (s *state) request(n int) request {
	for _, q := range s.Requests {
		if q.Index == n {
			return q
		}
	}
	return request{Index: n, ID: placeOf(n)}
}

// put remembers a request, which is then the only one whose text may go on.
func (s *state) put(q request) {
	others := s.Requests.Without(func(o request) bool { return o.Index == q.Index })
	for i, o := range others {
		if o.Texts != nil {
			o.Texts = nil
			others = others.With(i, o)
		}
	}
	s.Requests = others.Push(q, maxRequests, nil)
	s.Count = max(s.Count, q.Index+1)
}

// truncate drops the requests from the n-th on.
func (s *state) truncate(n int) {
	s.Requests, s.Count = s.Requests.Without(func(q request) bool { return q.Index >= n }), n
	s.Copies = min(s.Copies, n)
}

// maxCopyDelay is how long after the creation of a fork a copied request may be dated, because each is one millisecond
// after the one before.
const maxCopyDelay = 10_000

// copies reports whether the n-th request is of the chat that this one was forked from, and notes that, because later
// changes name only its number. VS Code gives a copy an id and times that no request has which was sent.
func (s *state) copies(n int, r *wireRequest) bool {
	since := r.Timestamp.Value - s.Created.Value
	ended := r.State.Value.Completed
	isCopy := isOwnID(r.ID) && s.Created.OK && r.Timestamp.OK && since >= 0 && since < maxCopyDelay &&
		(ended.OK && ended.Value == r.Timestamp.Value || !r.State.OK && r.Response.Kind() != '[')
	if isCopy && n == s.Copies {
		s.Copies++
	}
	return n < s.Copies
}

// truncate drops the parts of an answer from the n-th on.
func (q *request) truncate(n int) {
	keep := min(len(q.Texts), n-q.first())
	if n > q.Parts || keep <= 0 {
		keep = 0
	}
	if q.Texts = q.Texts[:keep]; keep == 0 {
		q.Texts = nil
	}
	q.Parts = n
	q.Calls = q.Calls.Without(func(c shownCall) bool { return c.Part >= n })
	q.Ended = q.Ended.Without(func(t endedText) bool { return t.Part >= n })
}

// fits reports whether the last text may go on with a part.
func (q *request) fits(part string) bool {
	n := len(part)
	for _, t := range q.Texts {
		n += len(t)
	}
	return n <= maxText && len(q.Texts) < maxPieces
}

// first returns the number of the part with which the last text begins.
func (q *request) first() int { return q.Parts - len(q.Texts) }

// text returns the last text.
func (q *request) text() string { return strings.Join(q.Texts, "") }

func (c *unshownCall) size() int {
	if c.Text == nil {
		return 0
	}
	return len(*c.Text)
}

// addUnshown remembers a call until the answer shows it.
func (q *request) addUnshown(c unshownCall) {
	sum := c.size()
	for _, o := range q.Unshown {
		sum += o.size()
	}
	if sum > maxResults {
		c.Text = nil
	}
	if len(c.ID)+len(c.Tool) <= core.MaxName {
		q.Unshown = q.Unshown.Push(c, maxCalls, nil)
	}
}

// unanswered returns the calls that the limit of the n-th request left to the next one, which runs and shows them.
func (s *state) unanswered(n int) core.Window[unshownCall] {
	q := s.request(n)
	if !q.Limited {
		return nil
	}
	return q.Unshown.Without(func(c unshownCall) bool { return c.Returned })
}

// takeUnshown returns the call that the answer now shows, under its id or an own one; nil for none.
func (q *request) takeUnshown(id, tool lenient.Text) *unshownCall {
	for i, c := range q.Unshown {
		if c.ID == id || isOwnID(id) && c.Tool == tool {
			q.Unshown = slices.Delete(slices.Clone(q.Unshown), i, i+1)
			if len(q.Unshown) == 0 {
				q.Unshown = nil
			}
			return &c
		}
	}
	return nil
}

// ownID matches the id that old versions of VS Code give a call.
var ownID = regexp.MustCompile(`^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func isOwnID(id lenient.Text) bool { return ownID.MatchString(string(id)) }
