package core

import "fmt"

// checkValues returns [errTooManyValues] for a record with more than [MaxValues] strings, objects, arrays and commas.
// It counts them before anything is decoded, because a wire struct takes many times the bytes of its element.
func checkValues(data []byte) error {
	if n := countValues(data); n > MaxValues {
		return fmt.Errorf("%w: %d strings, objects, arrays and commas, the limit is %d", errTooManyValues, n, MaxValues)
	}
	return nil
}

// TooManyValues reports whether a record exceeds [MaxValues], so that it must not be read.
func TooManyValues(data []byte) bool { return countValues(data) > MaxValues }

// countValues counts the values limited by [MaxValues]; 0 if they cannot exceed it. A number counts only by its
// comma, because a buffer written as an array of bytes is cheap to keep.
func countValues(data []byte) int {
	if len(data) <= MaxValues { // each counted value has a byte of its own
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
