package main

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	repeatInterval = time.Minute // a trouble is written at most this often
	maxRepeats     = 1000        // troubles in memory
)

// repeats passes warnings and errors on to another handler, each at most once a minute: the last repetition follows
// at the end of the minute, with their count as repeated. Lines repeat each other if they differ only in varying and
// in the numbers of an error.
type repeats struct {
	slog.Handler

	scope string // the attributes and groups of the handler
	known *troubles
}

// varying are attributes that may differ between repetitions.
var varying = []string{"epoch", "partitions", "tries"}

var digits = regexp.MustCompile(`[0-9]+`)

// troubles are the warnings and errors of the last minute.
type troubles struct {
	mu   sync.Mutex
	seen map[string]*trouble
}

// trouble is a line and its repetitions.
type trouble struct {
	until time.Time // the end of its minute
	count int       // of repetitions
	last  func(count int)
}

func newRepeats(h slog.Handler) *repeats {
	return &repeats{Handler: h, known: &troubles{seen: make(map[string]*trouble)}}
}

// WithAttrs implements [slog.Handler].
func (r *repeats) WithAttrs(attrs []slog.Attr) slog.Handler {
	var scope strings.Builder
	scope.WriteString(r.scope)
	for _, a := range attrs {
		scope.WriteString(keyOf(a))
	}
	return &repeats{r.Handler.WithAttrs(attrs), scope.String(), r.known}
}

// WithGroup implements [slog.Handler].
func (r *repeats) WithGroup(name string) slog.Handler {
	return &repeats{r.Handler.WithGroup(name), r.scope + name + "{", r.known}
}

// Handle implements [slog.Handler].
func (r *repeats) Handle(ctx context.Context, record slog.Record) error {
	if record.Level < slog.LevelWarn {
		return r.Handler.Handle(ctx, record)
	}
	var key strings.Builder
	key.WriteString(record.Level.String() + record.Message + r.scope)
	for a := range record.Attrs {
		key.WriteString(keyOf(a))
	}
	record = record.Clone()
	if r.known.repeated(key.String(), func(count int) {
		record.AddAttrs(slog.Int("repeated", count))
		_ = r.Handler.Handle(context.WithoutCancel(ctx), record) // slog.Logger ignores the error, too
	}) {
		return nil
	}
	return r.Handler.Handle(ctx, record)
}

// keyOf returns the part of an attribute that distinguishes troubles.
func keyOf(a slog.Attr) string {
	value := a.Value.String()
	switch {
	case slices.Contains(varying, a.Key):
		return ""
	case a.Key == "error", a.Key == "cause":
		value = digits.ReplaceAllString(value, "0")
	}
	return "\x00" + a.Key + "=" + value
}

// repeated reports whether a line with this key was written within the last minute. If so, it counts the repetition,
// and calls last at the end of the minute unless a later repetition replaces it.
func (t *troubles) repeated(key string, last func(count int)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	is := t.seen[key]
	if is == nil || !now.Before(is.until) && is.count == 0 {
		t.forget(now)
		if len(t.seen) < maxRepeats {
			t.seen[key] = &trouble{until: now.Add(repeatInterval)}
		}
		return false
	}
	is.count, is.last = is.count+1, last
	if is.count == 1 {
		time.AfterFunc(is.until.Sub(now), func() { t.write(is) })
	}
	return true
}

// write writes the last repetition and begins another minute.
func (t *troubles) write(is *trouble) {
	t.mu.Lock()
	count, last := is.count, is.last
	is.until, is.count, is.last = time.Now().Add(repeatInterval), 0, nil
	t.mu.Unlock()
	last(count)
}

// forget drops troubles that were not repeated within their minute.
func (t *troubles) forget(now time.Time) {
	for key, is := range t.seen {
		if is.count == 0 && !now.Before(is.until) {
			delete(t.seen, key)
		}
	}
}
