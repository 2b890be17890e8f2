package calls

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxKeys limits the different commands, files and errors that are counted, each.
const maxKeys = 20_000

// maxText limits a command or an error, in bytes.
const maxText = 300

// counts counts by keys, at most maxKeys of them.
type counts[K comparable, V any] struct {
	values map[K]*V
	beyond int64 // occurrences of further keys
}

// of returns the count of a key, nil beyond the limit.
func (c *counts[K, V]) of(key K) *V {
	v := c.values[key]
	if v != nil {
		return v
	}
	if len(c.values) >= maxKeys {
		c.beyond++
		return nil
	}
	if c.values == nil {
		c.values = map[K]*V{}
	}
	v = new(V)
	c.values[key] = v
	return v
}

// Top is the beginning of a list, and how much follows.
type Top[V any] struct {
	List   []V
	Left   int   // entries after the list
	Beyond int64 // calls or errors that were not counted, because there were too many different ones
}

// topOf returns the first counts for which wanted, nil for all, is true.
func topOf[K comparable, V any](c *counts[K, V], most int, wanted func(*V) bool, order func(a, b *V) int) Top[V] {
	top := Top[V]{Beyond: c.beyond}
	var all []*V
	for _, v := range c.values {
		if wanted == nil || wanted(v) {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, order)
	top.Left = max(0, len(all)-most)
	for _, v := range all[:min(len(all), most)] {
		top.List = append(top.List, *v)
	}
	return top
}

func moreFailures(a, b *Command) int {
	return cmp.Or(cmp.Compare(b.Failures, a.Failures), cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Text, b.Text))
}

func moreEdits(a, b *File) int {
	return cmp.Or(cmp.Compare(b.Edits, a.Edits), strings.Compare(a.Path, b.Path), strings.Compare(a.Project, b.Project))
}

func moreErrors(a, b *Error) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(string(a.Source), string(b.Source)), strings.Compare(a.Code, b.Code))
}

// firstLine returns the first line of a text that is not empty.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

// cut returns the beginning of a text, as a copy.
func cut(text string, most int) string {
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most]
	}
	return strings.Clone(text)
}
