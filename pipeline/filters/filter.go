// Package filters makes filters of events: a [Filter] has which sequences of three bytes the texts of the events of a part
// of a stream have. A search skips the parts that lack a sequence of its terms, so it does not read every event for a rare
// term.
//
// The keeper of session records makes and stores filters (pipeline/sessions/summaries). body.go and escapes.go read the
// JSON of an event without decoding it, for filters and for searches.
//
// The invariant: a filter may have a sequence that no event has, but it has every sequence of each event of its part.
package filters

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"tributary/envelopes"
	"tributary/pipeline/events"
)

// Bytes is the size of the sequences of a filter.
const Bytes = 1 << filterBits / 8

const (
	sequence   = 3          // bytes
	filterBits = 19         // of the number of a bit: 64 KiB
	spread     = 2654435761 // a prime near 2^32 divided by the golden ratio
)

// Filter is the filter of the events of a part of a stream. Its zero value is that of no event; [Filter.Add] sets the
// sequences and Counts alone. One goroutine at a time may add events.
type Filter struct {
	Number uint64                        `json:"number"` // in its cell; the oldest filter has 1
	Span   events.Span                   `json:"span"`
	Oldest time.Time                     `json:"oldest"` // when the first event was stored
	Newest time.Time                     `json:"newest"` // when the last event was stored
	Counts map[envelopes.EventType]Count `json:"counts"` // of the events by type; those of other programs are in none
	// Erasures is how often sessions of the generation had been erased. A filter of before may have their sequences.
	Erasures uint64 `json:"erasures,omitzero"`

	bits [Bytes / 8]uint64
}

// Count counts events.
type Count struct {
	Events int64 `json:"events"`
	Bytes  int64 `json:"bytes"` // of these events in JSON
	Cut    int64 `json:"cut"`   // events with a truncated text
}

// Add counts an event in JSON.
func (c *Count) Add(body []byte) {
	c.Events++
	c.Bytes += int64(len(body))
	if isCut(body) {
		c.Cut++
	}
}

// Add adds the body of a stored event.
func (f *Filter) Add(body []byte) {
	is := TypeOf(body)
	switch {
	case is != "":
		count := f.Counts[is]
		count.Add(body)
		if f.Counts == nil {
			f.Counts = map[envelopes.EventType]Count{}
		}
		f.Counts[is] = count
	case IsDocument(body): // its text is behind escapes of its own
		for i := range f.bits {
			f.bits[i] = ^uint64(0)
		}
		return
	}
	text := Searched(body, is)
	f.addText(text)
	if HasASCIIEscape(text) {
		text = Unescaped(text)
		f.addText(text)
		f.addText(Unescaped(text)) // the text of a call is JSON, too
	}
}

// addText adds the sequences of a text in lower case.
func (f *Filter) addText(text []byte) {
	if len(text) < sequence {
		return
	}
	key := uint32(lowerOf[text[0]])<<8 | uint32(lowerOf[text[1]])
	for _, b := range text[2:] {
		key = key<<8 | uint32(lowerOf[b])
		bit := bitOf(key)
		f.bits[bit/64] |= 1 << (bit % 64)
	}
}

// lowerOf has each byte with ASCII letters in lower case.
var lowerOf = func() (table [256]byte) {
	for i := range table {
		table[i] = byte(i)
		if 'A' <= i && i <= 'Z' {
			table[i] += 'a' - 'A'
		}
	}
	return table
}()

// bitOf returns the number of the bit of the last three bytes of key.
func bitOf(key uint32) uint32 { return key << 8 * spread >> (32 - filterBits) }

// Has reports whether the filter has all sequences of a text, whose ASCII letters are in lower case: false means that no
// event of the part has the text in either case. It is true for a text of less than three bytes.
func (f *Filter) Has(lower []byte) bool {
	var key uint32
	for i, b := range lower {
		if key = key<<8 | uint32(b); i >= sequence-1 {
			if bit := bitOf(key); f.bits[bit/64]&(1<<(bit%64)) == 0 {
				return false
			}
		}
	}
	return true
}

// errDamaged means that data are not those of a filter.
var errDamaged = errors.New("not a filter")

// Encode returns what [Decode] reads: the sequences as data, and the rest as JSON, which is much smaller.
func (f *Filter) Encode() (head string, data []byte, err error) {
	text, err := json.Marshal(f, json.Deterministic(true))
	if err != nil {
		return "", nil, fmt.Errorf("encode filter: %w", err)
	}
	data = make([]byte, 0, Bytes)
	for _, word := range &f.bits {
		data = binary.LittleEndian.AppendUint64(data, word)
	}
	return string(text), data, nil
}

// Decode is the inverse of [Filter.Encode].
func Decode(head string, data []byte) (*Filter, error) {
	f := &Filter{}
	if json.Unmarshal([]byte(head), f) != nil || len(data) != Bytes || f.Number == 0 || f.Span.First > f.Span.Last {
		return nil, errDamaged
	}
	for i := range f.bits {
		f.bits[i] = binary.LittleEndian.Uint64(data[8*i:])
	}
	return f, nil
}
