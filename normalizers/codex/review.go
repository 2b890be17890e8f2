package codex

import (
	"strings"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// A review runs between entered_review_mode and exited_review_mode. It has a running total of
// its own, and its texts stand in event_msgs alone, each twice in a row (README.md, Reviews).

// enterReview notes that a review begins.
func (m *mapper) enterReview() {
	if st := m.st; !st.Review {
		st.Review, st.Outer = true, st.Total
	}
	m.meta()
}

// exitReview notes that the review ends: the total goes on from where it was in front of it.
func (m *mapper) exitReview() {
	m.releasePending()
	if st := m.st; st.Review {
		if st.Total.total() < st.Outer.total() {
			st.Total = st.Outer
		}
		st.Review, st.Outer = false, tokens{}
	}
	if !lenient.IsValue(m.ReviewOutput) {
		m.meta()
		return
	}
	m.putFact("review", readReview(m.ReviewOutput))
}

// repeatsNotice reports whether the record in front of this one is a notice with the same text,
// in a review.
func (m *mapper) repeatsNotice(kind textKind, text string) bool {
	if !m.st.Review {
		return false
	}
	is := core.FingerprintOf("notice", string(rune('0'+kind)), strings.TrimSpace(text))
	repeated := m.lastNotice == is
	m.lastNotice, m.st.Notice = is, is
	return repeated
}
