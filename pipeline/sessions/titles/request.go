package titles

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// The requests. Pointers are required members, except for if_match.
type (
	sessionRequest struct {
		Source    envelopes.Source `json:"source"`
		SessionID string           `json:"session_id"`
	}
	setTitleRequest struct {
		sessionRequest `json:",inline"`
		Title          *string `json:"title"`
		IfMatch        *uint64 `json:"if_match"`
	}
	generatedTitleRequest struct {
		sessionRequest `json:",inline"`
		Title          *string     `json:"title"`
		TitleSource    TitleSource `json:"title_source"`
		Force          bool        `json:"force"`
		IfMatch        *uint64     `json:"if_match"`
	}
	setPinnedRequest struct {
		sessionRequest `json:",inline"`
		Pinned         *bool   `json:"pinned"`
		IfMatch        *uint64 `json:"if_match"`
	}
	listRequest struct {
		Source envelopes.Source `json:"source"`
		Pinned *bool            `json:"pinned"`
		After  uint64           `json:"after"`
		Limit  int              `json:"limit"`
	}
)

// The answers.
type (
	// titleAnswer and pinnedAnswer have the fields after applied only if that is true.
	titleAnswer struct {
		Applied         bool   `json:"applied"`
		Title           string `json:"title"`
		TitleVersion    uint64 `json:"title_version"`
		MetadataVersion uint64 `json:"metadata_version"`
		Sequence        uint64 `json:"sequence"`
	}
	pinnedAnswer struct {
		Applied         bool   `json:"applied"`
		Pinned          bool   `json:"pinned"`
		MetadataVersion uint64 `json:"metadata_version"`
		Sequence        uint64 `json:"sequence"`
	}
	unchangedAnswer struct {
		Applied bool `json:"applied"`
	}
	listAnswer struct {
		Sessions []Session `json:"sessions"`
		Next     uint64    `json:"next,omitzero"` // value of after for the next page; missing in the last one
	}
	errorAnswer struct {
		Code            string  `json:"code"`
		Error           string  `json:"error"`
		ExpectedVersion *uint64 `json:"expected_version,omitempty"`
		CurrentVersion  *uint64 `json:"current_version,omitempty"`
	}
)

// The limits of a page of list.
const (
	defaultPage = 100
	maxPage     = 1000
)

// call decodes a request, executes it, and returns the answer. unchanged reports that a request that may change
// something changed nothing.
func (s *Service) call(ctx context.Context, e endpoint, data []byte) (body []byte, unchanged bool, err error) {
	var answer any
	switch e {
	case endpointSetTitle:
		var r setTitleRequest
		if err := decodeRequest(data, &r, func() bool { return r.Title != nil }, "title"); err != nil {
			return nil, false, err
		}
		answer, err = titled(s.SetTitle(ctx, r.key(), *r.Title, ifMatch(r.IfMatch)...))
	case endpointApplyGeneratedTitle:
		var r generatedTitleRequest
		if err := decodeRequest(data, &r, func() bool { return r.Title != nil }, "title"); err != nil {
			return nil, false, err
		}
		answer, err = titled(s.ApplyGeneratedTitle(ctx, r.key(), *r.Title, r.TitleSource, r.Force, ifMatch(r.IfMatch)...))
	case endpointSetPinned:
		var r setPinnedRequest
		if err := decodeRequest(data, &r, func() bool { return r.Pinned != nil }, "pinned"); err != nil {
			return nil, false, err
		}
		answer, err = pinned(s.SetPinned(ctx, r.key(), *r.Pinned, ifMatch(r.IfMatch)...))
	case endpointGet:
		var r sessionRequest
		if err := decodeRequest(data, &r, nil, ""); err != nil {
			return nil, false, err
		}
		answer, err = s.Get(ctx, r.key())
	case endpointList:
		var r listRequest
		if len(data) > 0 {
			if err := decodeRequest(data, &r, nil, ""); err != nil {
				return nil, false, err
			}
		}
		answer, err = s.page(ctx, r)
	case endpoints:
	}
	if err != nil {
		return nil, false, err
	}
	_, unchanged = answer.(unchangedAnswer)
	body, err = json.Marshal(answer)
	return body, unchanged, err
}

func (r sessionRequest) key() Key { return Key(r) }

func ifMatch(version *uint64) []Option {
	if version == nil {
		return nil
	}
	return []Option{IfMatch(*version)}
}

func titled(c *Change, err error) (any, error) {
	if err != nil || c == nil {
		return unchangedAnswer{}, err
	}
	return titleAnswer{true, c.Title, c.TitleVersion, c.MetadataVersion, c.Sequence}, nil
}

func pinned(c *Change, err error) (any, error) {
	if err != nil || c == nil {
		return unchangedAnswer{}, err
	}
	return pinnedAnswer{true, c.Pinned, c.MetadataVersion, c.Sequence}, nil
}

// decodeRequest decodes a request strictly: unknown, missing and mistyped members are errors. Its error repeats
// nothing of the request but the name of a known member.
func decodeRequest(data []byte, into any, complete func() bool, member string) error {
	err := json.Unmarshal(data, into, json.RejectUnknownMembers(true))
	var semantic *json.SemanticError
	switch {
	case errors.Is(err, json.ErrUnknownName):
		return invalid("the request has a member that this endpoint does not know")
	case errors.As(err, &semantic) && semantic.JSONPointer != "":
		return invalid(fmt.Sprintf("member %s has the wrong type", semantic.JSONPointer.LastToken()))
	case err != nil || jsontext.Value(data).Kind() != jsontext.KindBeginObject:
		return invalid("the request is not a JSON object in UTF-8 with unique members")
	case complete != nil && !complete():
		return invalid("member " + member + " is missing")
	}
	return nil
}

// page returns a page of records, in a message that the broker accepts.
func (s *Service) page(ctx context.Context, r listRequest) (listAnswer, error) {
	switch {
	case r.Limit < 0 || r.Limit > maxPage:
		return listAnswer{}, invalid(fmt.Sprintf("limit is not in 1 to %d", maxPage))
	case r.Source != "" && (Key{r.Source, "any"}).check() != nil:
		return listAnswer{}, (Key{r.Source, "any"}).check()
	case r.Limit == 0:
		r.Limit = defaultPage
	}
	room := int(s.js.Conn().MaxPayload()) - 1024
	a := listAnswer{Sessions: []Session{}}
	for record, err := range s.List(ctx, Query{Source: r.Source, Pinned: r.Pinned, After: r.After}) {
		if err != nil {
			return listAnswer{}, err
		}
		data, err := json.Marshal(&record)
		if err != nil {
			return listAnswer{}, storage("load_session", err)
		}
		room -= len(data) + 1
		if len(a.Sessions) == r.Limit || room < 0 && len(a.Sessions) > 0 {
			a.Next = a.Sessions[len(a.Sessions)-1].Revision
			break
		}
		a.Sessions = append(a.Sessions, record)
	}
	return a, nil
}

// codeStorage is the code of an error of the server.
const codeStorage = "500"

// errorCode returns the code of an error for an answer; empty for none.
func errorCode(err error) string {
	var conflict *VersionConflictError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrEmptyTitle):
		return "400"
	case errors.Is(err, ErrNotFound):
		return "404"
	case errors.As(err, &conflict):
		return "409"
	case errors.Is(err, errTooLarge):
		return "413"
	default:
		return codeStorage
	}
}

// errorBody returns the body of the answer for an error.
func errorBody(code string, err error) ([]byte, error) {
	a := errorAnswer{Code: code, Error: err.Error()}
	if conflict, ok := errors.AsType[*VersionConflictError](err); ok {
		a.ExpectedVersion, a.CurrentVersion = &conflict.Expected, &conflict.Current
	}
	return json.Marshal(a)
}
