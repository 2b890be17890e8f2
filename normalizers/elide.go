package normalizers

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

const (
	maxBlob      = 4 << 10 // a base64 string longer than this is elided from raw
	maxFileList  = 1000    // entries of files
	maxFieldText = 4 << 10 // bytes of a field that is a name or a path
)

// carried is a raw record as an event carries it (semantics.md section 8): compact,
// strict JSON, with large base64 blobs replaced by what they were. It shares no memory
// with data. The result is nil when data is not JSON.
func carried(data jsontext.Value) jsontext.Value {
	v := slices.Clone(data)
	if v.Compact(vendorJSON) != nil {
		return nil
	}
	if !v.IsValid() {
		// Duplicate names or invalid UTF-8: what the vendor's readers would see is the
		// last of the names, and the replacement character.
		v = strict(v)
	}
	if !hasBlob(v) {
		return v
	}
	return elide(v)
}

// hasBlob reports whether v may hold a blob to elide: a run of characters of base64 that
// is longer than maxBlob covers a multiple of maxBlob, so that few bytes must be looked at.
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

func isBase64(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	default:
		return strings.IndexByte("+/-_=", c) >= 0
	}
}

// strict rewrites a JSON value without duplicate names, the last one of each is kept,
// and in valid UTF-8.
func strict(v jsontext.Value) jsontext.Value {
	return appendStrict(make([]byte, 0, len(v)), jsontext.NewDecoder(bytes.NewBuffer(v), vendorJSON))
}

// appendStrict is [strict] for the next value of dec, which is valid.
func appendStrict(dst []byte, dec *jsontext.Decoder) []byte {
	switch dec.PeekKind() {
	case '{':
		return appendMembers(dst, dec)
	case '[':
		_, _ = dec.ReadToken()
		dst = append(dst, '[')
		for first := true; dec.PeekKind() != ']'; first = false {
			if !first {
				dst = append(dst, ',')
			}
			dst = appendStrict(dst, dec)
		}
		_, _ = dec.ReadToken()
		return append(dst, ']')
	case '"':
		tok, _ := dec.ReadToken()
		return appendQuote(dst, tok.String())
	default:
		v, _ := dec.ReadValue()
		return append(dst, v...)
	}
}

// appendMembers is [appendStrict] for an object.
func appendMembers(dst []byte, dec *jsontext.Decoder) []byte {
	type written struct {
		from     int // of a member, with the comma in front of it
		repeated bool
	}
	var members []written
	last := make(map[string]int) // member of a name
	begin := len(dst)
	_, _ = dec.ReadToken()
	for repeated := false; ; {
		if dec.PeekKind() != '}' {
			tok, _ := dec.ReadToken()
			name := tok.String()
			if i, ok := last[name]; ok {
				members[i].repeated, repeated = true, true
			}
			last[name] = len(members)
			members = append(members, written{from: len(dst)})
			dst = append(appendQuote(append(dst, ','), name), ':')
			dst = appendStrict(dst, dec)
			continue
		}
		_, _ = dec.ReadToken()
		if repeated {
			end := len(dst)
			dst = dst[:begin]
			for i, m := range members {
				to := end
				if i+1 < len(members) {
					to = members[i+1].from
				}
				if !m.repeated {
					dst = append(dst, dst[m.from:to:to]...)
				}
			}
		}
		if len(members) == 0 {
			return append(dst, "{}"...)
		}
		dst[begin] = '{' // in the place of the first comma
		return append(dst, '}')
	}
}

// elide replaces the base64 blobs in a compact JSON value.
func elide(v jsontext.Value) jsontext.Value { return replaceLong(v, maxBlob, elideBlob) }

// replaceLong replaces the strings of a JSON value that are longer than limit, but for
// names. mediaType is what the objects around the string say that it is, up to an array.
// It reads the value once, however deep it is, for a part of it may be as long as all.
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

// longString is where a long string stands in a JSON value.
type longString struct {
	from, to  int
	mediaType string
	settled   bool // no object further out says what it is
}

// longStrings finds the strings that [replaceLong] replaces, in their order.
func longStrings(v jsontext.Value, limit int) []longString {
	type container struct {
		first     int // of found within
		mediaType string
	}
	var found []longString
	open := []container{{}}
	name := ""
	dec := jsontext.NewDecoder(bytes.NewBuffer(v), vendorJSON)
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

// mediaTypeNames are the names under which vendors state what a blob is.
var mediaTypeNames = []string{"media_type", "mimeType", "mime_type", "type"}

// shortText is a string of at most 128 bytes in JSON: longer than any name and any media
// type that matters. Empty for a longer one.
func shortText(v jsontext.Value) string {
	if len(v) > 128 {
		return ""
	}
	return unquote(v)
}

// elided stands for a blob that was taken out of raw.
type elided struct {
	Elided struct {
		Bytes     int     `json:"bytes"` // of the blob itself, not of its base64
		SHA256    string  `json:"sha256"`
		MediaType *string `json:"media_type"`
	} `json:"$elided"`
}

// elideBlob replaces a JSON string that is one base64 blob; any other stays.
func elideBlob(v jsontext.Value, mediaType string) jsontext.Value {
	s := unquote(v)
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
	e.Elided.MediaType = text(strings.ToValidUTF8(mediaType, "\ufffd")).ptr()
	out, err := json.Marshal(e)
	if err != nil {
		return v
	}
	return out
}

type member struct {
	name  string
	value jsontext.Value
}

// membersOf cuts a valid JSON object into its members. The values share its memory.
func membersOf(v jsontext.Value) []member {
	dec := jsontext.NewDecoder(bytes.NewBuffer(v), vendorJSON)
	var out []member
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() == '"' {
		var m member
		var tok jsontext.Token
		if tok, err = dec.ReadToken(); err != nil {
			break
		}
		m.name = tok.String()
		if m.value, err = dec.ReadValue(); err != nil {
			break
		}
		end := dec.InputOffset()
		m.value = v[end-int64(len(m.value)) : end : end]
		out = append(out, m)
	}
	return out
}

// elementsOf cuts a valid JSON array into its elements. They share its memory.
func elementsOf(v jsontext.Value) []jsontext.Value {
	dec := jsontext.NewDecoder(bytes.NewBuffer(v), vendorJSON)
	var out []jsontext.Value
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() != ']' {
		var e jsontext.Value
		if e, err = dec.ReadValue(); err != nil {
			break
		}
		end := dec.InputOffset() // the decoder's value lives only until its next call
		out = append(out, v[end-int64(len(e)):end:end])
	}
	return out
}

func unquote(v jsontext.Value) string {
	var t text
	_ = json.Unmarshal(v, &t, vendorJSON)
	return string(t)
}

// appendQuote writes a string of valid or invalid UTF-8 as JSON.
func appendQuote(dst []byte, s string) []byte {
	// The only error is invalid UTF-8, which is replaced all the same.
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

// fit brings an event under [MaxEventBytes] (semantics.md section 8): first raw goes,
// then the longest strings of its metadata, then the end of its text.
func fit(e *envelopes.AgentEventV1) {
	e.Files = boundFiles(e.Files)
	for _, p := range []**string{&e.ToolName, &e.FilePath, &e.Model, &e.AgentID} {
		if *p != nil && len(**p) > maxFieldText {
			*p = new(cut(**p, maxFieldText))
		}
	}
	if e.ToolCallID != nil && len(*e.ToolCallID) > maxFieldText {
		e.ToolCallID = new("~~" + hexHash(*e.ToolCallID)) // the same on the call and its result
	}
	if boundOf(e) <= MaxEventBytes || sizeOf(e) <= MaxEventBytes {
		return
	}
	e.Raw = nil
	size := sizeOf(e)
	for _, v := range []*jsontext.Value{&e.ToolMetadata, &e.MessageMetadata} {
		for limit := MaxEventBytes / 4; size > MaxEventBytes && len(*v) > 0 && limit > 64; limit /= 4 {
			*v = shorten(*v, limit)
			size = sizeOf(e)
		}
	}
	if size > MaxEventBytes && e.Text != nil {
		quoted := len(appendQuote(nil, *e.Text))
		e.Text = new(cutQuoted(*e.Text, max(0, MaxEventBytes-(size-quoted)-len(`"",,"text_truncated":true`))))
		e.TextTruncated = true
	}
}

// boundFiles ends a list of files where it is too long, and cuts what can be no path.
func boundFiles(files []envelopes.File) []envelopes.File {
	size := 0
	for i, f := range files {
		if len(f.Path) > maxFieldText {
			files = slices.Clone(files) // shared with other events
			files[i].Path = cut(f.Path, maxFieldText)
		}
		if size += len(files[i].Path); i == maxFileList || size > MaxEventBytes/8 {
			return files[:i]
		}
	}
	return files
}

// boundOf is a size in JSON that the event cannot exceed: a byte of a string takes at
// most six.
func boundOf(e *envelopes.AgentEventV1) int {
	n := 8*maxFieldText + 2*maxPath + len(e.SessionID) + 4*maxIdentity
	if e.Text != nil {
		n += len(*e.Text)
	}
	for _, f := range e.Files {
		n += 16 + len(f.Path)
	}
	n = 6*n + len(e.Raw) + len(e.ToolMetadata) + len(e.MessageMetadata)
	if e.Metadata != nil {
		for name, v := range e.Metadata.Extensions {
			n += 6*len(name) + len(v)
		}
	}
	return n
}

// sizeOf is the size of the event in JSON.
func sizeOf(e *envelopes.AgentEventV1) int {
	out, err := e.AppendJSON(nil)
	if err != nil {
		return 0 // not valid, which is found and said by Validate
	}
	return len(out)
}

// shorten cuts the strings of a JSON value that are longer than limit.
func shorten(v jsontext.Value, limit int) jsontext.Value {
	if len(v) <= limit {
		return v
	}
	return replaceLong(v, limit, func(s jsontext.Value, _ string) jsontext.Value {
		return appendQuote(nil, cutQuoted(unquote(s), limit-2))
	})
}

// cut ends s after at most n bytes, on a rune boundary.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// cutQuoted ends s so that it takes at most n bytes in JSON, without the quotes.
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
