package antigravity

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// gap is the line that stands in a shortened transcript in place of what was cut from a text; lastGap ends the text.
var (
	gap     = regexp.MustCompile(`\n<truncated \d+ bytes>(?:\n|$)`)
	lastGap = regexp.MustCompile(`\n<truncated \d+ bytes>\n?$`)
)

// splitRequest returns what a human typed, and what Antigravity says behind it. Of a long prompt the end of the request
// may have been cut.
func (r *record) splitRequest(text string) (typed, facts string, cut bool) {
	if end := strings.LastIndex(text, "</USER_REQUEST>"); end >= 0 {
		typed, facts = text[:end], text[end:]
		cut = slices.Contains(r.Cut, "content") && gap.MatchString(typed)
	} else if at := gap.FindStringIndex(text); at != nil {
		typed, facts, cut = text[:at[0]], text[at[1]:], true
	} else {
		typed, cut = text, true
	}
	return strings.Trim(typed, "\r\n"), facts, cut
}

// review begins a prompt with which a human answers a document of the agent.
const review = "Comments on artifact URI: "

// comment begins the comments of a review: with the passage that the first one is about, or with itself.
var comment = regexp.MustCompile(`(?m)^(?:Selection:$|Comment: ")`)

// splitReview returns what Antigravity says of a review, such as an approval, what a human typed, as comments and as a
// request behind them, and what Antigravity says behind that.
func (r *record) splitReview(text string) (notice, typed, facts string, cut bool) {
	notice, request, ok := strings.Cut(text, "<USER_REQUEST>")
	if ok {
		typed, facts, cut = r.splitRequest(request)
	} else if at := gap.FindStringIndex(notice); at != nil {
		notice, facts, cut = notice[:at[0]], notice[at[1]:], true
	}
	if at := comment.FindStringIndex(notice); at != nil {
		cut = cut || slices.Contains(r.Cut, "content") && gap.MatchString(notice)
		notice, typed = notice[:at[0]], strings.TrimSpace(strings.TrimSpace(notice[at[0]:])+"\n\n"+typed)
	}
	return strings.TrimSpace(notice), typed, facts, cut
}

// isCut reports whether a member of a step was cut: the step says so, or the text ends in a gap.
func (r *record) isCut(member lenient.Text, text string) bool {
	return slices.Contains(r.Cut, member) || endsInGap(text)
}

// isCut reports whether an argument was cut.
func (c *call) isCut() bool {
	return slices.ContainsFunc(lenient.ObjectMembers(c.Args), func(m lenient.Member) bool {
		return m.Value.Kind() == '"' && endsInGap(lenient.Unquote(m.Value))
	})
}

func endsInGap(text string) bool { return lastGap.MatchString(text) }

// near is how many steps back a session remembers each step. Steps that finish late are nearer.
const near = 1000

// place is what both transcripts of a conversation state of a step.
type place struct {
	step int64
	at   string // in seconds
	key  core.Fingerprint
	ok   bool
}

func placeOf(r *record) place {
	p := place{step: r.Step.Count(), ok: r.Step.OK}
	p.at, _ = core.ParseTime(string(r.CreatedAt))
	p.at = p.at[:min(len(p.at), len("2006-01-02T15:04:05"))]
	p.key = core.FingerprintOf("step", strconv.FormatInt(p.step, 10), string(r.Type), string(r.Status), p.at)
	return p
}

// isKnown reports whether the session has a step. One far behind the newest step is known, unless it is younger: the
// conversation then went back.
func (p place) isKnown(w *chat.Writer) bool {
	if !p.ok {
		return false
	}
	if _, known := w.Session.IDs.Get(p.key); known {
		return true
	}
	newest, at, ok := newestOf(w)
	return ok && p.step < newest-near && p.at <= at
}

func (p place) remember(w *chat.Writer) {
	if !p.ok {
		return
	}
	w.Session.IDs.Put(p.key, core.Fingerprint{})
	if newest, _, ok := newestOf(w); p.at != "" && (!ok || p.step > newest) {
		w.Remember("newest", strconv.FormatInt(p.step, 10)+" "+p.at)
	}
}

// newestOf returns the step with the highest number so far, and its time.
func newestOf(w *chat.Writer) (step int64, at string, ok bool) {
	number, at, _ := strings.Cut(w.Remembered("newest"), " ")
	step, err := strconv.ParseInt(number, 10, 64)
	return step, at, err == nil
}
