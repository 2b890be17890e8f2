package core

import "fmt"

// checkValues returns [errTooManyValues] for a record of more than [MaxValues] strings, objects, arrays
// and commas. It counts them before anything is decoded, because a wire struct takes many times the bytes
// of the element that it is made of. A number counts by its comma alone: a buffer that was written as
// an array of bytes is cheap to keep.
func checkValues(data []byte) error {
	if len(data) <= MaxValues { // each that counts has a byte of its own
		return nil
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
	if n > MaxValues {
		return fmt.Errorf("%w: %d strings, objects, arrays and commas, the limit is %d", errTooManyValues, n, MaxValues)
	}
	return nil
}
