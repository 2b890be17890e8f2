package redact

import (
	"errors"
	"io"
	"regexp"
	"unicode/utf8"
)

// ErrUnsearched is the error of a record that would take more work than a record may: it cannot be
// searched for secrets. The same record has it on every machine.
var ErrUnsearched = errors.New("record takes too much work to search for secrets")

// errInterrupted ends a search whose result nobody waits for.
var errInterrupted = errors.New("search is interrupted")

// The work that a record may take, in bytes: baseWork, and workPerByte for each byte of it. An ordinary record
// takes a few for each of its bytes.
const (
	baseWork    = 8 << 20
	workPerByte = 32
)

// budget is the work that a search may still do. Work is counted in bytes that expressions and decoders are given,
// so that it does not depend on the machine.
type budget struct {
	done <-chan struct{} // closed when nobody waits for the result
	left int
	used int
	look int   // the used at which done is looked at next
	err  error // why the search ends; nil while it goes on
}

// lookEvery is the work after which an interruption is noticed.
const lookEvery = 256 << 10

func newBudget(done <-chan struct{}, size int) budget {
	return budget{done: done, left: baseWork + workPerByte*size}
}

// spend counts work. It returns false when there is nothing left, or nobody waits: the search ends then.
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

// interrupt ends the search if nobody waits for it.
func (b *budget) interrupt() {
	select {
	case <-b.done:
		b.err = errInterrupted
	default:
	}
}

// over reports whether the search has to end.
func (b *budget) over() bool { return b.err != nil }

// find returns the leftmost match of an expression in a text, and spends what it reads of it.
func (b *budget) find(expression *regexp.Regexp, text []byte) []int {
	r := runeReader{budget: b, text: text[:min(len(text), max(b.left, 0))], look: lookEvery}
	m := expression.FindReaderSubmatchIndex(&r)
	if !b.spend(r.at + 1) {
		return nil
	}
	return m
}

// runeReader gives an expression a text, and knows what it has read: an expression stops when what follows
// does not matter.
type runeReader struct {
	*budget
	text []byte
	at   int
	look int // the at at which an interruption is looked for next
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
