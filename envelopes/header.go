package envelopes

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The headers of a raw record, set by its producer. All are optional.
const (
	// HeaderSession is the session id, by [EncodeHeaderValue]. A subject whose token is a
	// digest needs it, see [ResolveToken].
	HeaderSession = "Tributary-Session"
	// HeaderFile is the identity of the file of the record.
	HeaderFile = "Tributary-File"
	// HeaderPosition is the position of the record in that file, see [FormatPosition].
	HeaderPosition = "Tributary-Position"
	// HeaderDigest is the SHA-256 of the body in hex, for a file that is one document and is rewritten in place:
	// another digest at the same position means another record.
	HeaderDigest = "Tributary-Digest"
	// HeaderTime is the fallback time, see [FormatTime], for a record without a time in a session without a time.
	HeaderTime = "Tributary-Time"
	// HeaderParent is the session that started that of the record as a subagent, if only the path of the file shows
	// it, by [EncodeHeaderValue].
	HeaderParent = "Tributary-Parent"
	// HeaderHost and HeaderUser are the machine and the user that sent the record, by
	// [EncodeHeaderValue].
	HeaderHost = "Tributary-Host"
	HeaderUser = "Tributary-User"
	// HeaderLabels are labels of the sender, such as team=payments,env=ci, by
	// [EncodeHeaderValue].
	HeaderLabels = "Tributary-Labels"
	// HeaderVerified with the value 1 states that the receiver of the record has verified HeaderUser.
	HeaderVerified = "Tributary-Verified"
	// HeaderEnd with the value 1 and an empty body marks the end of the input.
	HeaderEnd = "Tributary-End"
	// HeaderRequeued marks a requeued dead letter: it is the raw sequence of the record that this one repeats.
	HeaderRequeued = "Tributary-Requeued"
	// HeaderClaim is the claim check of a large record: <bucket>/<sha256>;<size> of the object with its body.
	HeaderClaim = "Tributary-Claim"
	// HeaderTraceparent and HeaderTracestate are the W3C context of the last hop. The CloudEvent carries the context
	// in which the record was created.
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
)

// The headers of a dead letter.
const (
	HeaderReason     = "Tributary-Reason"     // a value of a bounded set
	HeaderError      = "Tributary-Error"      // the error, without any content of the record
	HeaderStream     = "Tributary-Stream"     // the raw stream
	HeaderSequence   = "Tributary-Sequence"   // of the record in the raw stream
	HeaderGeneration = "Tributary-Generation" // generation that cannot read the record
	HeaderNormalizer = "Tributary-Normalizer" // revision of the normalizers
	HeaderFirstSeen  = "Tributary-First-Seen" // by [FormatTime]
	HeaderRedacted   = "Tributary-Redacted"   // redaction mode of the record; absent if the record is as its agent wrote it
	HeaderSize       = "Tributary-Size"       // of the record in bytes, even if the dead letter omits it

	// HeaderOriginal is the prefix for each header of the record itself, so that none of them acts on the broker
	// again.
	HeaderOriginal = "Tributary-Original-"
)

// FormatPosition returns the value of [HeaderPosition]: the byte offset of the record in the file, and the offset of
// the previous record of the same session, -1 for the first record.
func FormatPosition(offset, previous int64) string {
	return strconv.FormatInt(offset, 10) + " " + strconv.FormatInt(previous, 10)
}

// ParsePosition is the inverse of [FormatPosition]. The error wraps [errInvalidHeader].
func ParsePosition(value string) (offset, previous int64, err error) {
	first, second, _ := strings.Cut(value, " ")
	offset, err1 := strconv.ParseInt(first, 10, 64)
	previous, err2 := strconv.ParseInt(second, 10, 64)
	if err1 != nil || err2 != nil || offset < 0 || previous < -1 || FormatPosition(offset, previous) != value {
		return 0, 0, fmt.Errorf("%w: %s is not an offset and the previous offset", errInvalidHeader, HeaderPosition)
	}
	return offset, previous, nil
}

// FormatTime returns the value of [HeaderTime] and [HeaderFirstSeen]: RFC 3339 in UTC, to the
// nanosecond.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// ParseTime is the inverse of [FormatTime]. The error wraps [errInvalidHeader].
func ParseTime(value string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: not a time in RFC 3339", errInvalidHeader)
	}
	return t.UTC(), nil
}

const upperHex = "0123456789ABCDEF"

// EncodeHeaderValue makes any UTF-8 string safe as the value of a header, by section 3.1.3.2
// of the NATS protocol binding of CloudEvents: the space, the double quote, the percent sign
// and every character outside printable ASCII become percent-encoded bytes.
func EncodeHeaderValue(s string) string {
	n := 0
	for i := range len(s) {
		if !isHeaderByte(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; isHeaderByte(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(b)
}

func isHeaderByte(c byte) bool { return '!' <= c && c <= '~' && c != '"' && c != '%' }

// DecodeHeaderValue is the inverse of [EncodeHeaderValue]. It also reads the values of other
// writers: double-quoted strings, values without encoding, lower-case hex; a percent sign that
// begins no encoding is a literal. The result is UTF-8; any other result is an error that
// wraps [errInvalidHeader].
func DecodeHeaderValue(value string) (string, error) {
	value = strings.Trim(value, " \t")
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		value = unescape(value[1 : len(value)-1])
	}
	value = decodePercent(value)
	if !utf8.ValidString(value) {
		return "", fmt.Errorf("%w: not UTF-8", errInvalidHeader)
	}
	return value, nil
}

// unescape drops the backslashes of a quoted string (RFC 7230, section 3.2.6).
func unescape(quoted string) string {
	if strings.IndexByte(quoted, '\\') < 0 {
		return quoted
	}
	b := make([]byte, 0, len(quoted))
	for i := 0; i < len(quoted); i++ {
		if quoted[i] == '\\' && i+1 < len(quoted) {
			i++
		}
		b = append(b, quoted[i])
	}
	return string(b)
}

// decodePercent decodes one round of percent-encoding. It keeps every other text.
func decodePercent(s string) string {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, lo := unhex(s[i+1]), unhex(s[i+2])
			if hi >= 0 && lo >= 0 {
				b = append(b, byte(hi<<4|lo))
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

// unhex returns the value of a hexadecimal digit, -1 for any other character.
func unhex(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	default:
		return -1
	}
}
