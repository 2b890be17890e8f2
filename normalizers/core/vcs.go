package core

import (
	"strings"
	"unicode"

	"tributary/envelopes"
	"tributary/normalizers/lenient"
)

// maxVCS is the maximum length of a member of a VCS. A longer one counts as unknown, because cut it would name
// something else.
const maxVCS = 1 << 10

// versionControl is the last known state of version control.
type versionControl struct {
	VCS *envelopes.VCS `json:"vcs,omitzero"` // nil if nothing is known; not changed in place
}

// vcsSize returns the approximate bytes of a state of version control.
func vcsSize(v *envelopes.VCS) int {
	if v == nil {
		return 0
	}
	return 64 + len(v.Repository) + len(v.Branch) + len(v.Commit) + len(v.PullRequest)
}

// SetBranch sets the branch of later events; it ignores an empty one.
func (c *versionControl) SetBranch(branch lenient.Text) {
	if branch == "" || c.VCS != nil && c.VCS.Branch == string(branch) {
		return
	}
	v := c.lastVCS()
	v.Branch = branchOf(string(branch))
	c.setVCS(v)
}

// Checkout is what a record states about a working tree.
type Checkout struct{ Repository, Branch, Commit lenient.Text }

// SetCheckout sets the working tree of later events; values that are not stated become unknown.
func (c *versionControl) SetCheckout(stated Checkout) {
	v := c.lastVCS()
	v.Repository, v.Branch, v.Commit = repositoryOf(string(stated.Repository)), branchOf(string(stated.Branch)), commitOf(string(stated.Commit))
	c.setVCS(v)
}

// SetPullRequest sets the pull request of later events by its URL, and its repository, a name on the host of the URL.
// It ignores an invalid URL.
func (c *versionControl) SetPullRequest(url, repository lenient.Text) {
	r, ok := readRemote(string(url))
	if !ok || r.scheme != "https" && r.scheme != "http" {
		return
	}
	v := c.lastVCS()
	v.PullRequest = r.scheme + "://" + r.host + r.port + "/" + r.path
	if repository != "" {
		v.Repository = repositoryOf(r.host + "/" + string(repository))
	}
	c.setVCS(v)
}

func (c *versionControl) lastVCS() envelopes.VCS {
	if c.VCS == nil {
		return envelopes.VCS{}
	}
	return *c.VCS
}

// setVCS makes v the state of later events. Earlier events share the previous one, which stays unchanged.
func (c *versionControl) setVCS(v envelopes.VCS) {
	switch {
	case v.IsZero():
		c.VCS = nil
	case v != c.lastVCS():
		c.VCS = &v
	}
}

// branchOf returns a branch name; empty for a detached head, which git calls HEAD.
func branchOf(name string) string {
	if name == "HEAD" || len(name) > maxVCS || !isName(name) {
		return ""
	}
	return name
}

// commitOf returns a commit id; empty for anything else.
func commitOf(id string) string {
	if len(id) < 7 || len(id) > 64 || strings.Trim(id, "0123456789abcdefABCDEF") != "" {
		return ""
	}
	return strings.ToLower(id)
}

// isName reports whether s can be a name in version control, which has no white space.
func isName(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
}

// repositoryOf returns a remote, or a name such as github.com/acme/shop or acme/shop, in a form equal for all remotes
// of a repository: the host in lower case and the path without a final .git. It is empty for a folder.
func repositoryOf(stated string) string {
	r, ok := readRemote(stated)
	if !ok {
		return ""
	}
	return r.host + "/" + strings.TrimSuffix(r.path, ".git")
}

// remote is an address on another machine, without credentials.
type remote struct {
	scheme string // empty for a remote such as git@github.com:acme/shop, and for a name
	host   string // in lower case, unless it is the beginning of the path in a name without a host
	port   string // with its colon; empty for none
	path   string // without slashes at its ends
}

// schemes are the URL schemes of remotes on another machine.
var schemes = map[string]bool{"https": true, "http": true, "ssh": true, "git": true, "git+ssh": true, "ssh+git": true}

// readRemote parses a remote. It returns false for an invalid one, and for one that may have credentials elsewhere
// than before its host.
func readRemote(stated string) (r remote, ok bool) {
	stated = strings.TrimSpace(stated)
	rest := stated
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
		if strings.Contains(stated[i:], "@") {
			return r, false
		}
	}
	scheme, address, isURL := strings.Cut(rest, "://")
	if isURL {
		r.scheme, rest = strings.ToLower(scheme), address
		if !schemes[r.scheme] {
			return r, false
		}
	}
	authority, path, _ := strings.Cut(rest, "/")
	host, port, hasPort := strings.Cut(authority[strings.LastIndexByte(authority, '@')+1:], ":")
	switch {
	case hasPort && !isURL && len(host) > 1: // as in git@github.com:acme/shop
		path = port + "/" + path
	case hasPort && !isURL: // a drive letter
		return r, false
	case hasPort:
		r.port = ":" + port
	}
	r.host, r.path = host, strings.Trim(path, "/")
	if isURL || hasPort || strings.Contains(host, ".") {
		r.host = strings.ToLower(host)
	}
	const letters = "abcdefghijklmnopqrstuvwxyz"
	ok = r.host != "" && r.path != "" && len(rest) <= maxVCS && strings.Trim(strings.ToLower(host), letters+"0123456789-_.") == "" &&
		strings.Trim(r.host, ".~-_") == r.host && strings.Trim(r.port, ":0123456789") == "" && !strings.Contains(r.path, "@") && isName(r.path)
	return r, ok
}
