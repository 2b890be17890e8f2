package core

import (
	"cmp"
	"strings"

	"tributary/normalizers/lenient"
)

// TextExtension returns a string extension of the metadata; empty for anything else.
func (m *metadata) TextExtension(name string) string {
	if v := m.Extensions[name]; v != nil {
		return lenient.Unquote(v)
	}
	return ""
}

// maxVersion is the maximum length of a version.
const maxVersion = 48

// IsVersion reports whether a text has the form of a version: two to four numbers, which may be dates, and maybe a
// suffix (1.0.95, 0.160.0-alpha.3, 2026.01.28-d35ed9c).
func IsVersion(v string) bool {
	if len(v) > maxVersion {
		return false
	}
	numbers, suffix := splitVersion(v)
	if n := len(numbers); n < 2 || n > 4 {
		return false
	}
	for _, c := range []byte(suffix) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '+', c == '_':
		default:
			return false
		}
	}
	return true
}

// splitVersion returns the numbers of a version, nil if a part is not a number, and its suffix: what follows the
// first hyphen or plus sign.
func splitVersion(v string) (numbers []string, suffix string) {
	if i := strings.IndexAny(v, "-+"); i >= 0 {
		v, suffix = v[:i], v[i+1:]
	}
	for part := range strings.SplitSeq(v, ".") {
		if part == "" || strings.Trim(part, "0123456789") != "" {
			return nil, suffix
		}
		numbers = append(numbers, part)
	}
	return numbers, suffix
}

// CompareVersions compares two versions number by number; missing numbers are zero. Suffixes do not count: an alpha
// equals its version. It returns 0 if one of them is not a version.
func CompareVersions(a, b string) int {
	if !IsVersion(a) || !IsVersion(b) {
		return 0
	}
	x, _ := splitVersion(a)
	y, _ := splitVersion(b)
	for i := range max(len(x), len(y)) {
		if c := compareNumbers(numberAt(x, i), numberAt(y, i)); c != 0 {
			return c
		}
	}
	return 0
}

// numberAt returns the i-th number of a version without leading zeros; empty for zero.
func numberAt(numbers []string, i int) string {
	if i >= len(numbers) {
		return ""
	}
	return strings.TrimLeft(numbers[i], "0")
}

// compareNumbers compares two numbers of any length without leading zeros.
func compareNumbers(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// IsNewer reports whether a version of an agent is newer than Checked.
func (v *Vendor) IsNewer(version string) bool { return CompareVersions(version, v.Checked) > 0 }
