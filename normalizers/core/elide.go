package core

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/envelopes/jsonscan"
	"tributary/normalizers/lenient"
)

// Limits of parts of an event.
const (
	maxBlob      = 4 << 10 // longer base64 strings are elided from raw, and are not kept as content.data
	maxFileList  = 1000    // entries of files
	MaxFieldText = 4 << 10 // bytes of a field that is a name or a path
)

// EventRaw returns a raw record as an event carries it (README.md, Size): compact, strict JSON, with large base64
// blobs replaced by a description. It shares no memory with data. It returns nil if data is not JSON.
func EventRaw(data jsontext.Value) jsontext.Value {
	raw, _ := eventRaw(slices.Clone(data), jsonscan.Check(data, MaxDepth))
	return raw
}

// eventRaw is [EventRaw] for a value of a known form, whose memory the result may share. It also returns whether the
// result is known to be strict, compact and no deeper than the value.
func eventRaw(data jsontext.Value, form jsonscan.Form) (raw jsontext.Value, checked bool) {
	raw = data
	switch {
	case form.Compact:
	case form.Strict:
		raw = jsonscan.AppendCompact(make([]byte, 0, len(data)), data)
	default:
		if raw = strictRaw(data); raw == nil {
			return nil, false
		}
	}
	if !hasBlob(raw) {
		return raw, true
	}
	return elide(raw), false
}

// strictRaw returns a strict and compact copy of a value; nil if the value is not JSON.
func strictRaw(data jsontext.Value) jsontext.Value {
	v := slices.Clone(data)
	if v.Compact(jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false)) == nil {
		return v
	}
	// Duplicate names or invalid UTF-8: a vendor's reader would see the last of the names, and the replacement
	// character.
	v = slices.Clone(data)
	if v.Compact(lenient.Options) != nil {
		return nil
	}
	return lenient.Strict(v)
}

// hasBlob reports whether v may have a blob to elide. A run of base64 characters longer than maxBlob covers a
// multiple of maxBlob, so few bytes must be looked at.
func hasBlob(v jsontext.Value) bool {
	for i := 0; i < len(v); i += maxBlob {
		from, to := i, i
		for from > 0 && isBase64(v[from-1]) {
			from--
		}
		for to < len(v) && isBase64(v[to]) {
			to++
		}
		if to-from > maxBlob {
			return true
		}
	}
	return false
}

func isBase64(c byte) bool { return base64Bytes[c] }

// base64Bytes are the base64 characters of both alphabets.
var base64Bytes = func() (set [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=") {
		set[c] = true
	}
	return set
}()

// elide replaces the base64 blobs in a compact JSON value.
func elide(v jsontext.Value) jsontext.Value { return replaceLong(v, maxBlob, elideBlob) }

// replaceLong replaces the strings of a JSON value that are longer than limit, except names. mediaType is stated by
// the objects around the string, up to an array. It reads the value once, however deep it is, because a part may be
// as long as the whole.
func replaceLong(v jsontext.Value, limit int, by func(s jsontext.Value, mediaType string) jsontext.Value) jsontext.Value {
	found := longStrings(v, limit)
	if len(found) == 0 {
		return v
	}
	var out []byte
	at := 0
	for _, s := range found {
		out = append(append(out, v[at:s.from]...), by(v[s.from:s.to], s.mediaType)...)
		at = s.to
	}
	return append(out, v[at:]...)
}

// longString is the position of a long string in a JSON value.
type longString struct {
	from, to  int
	mediaType string
	settled   bool // outer objects no longer decide its media type
}

// longStrings finds the strings that [replaceLong] replaces, in order.
func longStrings(v jsontext.Value, limit int) []longString {
	type container struct {
		first     int // index in found of its first string
		mediaType string
	}
	var found []longString
	open := []container{{}}
	name := ""
	dec := jsontext.NewDecoder(bytes.NewBuffer(v), lenient.Options)
	for {
		kind := dec.PeekKind()
		switch kind {
		case '{', '[':
			open = append(open, container{first: len(found)})
		case '}', ']':
			c := open[len(open)-1]
			open = open[:len(open)-1]
			for i := c.first; i < len(found); i++ {
				if s := &found[i]; !s.settled && (kind == ']' || c.mediaType != "") {
					s.mediaType, s.settled = c.mediaType, true
				}
			}
		case '"':
			s, err := dec.ReadValue()
			if err != nil {
				return found
			}
			to := int(dec.InputOffset())
			switch in, n := dec.StackIndex(dec.StackDepth()); {
			case in == '{' && n%2 == 1:
				name = shortText(s)
			case in == '{' && slices.Contains(mediaTypeNames, name) && strings.Contains(shortText(s), "/"):
				open[len(open)-1].mediaType = shortText(s)
				fallthrough
			default:
				if len(s) > limit {
					found = append(found, longString{from: to - len(s), to: to})
				}
			}
			continue
		default: // neither long nor open
		}
		if _, err := dec.ReadToken(); err != nil {
			return found
		}
	}
}

// mediaTypeNames are the names under which vendors state the type of a blob.
var mediaTypeNames = []string{"media_type", "mimeType", "mime_type", "type"}

// shortText returns a string of at most 128 bytes in JSON, longer than any relevant name or media type; empty for a
// longer one.
func shortText(v jsontext.Value) string {
	if len(v) > 128 {
		return ""
	}
	return lenient.Unquote(v)
}

// elided replaces a blob in raw.
type elided struct {
	Elided struct {
		Bytes     int     `json:"bytes"` // of the blob itself, not of its base64
		SHA256    string  `json:"sha256"`
		MediaType *string `json:"media_type"`
	} `json:"$elided"`
}

// elideBlob replaces a JSON string that is a base64 blob and returns any other unchanged.
func elideBlob(v jsontext.Value, mediaType string) jsontext.Value {
	s := lenient.Unquote(v)
	if head, data, ok := strings.Cut(s, ";base64,"); ok && len(head) < 128 && strings.HasPrefix(head, "data:") {
		s, mediaType = data, strings.TrimPrefix(head, "data:")
	}
	if len(s) <= maxBlob {
		return v
	}
	var blob []byte
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if b, err := enc.DecodeString(s); err == nil {
			blob = b
			break
		}
	}
	if blob == nil {
		return v
	}
	var e elided
	sum := sha256.Sum256(blob)
	e.Elided.Bytes = len(blob)
	e.Elided.SHA256 = hex.EncodeToString(sum[:])
	e.Elided.MediaType = lenient.Text(strings.ToValidUTF8(mediaType, "\ufffd")).Ptr()
	out, err := json.Marshal(e)
	if err != nil {
		return v
	}
	return out
}

// fit reduces an event to [MaxEventBytes] (README.md, Size): it drops raw first, then parts of the output, then the
// longest strings of its input and metadata, then the end of its text.
func fit(e *envelopes.AgentEventV1) {
	e.Files = boundFiles(e.Files)
	e.Content = boundContent(e.Content)
	for _, p := range []**string{&e.ToolName, &e.FilePath, &e.Model, &e.AgentID} {
		if *p != nil && len(**p) > MaxFieldText {
			*p = new(Cut(**p, MaxFieldText))
		}
	}
	if e.ToolCallID != nil && len(*e.ToolCallID) > MaxFieldText {
		e.ToolCallID = new("~~" + HexHash(*e.ToolCallID)) // the same for the call and its result
	}
	if boundOf(e) <= MaxEventBytes || sizeOf(e) <= MaxEventBytes {
		return
	}
	e.Raw = nil
	size := sizeOf(e)
	if size > MaxEventBytes && e.ToolOutput != nil {
		e.ToolOutput = nil
		size = sizeOf(e)
	}
	for _, v := range []*jsontext.Value{&e.ToolInput, &e.ToolMetadata, &e.MessageMetadata} {
		for limit := MaxEventBytes / 4; size > MaxEventBytes && len(*v) > 0 && limit > 64; limit /= 4 {
			*v = Shorten(*v, limit)
			size = sizeOf(e)
		}
	}
	if size > MaxEventBytes && e.Text != nil {
		quoted := lenient.QuotedLen(*e.Text)
		e.Text = new(cutQuoted(*e.Text, max(0, MaxEventBytes-(size-quoted)-len(`"",,"text_truncated":true`))))
		e.TextTruncated = true
	}
}

// boundFiles cuts a list of files that is too long, and values that cannot be paths.
func boundFiles(files []envelopes.File) []envelopes.File {
	size := 0
	for i, f := range files {
		if len(f.Path) > MaxFieldText {
			files = slices.Clone(files) // shared with other events
			files[i].Path = Cut(f.Path, MaxFieldText)
		}
		if size += len(files[i].Path); i == maxFileList || size > MaxEventBytes/8 {
			return files[:i]
		}
	}
	return files
}

// boundContent drops parts of a content that are too long: data, which is in the raw record, and a URL, which would
// be another one if cut.
func boundContent(c *envelopes.FileContent) *envelopes.FileContent {
	if c == nil {
		return nil
	}
	bounded := envelopes.FileContent{Type: Cut(c.Type, MaxFieldText)}
	if c.Data != nil && len(*c.Data) <= maxBlob {
		bounded.Data = c.Data
	}
	if c.URL != nil && len(*c.URL) <= MaxFieldText {
		bounded.URL = c.URL
	}
	return &bounded
}

// boundOf returns an upper bound of the event's size in JSON: a byte of a string takes at most six.
func boundOf(e *envelopes.AgentEventV1) int {
	n := 8*MaxFieldText + 2*MaxPath + len(e.SessionID) + 4*MaxIdentity
	if e.Text != nil {
		n += len(*e.Text)
	}
	for _, f := range e.Files {
		n += 16 + len(f.Path)
	}
	if o := e.ToolOutput; o != nil {
		for _, s := range []*string{o.Stdout, o.Stderr, o.Diff} {
			if s != nil {
				n += len(*s)
			}
		}
	}
	if e.Content != nil {
		n += 3 * MaxFieldText
	}
	n += edgeSize(e.Edge) + vcsSize(e.VCS)
	n = 6*n + len(e.Raw) + len(e.ToolMetadata) + len(e.ToolInput) + len(e.MessageMetadata)
	if e.Metadata != nil {
		for name, v := range e.Metadata.Extensions {
			n += 6*len(name) + len(v)
		}
	}
	return n
}

// sizeOf returns the size of the event in JSON.
func sizeOf(e *envelopes.AgentEventV1) int {
	buffer := measured.Get().(*[]byte)
	out, err := e.AppendJSON((*buffer)[:0])
	if err != nil {
		return 0 // invalid, as Validate will report
	}
	if *buffer = out; cap(out) <= 2*MaxEventBytes {
		measured.Put(buffer)
	}
	return len(out)
}

// measured pools buffers in which large events are measured.
var measured = sync.Pool{New: func() any { return new([]byte) }}

// Shorten cuts the strings of a JSON value that are longer than limit.
func Shorten(v jsontext.Value, limit int) jsontext.Value {
	if len(v) <= limit {
		return v
	}
	return replaceLong(v, limit, func(s jsontext.Value, _ string) jsontext.Value {
		return lenient.AppendQuote(nil, cutQuoted(lenient.Unquote(s), limit-2))
	})
}

// Cut returns at most n bytes of s, cut at a rune boundary.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// cutQuoted cuts s so that it takes at most n bytes in JSON, without the quotes.
func cutQuoted(s string, n int) string {
	for i, r := range s {
		switch {
		case r < ' ':
			n -= len(`\u0000`)
		case r == '"' || r == '\\':
			n -= 2
		default:
			n -= utf8.RuneLen(r)
		}
		if n < 0 {
			return s[:i]
		}
	}
	return s
}
