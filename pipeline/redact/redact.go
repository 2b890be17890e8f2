// Package redact replaces secrets, or all content, in the records of coding agents.
//
// A [Redactor] replaces parts of strings in a record by placeholders and changes nothing else, neither structure nor
// numbers nor the bytes around a placeholder. The result normalizes to the same events except for their texts. It is
// a pure function of the record, the mode, the rules and the key. README.md describes what is found.
package redact

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"tributary/normalizers/core"
)

// Mode is what to replace.
type Mode string

// The modes.
const (
	Full         Mode = "full"          // nothing
	Secrets      Mode = "redacted"      // secrets that a rule finds
	MetadataOnly Mode = "metadata_only" // all content; what remains is structure, ids, types, times, models and numbers
)

// Modes lists the modes in documentation order.
var Modes = []Mode{Full, Secrets, MetadataOnly}

// Hit is a replaced part of a record.
type Hit struct {
	Rule        string // rule id; [RuleContent] in mode [MetadataOnly]
	Offset      int    // in the original record
	Placeholder string
}

// RuleContent is the rule for content that is replaced unconditionally.
const RuleContent = "content"

// RuleUnsearched is the rule for content replaced because the record takes too much work to search.
const RuleUnsearched = "unsearched"

// Config configures a [Redactor].
type Config struct {
	Mode  Mode
	Key   Key    // key of the placeholders; unused in mode [Full]
	Rules string // path of a file of rules that extend the built-in ones; empty for none
}

// Redactor redacts records. It is safe for concurrent use.
type Redactor struct {
	mode  Mode
	key   Key
	rules ruleSet
	scans sync.Pool // of *scan
}

// New returns a redactor. Its error names an unknown mode, a missing key, or the place of a mistake in the file of
// rules.
func New(c Config) (*Redactor, error) {
	if !slices.Contains(Modes, c.Mode) {
		return nil, fmt.Errorf("redact=%q: write one of full, redacted, metadata_only", string(c.Mode))
	}
	r := &Redactor{mode: c.Mode, key: c.Key}
	var err error
	if r.rules, err = readRules(c.Rules); err != nil {
		return nil, err
	}
	if c.Mode == Full {
		return r, nil
	}
	if len(c.Key) == 0 {
		return nil, errNoKey
	}
	m := newMatcher(r.rules)
	r.scans.New = func() any { return &scan{matcher: m} }
	return r, nil
}

// Mode returns the mode.
func (r *Redactor) Mode() Mode {
	if r == nil {
		return Full
	}
	return r.mode
}

// Fingerprint identifies the key without revealing it.
func (r *Redactor) Fingerprint() string { return r.key.fingerprint() }

// BuiltIn is the fingerprint of the built-in rules.
const BuiltIn = "built-in"

// RulesFingerprint returns the first 12 hex digits of the SHA-256 of the file of rules; [BuiltIn] without a file.
func (r *Redactor) RulesFingerprint() string {
	if r.rules.added == "" {
		return BuiltIn
	}
	sum := sha256.Sum256([]byte(r.rules.added))
	return hex.EncodeToString(sum[:6])
}

// Rules returns the ids of the rules.
func (r *Redactor) Rules() []string {
	ids := make([]string, 0, len(r.rules.rules)+1)
	for _, u := range r.rules.rules {
		ids = append(ids, u.id)
	}
	return append(ids, RuleContent)
}

// Record redacts the bytes of a record: JSON, or plain text. Without hits it returns data itself. Otherwise the
// result is new and data unchanged. A nil Redactor redacts nothing.
//
// If the record takes too much work to search, all of its content is replaced, and the first hit has the rule
// [RuleUnsearched].
func (r *Redactor) Record(data []byte) ([]byte, []Hit) {
	out, hits, err := r.Search(context.Background(), data)
	if err != nil {
		return r.unsearched(data)
	}
	return out, hits
}

// Search is [Redactor.Record] for callers that must not send an unsearched record: it returns [ErrUnsearched] if the
// record takes too much work, and the error of ctx soon after that ends. There is no result then.
func (r *Redactor) Search(ctx context.Context, data []byte) ([]byte, []Hit, error) {
	var out []byte
	var hits []Hit
	var err error
	switch mode := r.Mode(); {
	case mode != Full && core.TooManyValues(data):
		err = ErrUnsearched // no reader accepts it, and it would take many times its size in memory
	case mode == Secrets:
		out, hits, err = r.secrets(ctx.Done(), data, isJSON(data))
	case mode == MetadataOnly:
		out, hits, err = r.content(ctx.Done(), data, RuleContent)
	default:
		return data, nil, nil
	}
	if errors.Is(err, errInterrupted) {
		err = context.Cause(ctx)
	}
	return out, hits, err
}

// unsearched replaces the content of a record that was not searched. If the rest still takes too much work, the
// result is only a placeholder.
func (r *Redactor) unsearched(data []byte) ([]byte, []Hit) {
	marker := Hit{Rule: RuleUnsearched, Placeholder: r.placeholder(RuleUnsearched, string(data))}
	if core.TooManyValues(data) {
		return []byte(marker.Placeholder), []Hit{marker}
	}
	out, _, err := r.content(nil, data, RuleUnsearched)
	if err != nil {
		out = []byte(marker.Placeholder)
	}
	return out, []Hit{marker}
}

// Placeholder returns the placeholder for a text that is replaced as a whole.
func (r *Redactor) Placeholder(s string) string { return r.placeholder(RuleContent, s) }

// secrets replaces the secrets in data.
func (r *Redactor) secrets(done <-chan struct{}, data []byte, json bool) ([]byte, []Hit, error) {
	s := r.scans.Get().(*scan) //nolint:forcetypeassert // of New
	defer func() { s.free(); r.scans.Put(s) }()
	found, err := s.record(done, data, json)
	if err != nil {
		return nil, nil, err
	}
	if len(found) == 0 {
		return data, nil, nil
	}
	out, hits := r.replace(data, found)
	return out, hits, nil
}

// replace replaces findings, which must be in order and must not overlap. It keeps the separators of list elements.
func (r *Redactor) replace(data []byte, found []finding) ([]byte, []Hit) {
	out := make([]byte, 0, len(data)+64*len(found))
	hits := make([]Hit, 0, len(found))
	at := 0
	for _, f := range found {
		placeholder := r.placeholder(f.rule, string(f.secret))
		hits = append(hits, Hit{f.rule, f.start, placeholder})
		out = append(out, data[at:f.start]...)
		at = f.start
		for _, sep := range separator.FindAllIndex(data[f.start:f.end], -1) {
			out = append(out, placeholder...)
			out = append(out, data[f.start+sep[0]:f.start+sep[1]]...)
			at = f.start + sep[1]
		}
		if at < f.end {
			out = append(out, placeholder...)
		}
		at = f.end
	}
	return append(out, data[at:]...), hits
}

// separator matches what is between two strings of a list, in a record or in JSON within a string.
var separator = regexp.MustCompile(`\\*"\s*,\s*\\*"`)

// dropped are the characters that placeholders ignore: white space, and characters that escape or separate strings.
var dropped = [256]bool{' ': true, '\t': true, '\r': true, '\n': true, '\\': true, '"': true, '\'': true, ',': true}

// placeholder returns the replacement of a secret. Equal secrets have equal placeholders, however they are escaped or
// wrapped.
func (r *Redactor) placeholder(rule, secret string) string {
	plain := []byte(secret)
	for range maxDepth {
		if bytes.IndexByte(plain, '\\') < 0 {
			break
		}
		plain = unescape(plain[:0], plain) // it never gets longer
	}
	if !utf8.Valid(plain) {
		plain = bytes.ToValidUTF8(plain, []byte("\uFFFD"))
	}
	compact := plain[:0]
	for _, c := range plain {
		if !dropped[c] {
			compact = append(compact, c)
		}
	}
	return "[redacted:" + rule + ":" + r.key.digest(compact) + "]"
}

// merge sorts findings and joins overlapping ones. A union gets the first rule that is not generic.
func merge(found []finding) []finding {
	slices.SortStableFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), strings.Compare(a.rule, b.rule))
	})
	out := found[:0]
	for _, f := range found {
		if len(out) == 0 || f.start >= out[len(out)-1].end {
			out = append(out, f)
			continue
		}
		last := &out[len(out)-1]
		if last.generic && !f.generic {
			last.rule, last.secret, last.generic = f.rule, f.secret, false
		}
		last.end = max(last.end, f.end)
	}
	return out
}
