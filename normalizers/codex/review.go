package codex

import (
	"strings"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// A review runs between entered_review_mode and exited_review_mode. It has a running total of its own, and its texts
// are only in event_msgs, each twice in a row. Ids that begin with review_rollout_ are the same in every review and
// count as none.

// enterReview notes that a review begins.
func enterReview(m *mapper) {
	m.st.enterReview()
	meta(m)
}

// exitReview notes that the review ends, and emits its outcome.
func exitReview(m *mapper) {
	m.st.releaseTexts(&m.emitter)
	m.st.exitReview()
	if !lenient.IsValue(m.ReviewOutput) {
		meta(m)
		return
	}
	m.putFact("review", readReview(m.ReviewOutput))
}

// repeatsNotice reports whether the previous record is a notice with the same text, in a review.
func repeatsNotice(m *mapper, kind textKind, text string) bool {
	if !m.st.Review {
		return false
	}
	is := core.FingerprintOf("notice", string(rune('0'+kind)), strings.TrimSpace(text))
	repeated := m.lastNotice == is
	m.lastNotice, m.st.Notice = is, is
	return repeated
}
