package console

import (
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// request is a request to a view, and its answer.
type request struct {
	*Console
	*http.Request

	w      http.ResponseWriter
	now    time.Time
	filter filter // of the query; see [parseFilter]

	named string // the generation, once it is known
}

// newRequest returns a request with the filter of its query.
func (c *Console) newRequest(w http.ResponseWriter, r *http.Request) (*request, error) {
	now := time.Now()
	f, err := parseFilter(r.URL.Query(), now, c.config.Zone)
	if err != nil {
		return nil, err
	}
	return &request{Console: c, Request: r, w: w, now: now, filter: f, named: c.config.Generation}, nil
}

// generation returns the generation to show, the same for the whole request.
func (r *request) generation(ctx context.Context) (string, error) {
	if r.named == "" {
		var err error
		if r.named, err = streams.LiveGeneration(ctx, r.config.JetStream); err != nil {
			return "", err
		}
	}
	return r.named, nil
}

// sessionID returns the session that the address names; an impossible id is a problem.
func (r *request) sessionID() (events.SessionID, error) {
	id, ok := parsePathID(r.PathValue("session"))
	source := envelopes.Source(r.PathValue("source"))
	if !ok || !utf8.ValidString(string(source)) {
		return events.SessionID{}, notFound("there is no such session", "choose one in the list of sessions")
	}
	return events.SessionID{Source: source, Session: id}, nil
}

// page is the data of every template; Data belongs to the view.
type page struct {
	Title      string
	Path       string // of the address
	Filter     filter
	Write      bool   // whether changes are allowed
	User       string // as a proxy named it; empty for none
	Generation string // the shown one; empty if the view did not ask for one
	Version    string
	Data       any
}

// Entry is a link of the navigation.
type entry struct {
	Path, Name string
	Current    bool
	Query      string // with the filter
}

// Nav returns the links of the navigation.
func (p *page) Nav() []entry {
	query := p.Filter.Query()
	var list []entry
	for _, v := range views {
		current := p.Path == v.Path || v.Path != "/" && strings.HasPrefix(p.Path, v.Path+"/")
		list = append(list, entry{v.Path, v.Name, current, query})
	}
	return list
}

// page answers with the page of a view.
func (r *request) page(view, title string, data any) error {
	return r.render(r.w, http.StatusOK, view, &page{
		Title: title, Path: r.URL.Path, Filter: r.filter, User: userOf(r.Request), Generation: r.named, Data: data,
	})
}

// json answers with a value as JSON, for a script of a view.
func (r *request) json(value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	r.w.Header().Set("Content-Type", "application/json")
	_, _ = r.w.Write(data) // fails if the browser has gone away
	return nil
}

// seeOther answers a form: the browser continues at an address of the console.
func (r *request) seeOther(address string) error {
	http.Redirect(r.w, r.Request, local(address), http.StatusSeeOther)
	return nil
}

// confirmation asks a person before a change. The page describes what happens, and works without a script.
type confirmation struct {
	What   []string // what happens, a sentence each
	Action string   // the address of the form
	Fields map[string]string
	Button string
	Danger bool   // the change cannot be reverted
	Back   string // the address of the page that asked
	BackTo string // its name
}

// confirm answers with the page of a confirmation.
func (r *request) confirm(title string, c confirmation) error { return r.page("confirm", title, c) }

//go:embed templates
var templateFiles embed.FS

// loadTemplates parses the template of each view, with the layout and the shared parts.
func loadTemplates(a *assets) (map[string]*template.Template, error) {
	shared, err := template.New("layout").Funcs(functions(a)).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	list := map[string]*template.Template{}
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		view, err := shared.Clone()
		if err == nil {
			view, err = view.ParseFS(templateFiles, file)
		}
		if err != nil {
			return nil, err
		}
		list[name] = view
	}
	return list, nil
}

// render writes the page of a view completely or not at all.
func (c *Console) render(w http.ResponseWriter, status int, view string, p *page) error {
	p.Write, p.Version = c.config.Write, c.config.Version
	var b bytes.Buffer
	if err := c.templates[view].ExecuteTemplate(&b, "layout.html", p); err != nil {
		return fmt.Errorf("the template %s: %w", view, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // fails if the browser has gone away
	return nil
}

// fragment returns a block of a view's template as HTML, for a script that puts it into the page.
func (c *Console) fragment(view, block string, data any) (string, error) {
	var b strings.Builder
	if err := c.templates[view].ExecuteTemplate(&b, block, data); err != nil {
		return "", fmt.Errorf("the template %s: %w", view, err)
	}
	return b.String(), nil
}

// pathID writes an id as one segment of a path: as it is if it is plain, else as ~ and its base64. Browsers and
// proxies change other spellings, such as the id "..".
func pathID(id string) string {
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.' && i > 0, c == ':' && i > 0:
		default:
			return "~" + base64.RawURLEncoding.EncodeToString([]byte(id))
		}
	}
	return id
}

// parsePathID is the inverse of [pathID]. It also accepts ids with the usual escapes.
func parsePathID(segment string) (id string, ok bool) {
	if rest, encoded := strings.CutPrefix(segment, "~"); encoded {
		raw, err := base64.RawURLEncoding.DecodeString(rest)
		segment = string(raw)
		ok = err == nil
	} else {
		ok = true
	}
	return segment, ok && segment != "" && utf8.ValidString(segment)
}

// sessionPath returns the address of a session.
func sessionPath(source envelopes.Source, session string) string {
	return "/sessions/" + pathID(string(source)) + "/" + pathID(session)
}

// eventPath returns the permanent address of an event.
func eventPath(source envelopes.Source, session, event string) string {
	return sessionPath(source, session) + "/events/" + pathID(event)
}

// local turns any address into one of this console, so that a browser stays here.
func local(address string) string {
	if i := strings.IndexFunc(address, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\\' }); i >= 0 {
		address = address[:i]
	}
	return "/" + strings.TrimLeft(address, "/")
}
