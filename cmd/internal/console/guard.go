package console

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"tributary/cmd/internal/terminal"
)

// Guard has the rules by which requests are admitted. The zero value admits everybody on this machine, for a console
// that listens on loopback.
type Guard struct {
	// Hosts are names, without a port, at which browsers ask for the console. Localhost and loopback addresses are
	// always allowed; every other name is refused, because a page of another site could point its name here.
	Hosts []string
	// Addresses allows browsers to name any IP address, for a console that does not listen on loopback.
	Addresses bool
	// Token is the secret that admits a request; empty for none.
	Token string
	// Header is the header in which a proxy names its user, which admits the request; empty for none. It counts only
	// in requests from Proxies, nil for loopback.
	Header  string
	Proxies []netip.Prefix
	// TLS is set if browsers reach the console only by HTTPS.
	TLS bool
}

// shortestToken is the least length of a token, too long to be guessed.
const shortestToken = 16

type guard struct {
	Guard

	cross      *http.CrossOriginProtection
	cookie     string // its name differs for each token, because consoles at several ports share the cookies of a host
	credential string // the value of the cookie
}

func newGuard(g Guard) (*guard, error) {
	if g.Token != "" && len(g.Token) < shortestToken {
		return nil, fmt.Errorf("the token of the console is shorter than %d bytes: write a longer one, such as that of openssl rand -hex 16", shortestToken)
	}
	if g.Header != "" && len(g.Proxies) == 0 {
		g.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	return &guard{
		Guard: g, cross: http.NewCrossOriginProtection(),
		cookie: "tributary-" + derived(g.Token, "name")[:8], credential: derived(g.Token, "credential"),
	}, nil
}

// derived returns a value that only those who know the token can compute, and that does not reveal the token.
func derived(token, purpose string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("tributary console " + purpose))
	return hex.EncodeToString(mac.Sum(nil))
}

// setHeaders sets the headers of every answer: nothing loads from elsewhere, nothing inline runs, no other site
// frames or reads the answer, and no cache keeps it.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer a browser sends forms without their origin
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

const loginPath = "/login"

type userKey struct{}

// userOf returns the user that a proxy named, empty if none did.
func userOf(r *http.Request) string {
	user, _ := r.Context().Value(userKey{}).(string)
	return user
}

// admit returns the request for the views, or why it is refused. Both are nil if the request was answered.
func (c *Console) admit(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	g := c.guard
	if !g.knows(r.Host) {
		return nil, &problem{
			Status: http.StatusMisdirectedRequest, Text: "this console does not answer under this name",
			Cure: "use localhost or 127.0.0.1, or name the host in TRIBUTARY_CONSOLE_HOSTS",
		}
	}
	if err := g.cross.Check(r); err != nil {
		return nil, &problem{Status: http.StatusForbidden, Text: "a page of another site sent this form", Cure: "use the form of the console", cause: err}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Dest") != "document" {
		return nil, &problem{Status: http.StatusForbidden, Text: "a page of another site asks for this", Cure: "open it in a window of its own"}
	}
	if r.URL.Path == loginPath || strings.HasPrefix(r.URL.Path, assetsPath) || g.Token == "" && g.Header == "" {
		return r, nil
	}
	if user := g.user(r); user != "" {
		return r.WithContext(context.WithValue(r.Context(), userKey{}, user)), nil
	}
	if g.Token == "" {
		return nil, &problem{Status: http.StatusUnauthorized, Text: "no proxy names you", Cure: "open the console at the address of its proxy"}
	}
	if cookie, err := r.Cookie(g.cookie); err == nil && equal(cookie.Value, g.credential) {
		return r, nil
	}
	if query := r.URL.Query(); r.Method == http.MethodGet && query.Has("token") {
		if !equal(query.Get("token"), g.Token) {
			return nil, c.askToken(w, r, http.StatusUnauthorized, "this is not the token")
		}
		query.Del("token")
		g.setCookie(w, r)
		http.Redirect(w, r, local(r.URL.EscapedPath())+queryOf(query), http.StatusSeeOther)
		return nil, nil
	}
	return nil, c.askToken(w, r, http.StatusUnauthorized, "")
}

// knows reports whether a browser may reach this console at a host.
func (g *guard) knows(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if ip, err := netip.ParseAddr(name); err == nil {
		return g.Addresses || ip.Unmap().IsLoopback()
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "localhost" || slices.ContainsFunc(g.Hosts, func(h string) bool { return strings.EqualFold(h, name) })
}

// user returns the user that a trusted proxy named.
func (g *guard) user(r *http.Request) string {
	if g.Header == "" {
		return ""
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	trusted := err == nil && slices.ContainsFunc(g.Proxies, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap().WithZone("")) })
	if values := r.Header.Values(g.Header); trusted && len(values) == 1 {
		return strings.TrimSpace(terminal.OneLine(values[0]))
	}
	return ""
}

// equal compares a secret in constant time.
func equal(given, secret string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

func (g *guard) setCookie(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{
		Name: g.cookie, Value: g.credential, Path: "/", MaxAge: 30 * 24 * 60 * 60,
		HttpOnly: true, Secure: g.TLS || r.Header.Get("X-Forwarded-Proto") == "https", // a false header helps nobody
		SameSite: http.SameSiteLaxMode, // a link in a message opens a page, but a form of another site is refused
	})
}

// loginPage is the data of the page that asks for the token.
type loginPage struct {
	To    string // where to continue
	Wrong string // what is wrong with the token
}

// askToken answers with the page that asks for the token.
func (c *Console) askToken(w http.ResponseWriter, r *http.Request, status int, wrong string) error {
	if c.guard.Token == "" {
		return notFound("this console asks for no token", "")
	}
	query := r.URL.Query()
	to := local(query.Get("to"))
	if r.URL.Path != loginPath {
		query.Del("token")
		to = local(r.URL.EscapedPath()) + queryOf(query)
	}
	return c.render(w, status, "login", &page{Title: "Token", Data: loginPage{to, wrong}})
}

// login answers the form that sends the token.
func (c *Console) login(w http.ResponseWriter, r *http.Request) error {
	if c.guard.Token == "" {
		return notFound("this console asks for no token", "")
	}
	if err := r.ParseForm(); err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			return err
		}
		return invalid("the form cannot be read", "send it again")
	}
	to := local(r.PostForm.Get("to"))
	if !equal(r.PostForm.Get("token"), c.guard.Token) {
		c.config.Logger.WarnContext(r.Context(), "a wrong token of the console", "from", r.RemoteAddr)
		r.URL.RawQuery = url.Values{"to": {to}}.Encode()
		return c.askToken(w, r, http.StatusUnauthorized, "this is not the token")
	}
	c.guard.setCookie(w, r)
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}
