package core

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers/lenient"
)

// TestRemotesOfOneRepositoryAreEqual has the forms that git takes for one repository.
func TestRemotesOfOneRepositoryAreEqual(t *testing.T) {
	t.Parallel()
	for stated, want := range map[string]string{
		"https://github.com/acme/shop.git":            "github.com/acme/shop",
		"https://github.com/acme/shop":                "github.com/acme/shop",
		"https://GitHub.com/acme/shop/":               "github.com/acme/shop",
		"http://github.com:80/acme/shop.git":          "github.com/acme/shop",
		"git@github.com:acme/shop.git":                "github.com/acme/shop",
		"github.com:acme/shop":                        "github.com/acme/shop",
		"github.com:/acme/shop.git":                   "github.com/acme/shop",
		"ssh://git@github.com:2222/acme/shop.git":     "github.com/acme/shop",
		"git+ssh://git@github.com/acme/shop":          "github.com/acme/shop",
		" github.com/acme/shop\n":                     "github.com/acme/shop",
		"https://gitlab.example/a/b/c.git":            "gitlab.example/a/b/c",
		"https://dev.azure.com/o/My%20Project/_git/r": "dev.azure.com/o/My%20Project/_git/r",
		"GitHub.com/Acme/shop":                        "github.com/Acme/shop",
		"Acme/shop":                                   "Acme/shop",

		"":                             "",
		"shop":                         "",
		"/home/ada/shop":               "",
		"../shop":                      "",
		"./a/shop":                     "",
		"~/a/shop":                     "",
		"file:///home/ada/shop":        "",
		`C:\repos\shop`:                "",
		"C:/repos/shop":                "",
		"https://":                     "",
		"https://github.com":           "",
		"https://github.com:22x/a/b":   "",
		"codecommit::eu://profile@r/a": "",
		"a b/c":                        "",
		"github.com/acme/two words":    "",
		"https://github.com/" + strings.Repeat("a", maxVCS): "",
	} {
		if got := repositoryOf(stated); got != want {
			t.Errorf("%q gives %q, want %q", stated, got, want)
		}
	}
}

// TestCredentialsOfARemoteStayInside has credentials wherever a URL can have them.
func TestCredentialsOfARemoteStayInside(t *testing.T) {
	t.Parallel()
	for _, stated := range []string{
		"https://s3cr3t@github.com/acme/shop.git", "https://ada:s3cr3t@github.com/acme/shop", "https://ada:x@s3cr3t@github.com/acme/shop",
		"ssh://ada:s3cr3t@github.com/acme/shop", "ada:s3cr3t@github.com:acme/shop", "https://github.com/acme/shop?token=s3cr3t",
		"https://github.com/acme/shop#s3cr3t", "https://x/s3cr3t@github.com/acme/shop", "https://ada:x/s3cr3t@github.com/acme/shop",
		"https://ada:x/s3cr3t?x@github.com/acme/shop", "https://ada:x/s3cr3t#x@github.com/acme/shop", "ada:x/s3cr3t@github.com:acme/shop",
	} {
		s := NewSession(envelopes.Codex, "s", nil)
		s.SetCheckout(Checkout{Repository: lenient.Text(stated)})
		s.SetPullRequest(lenient.Text(stated), "acme/shop")
		if v := s.lastVCS(); strings.Contains(v.Repository+v.PullRequest, "s3cr3t") {
			t.Errorf("%q gives %+v", stated, v)
		}
	}
}

// TestNothingBeforeTheLastAtSignIsKept draws passwords with all that separates the parts of a URL.
func TestNothingBeforeTheLastAtSignIsKept(t *testing.T) {
	t.Parallel()
	around := rapid.StringOfN(rapid.SampledFrom([]rune("x1:/?#@%. \\[]")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		stated := rapid.SampledFrom([]string{"", "https://", "ssh://", "git@", "ada:"}).Draw(t, "scheme") +
			around.Draw(t, "before") + "s3cr3t" + around.Draw(t, "behind") + "@github.com" + rapid.SampledFrom([]string{"/", ":"}).Draw(t, "separator") + "acme/shop"
		if r := repositoryOf(stated); strings.Contains(r, "s3cr3t") {
			t.Errorf("%q gives %q", stated, r)
		}
	})
}

// TestLastKnownStateOfVersionControl has what sessions state one after the other.
func TestLastKnownStateOfVersionControl(t *testing.T) {
	t.Parallel()
	s := NewSession(envelopes.Codex, "s", nil)
	is := func(when string, want envelopes.VCS) {
		t.Helper()
		if got := s.lastVCS(); got != want || (s.VCS == nil) != want.IsZero() {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	is("before anything is stated", envelopes.VCS{})
	s.SetBranch("main")
	is("a branch", envelopes.VCS{Branch: "main"})
	first := s.VCS
	s.SetBranch("")
	s.SetBranch("main")
	if s.VCS != first {
		t.Error("what stays the same is made again")
	}
	s.SetPullRequest("https://ada@Example.com:8443/acme/shop/pull/7#top", "acme/shop")
	is("a pull request", envelopes.VCS{Repository: "example.com/acme/shop", Branch: "main", PullRequest: "https://example.com:8443/acme/shop/pull/7"})
	if first.PullRequest != "" {
		t.Error("events share what was changed")
	}
	s.SetPullRequest("7", "acme/shop")
	s.SetPullRequest("ssh://example.com/acme/shop/pull/8", "acme/shop")
	is("a pull request without a URL", envelopes.VCS{Repository: "example.com/acme/shop", Branch: "main", PullRequest: "https://example.com:8443/acme/shop/pull/7"})
	s.SetCheckout(Checkout{Branch: "next", Commit: "0F0E0D0C"})
	is("a working tree without a remote", envelopes.VCS{Branch: "next", Commit: "0f0e0d0c", PullRequest: "https://example.com:8443/acme/shop/pull/7"})
	s.SetBranch("HEAD")
	is("a detached head", envelopes.VCS{Commit: "0f0e0d0c", PullRequest: "https://example.com:8443/acme/shop/pull/7"})
	s.SetCheckout(Checkout{Branch: lenient.Text(strings.Repeat("x", maxVCS+1)), Commit: "no commit"})
	is("names that are none", envelopes.VCS{PullRequest: "https://example.com:8443/acme/shop/pull/7"})
}
