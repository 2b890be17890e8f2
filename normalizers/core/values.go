package core

import "fmt"

// checkValues returns [errTooManyValues] for a record of more than [MaxValues] strings, objects, arrays
// and commas. They are counted before anything is decoded, because a wire struct takes many times the bytes
// of the element that it is made of.
func checkValues(data []byte) error {
	if n := countValues(data); n > MaxValues {
		return fmt.Errorf("%w: %d strings, objects, arrays and commas, the limit is %d", errTooManyValues, n, MaxValues)
	}
	return nil
}

// TooManyValues reports whether a record has more than [MaxValues], so that nothing reads it.
func TooManyValues(data []byte) bool { return countValues(data) > MaxValues }

// countValues counts what counts for [MaxValues]; 0 where it cannot be more. A number counts by its comma alone: a
// buffer that was written as an array of bytes is cheap to keep.
func countValues(data []byte) int {
	if len(data) <= MaxValues { // each that counts has a byte of its own
		return 0
	}
	n, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			if quoted = !quoted; quoted {
				n++
			}
		case quoted:
		case c == ',' || c == '{' || c == '[':
			n++
		}
	}
	return n
}
