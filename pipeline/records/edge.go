package records

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"tributary/envelopes"
)

// Limits of what a record states about its sender. They are low, because the 128 KiB of a session may have to hold
// the senders of 64 pending records.
const (
	maxSender = 255 // bytes of a host and of a user
	maxLabels = 16
	maxLabel  = 512 // bytes of all labels, in the form of [FormatLabels]
)

// labelName matches the names of labels.
var labelName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,62}$`)

// Errors in what a record states about its sender. Their texts repeat nothing of it.
var (
	errSender     = fmt.Errorf("is not 1 to %d bytes of UTF-8 without control characters", maxSender)
	errVerified   = errors.New("a verified user has no name")
	errLabel      = errors.New("is not NAME=VALUE")
	errLabelName  = errors.New("has a name that is not a letter, followed by at most 62 letters, digits, '_', '.' and '-'")
	errLabelValue = errors.New("has a value that is empty, is not UTF-8, ends in a space, or has a comma or a control character")
	errLabelTwice = errors.New("has the name of a label before it")
	errLabels     = fmt.Errorf("there are more than %d labels, or they take more than %d bytes", maxLabels, maxLabel)
)

// ParseLabels is the inverse of [FormatLabels]. It accepts any order, and spaces around labels, and returns nil for
// an empty text. Its error names a label by number and repeats nothing of the text.
func ParseLabels(text string) (map[string]string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil //nolint:nilnil // no labels
	}
	list := strings.Split(text, ",")
	if len(list) > maxLabels || len(text) > maxLabel {
		return nil, errLabels
	}
	labels := make(map[string]string, len(list))
	for i, label := range list {
		name, value, ok := strings.Cut(strings.TrimSpace(label), "=")
		err := checkLabel(name, value)
		if !ok {
			err = errLabel
		} else if _, twice := labels[name]; twice {
			err = errLabelTwice
		}
		if err != nil {
			return nil, fmt.Errorf("label %d %w", i+1, err)
		}
		labels[name] = value
	}
	return labels, nil
}

// FormatLabels returns labels as NAME=VALUE, ordered by name and separated by commas.
func FormatLabels(labels map[string]string) string {
	list := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, name+"="+labels[name])
	}
	return strings.Join(list, ",")
}

// CheckEdge returns an error if a record cannot state e as its sender. For a nil e there are no headers.
func CheckEdge(e *envelopes.Edge) error {
	if e == nil {
		return nil
	}
	if e.Host != "" && !isText(e.Host, maxSender) {
		return fmt.Errorf("host %w", errSender)
	}
	if e.User != "" && !isText(e.User, maxSender) {
		return fmt.Errorf("user %w", errSender)
	}
	for name, value := range e.Labels {
		if err := checkLabel(name, value); err != nil {
			return fmt.Errorf("a label %w", err)
		}
	}
	if e.Verified && e.User == "" {
		return errVerified
	}
	if len(e.Labels) > maxLabels || len(FormatLabels(e.Labels)) > maxLabel {
		return errLabels
	}
	return nil
}

func checkLabel(name, value string) error {
	switch {
	case !labelName.MatchString(name):
		return errLabelName
	case !isText(value, maxLabel) || strings.Contains(value, ",") || strings.TrimSpace(value) != value:
		return errLabelValue
	default:
		return nil
	}
}

// isText reports whether s has 1 to most bytes of UTF-8 without control characters.
func isText(s string, most int) bool {
	return s != "" && len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// setEdge states the sender of a record in its headers.
func setEdge(e *envelopes.Edge, set func(name, value string)) {
	if e == nil {
		return
	}
	set(envelopes.HeaderHost, envelopes.EncodeHeaderValue(e.Host))
	set(envelopes.HeaderUser, envelopes.EncodeHeaderValue(e.User))
	set(envelopes.HeaderLabels, envelopes.EncodeHeaderValue(FormatLabels(e.Labels)))
	if e.Verified {
		set(envelopes.HeaderVerified, "1")
	}
}

// ReadEdge returns the sender stated in the headers of a record; nil for none. Its error is permanent, see [Reason],
// and repeats nothing of the headers.
func ReadEdge(header nats.Header) (*envelopes.Edge, error) {
	var texts [3]string
	for i, name := range [...]string{envelopes.HeaderHost, envelopes.HeaderUser, envelopes.HeaderLabels} {
		text, err := envelopes.DecodeHeaderValue(header.Get(name))
		if err == nil && i < 2 && text != "" && !isText(text, maxSender) {
			err = errSender
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errHeader, name, err)
		}
		texts[i] = text
	}
	labels, err := ParseLabels(texts[2])
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errHeader, envelopes.HeaderLabels, err)
	}
	verified := header.Get(envelopes.HeaderVerified)
	if verified != "" && (verified != "1" || texts[1] == "") {
		return nil, fmt.Errorf("%w: %s is not 1 beside %s", errHeader, envelopes.HeaderVerified, envelopes.HeaderUser)
	}
	if texts[0] == "" && texts[1] == "" && labels == nil {
		return nil, nil //nolint:nilnil // no sender
	}
	return &envelopes.Edge{Host: texts[0], User: texts[1], Labels: labels, Verified: verified != ""}, nil
}
