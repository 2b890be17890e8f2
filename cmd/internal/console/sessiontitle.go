package console

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tributary/cmd/internal/console/index"
	"tributary/cmd/internal/metadata"
	"tributary/pipeline/events"
	set "tributary/pipeline/sessions/titles"
)

// titleRequest is a request of the forms of titles and pins.
type titleRequest struct{ *request }

// The session service of the workers changes titles and pins. A form names the version that the person has seen, so
// that nobody replaces an unseen change of another person.

// shownChange bounds the wait until the list shows a change.
const shownChange = 2 * time.Second

// titleForm is the page that asks for a title and a pin.
type titleForm struct {
	Session  events.SessionID
	Path     string // of the session
	Back     string // the address of the page that asked
	Stored   set.Session
	Title    string // in the form
	Conflict bool   // somebody else changed title or pin meanwhile
}

// askTitle answers with the page that asks for a title and a pin.
func (r titleRequest) askTitle() error {
	if !r.config.Write {
		return errReadOnly()
	}
	id, err := r.sessionID()
	if err != nil {
		return err
	}
	return r.titlePage(id, http.StatusOK, r.URL.Query().Get("back"), nil)
}

// titlePage answers with the page of titleForm. title is what the person has typed, nil for nothing.
func (r titleRequest) titlePage(id events.SessionID, status int, back string, title *string) error {
	f := titleForm{Session: id, Path: sessionPath(id.Source, id.Session), Back: local(cmp.Or(back, "/sessions")), Conflict: status == http.StatusConflict}
	if err := r.askService("get", metadata.Request{}, id, &f.Stored); err != nil {
		return err
	}
	f.Title = f.Stored.Title
	if title != nil {
		f.Title = *title
	}
	if shown, _, _, err := r.index.Changed(index.Filter{}, []events.SessionID{id}, 0, r.now); err == nil && len(shown) == 1 && f.Title == "" {
		f.Title = shown[0].Title // from the events
	}
	return r.render(r.w, status, "sessiontitle", &page{
		Title: "Title and pin", Path: r.URL.Path, Filter: r.filter, User: userOf(r.Request), Generation: r.named, Data: f,
	})
}

// setTitle answers the form of a title.
func (r titleRequest) setTitle() error {
	title := strings.TrimSpace(r.PostFormValue("title"))
	if title == "" {
		return invalid("a title needs a letter at least", "go back and write one")
	}
	return r.changeMetadata("set_title", metadata.Request{Title: &title})
}

// setPin answers the form of a pin.
func (r titleRequest) setPin() error {
	pinned, err := strconv.ParseBool(r.PostFormValue("pinned"))
	if err != nil {
		return invalid("the form does not say whether the session is to be pinned", "load the page again")
	}
	return r.changeMetadata("set_pinned", metadata.Request{Pinned: &pinned})
}

// changeMetadata changes title or pin, and returns to the page that asked.
func (r titleRequest) changeMetadata(endpoint string, change metadata.Request) error {
	id, err := r.sessionID()
	if err != nil {
		return err
	}
	version, err := strconv.ParseUint(r.PostFormValue("version"), 10, 64)
	if err != nil {
		return invalid("the form does not name the version that it changes", "load the page again")
	}
	change.IfMatch = &version
	back := r.PostFormValue("back")
	var answer metadata.Answer
	err = r.askService(endpoint, change, id, &answer)
	if _, conflict := errors.AsType[*set.VersionConflictError](err); conflict {
		return r.titlePage(id, http.StatusConflict, back, change.Title)
	}
	if err != nil {
		return err
	}
	if answer.Applied {
		r.awaitShown(id, answer.MetadataVersion)
	}
	return r.seeOther(cmp.Or(back, "/sessions"))
}

// askService sends a request about a session to an endpoint of the session service.
func (r titleRequest) askService(endpoint string, q metadata.Request, id events.SessionID, answer any) error {
	q.Source, q.SessionID = id.Source, id.Session
	err := metadata.Ask(r.Context(), r.config.JetStream.Conn(), endpoint, q, answer)
	switch {
	case errors.Is(err, metadata.ErrNoService):
		return &problem{Status: http.StatusServiceUnavailable, Text: "no worker answers", Cure: "start one (tributary run), then try again", cause: err}
	case errors.Is(err, metadata.ErrRefused):
		return &problem{Status: http.StatusBadRequest, Text: "the worker refuses this: " + err.Error(), cause: err}
	}
	return err
}

// awaitShown waits until the list shows a version of title and pin, if the list is in memory and has the session.
func (r titleRequest) awaitShown(id events.SessionID, version uint64) {
	if r.index.Dropped() {
		return
	}
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	end := time.After(shownChange)
	for {
		shown, _, _, err := r.index.Changed(index.Filter{}, []events.SessionID{id}, 0, r.now)
		if err != nil || len(shown) == 0 || shown[0].Version >= version {
			return
		}
		select {
		case <-poll.C:
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}
