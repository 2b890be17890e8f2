package sessions_test

import (
	"testing"

	"tributary/envelopes"
)

// TestTitlesOfPromptsEndAtTheEndOfASentence has marks that end a sentence, and marks within words.
func TestTitlesOfPromptsEndAtTheEndOfASentence(t *testing.T) {
	t.Parallel()
	for prompt, want := range map[string]string{
		"Fix https://github.com/acme/shop/issues/7, please.": "Fix https://github.com/acme/shop/issues/7, please",
		"Bump Node.js to 22. Then run the tests.":            "Bump Node.js to 22",
		"Why does v1.2 fail?":                                "Why does v1.2 fail",
		"Read main.go":                                       "Read main.go",
		"What?! Again":                                       "What",
		"... and then? Stop":                                 "... and then",
		"Fix the  tests.\nAll of them!":                      "Fix the tests",
		"Wait...":                                            "Wait",
		"Look at `a.b`, then c -":                            "Look at `a.b`, then c",
		"```go\na.b()\n``` explain!":                         "explain",
		"?":                                                  "?",
		"":                                                   "",
		"Move everything from pkg/alpha.go to pkg/beta.go, then to pkg/gamma.go": "Move everything from pkg/alpha.go to pkg/beta.go, then to pk",
	} {
		if got := summarize(event(1, 0, envelopes.UserMessage, text(prompt))).Title; got != want {
			t.Errorf("the title of %q is %q, want %q", prompt, got, want)
		}
	}
}
