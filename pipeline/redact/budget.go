package redact

import (
	"errors"
	"io"
	"regexp"
	"unicode/utf8"
)

// ErrUnsearched means that a record takes too much work to search for secrets. It depends only on the record, not on
// the machine.
var ErrUnsearched = errors.New("record takes too much work to search for secrets")

// errInterrupted ends a search whose result is no longer wanted.
var errInterrupted = errors.New("search is interrupted")

// The work allowed for a record, in bytes: baseWork, and workPerByte for each byte of it. An ordinary record takes a
// few per byte.
const (
	baseWork    = 8 << 20
	workPerByte = 32
)

// budget is the remaining work of a search. It counts the bytes given to expressions and decoders, so it does not
// depend on the machine.
type budget struct {
	done <-chan struct{} // closed when the result is no longer wanted
	left int
	used int
	look int   // value of used at which done is checked next
	err  error // why the search ended; nil while it goes on
}

// lookEvery is the work between two checks for an interruption.
const lookEvery = 256 << 10

func newBudget(done <-chan struct{}, size int) budget {
	return budget{done: done, left: baseWork + workPerByte*size}
}

// spend counts work. It returns false if the search must end: no work is left, or the result is no longer wanted.
func (b *budget) spend(n int) bool {
	if b.err != nil {
		return false
	}
	b.used += n
	if b.left -= n; b.left < 0 {
		b.err = ErrUnsearched
	} else if b.used >= b.look {
		b.look = b.used + lookEvery
		b.interrupt()
	}
	return b.err == nil
}

// interrupt ends the search if its result is no longer wanted.
func (b *budget) interrupt() {
	select {
	case <-b.done:
		b.err = errInterrupted
	default:
	}
}

// over reports whether the search must end.
func (b *budget) over() bool { return b.err != nil }

// find returns the leftmost match of an expression in a text, and spends the bytes that it reads.
func (b *budget) find(expression *regexp.Regexp, text []byte) []int {
	r := runeReader{budget: b, text: text[:min(len(text), max(b.left, 0))], look: lookEvery}
	m := expression.FindReaderSubmatchIndex(&r)
	if !b.spend(r.at + 1) {
		return nil
	}
	return m
}

// runeReader feeds a text to an expression and counts what that reads: an expression stops when the rest does not
// matter.
type runeReader struct {
	*budget
	text []byte
	at   int
	look int // value of at at which an interruption is checked next
}

// ReadRune implements io.RuneReader.
func (r *runeReader) ReadRune() (rune, int, error) {
	if r.at >= r.look {
		r.look += lookEvery
		r.interrupt()
	}
	if r.at >= len(r.text) || r.over() {
		return 0, 0, io.EOF
	}
	if c := r.text[r.at]; c < utf8.RuneSelf {
		r.at++
		return rune(c), 1, nil
	}
	c, n := utf8.DecodeRune(r.text[r.at:])
	r.at += n
	return c, n, nil
}
