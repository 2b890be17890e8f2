package core

import (
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/lenient"
)

// UnknownKind is the kind of thing in a record that its normalizer did not know. The set is bounded, because it is a
// label of metrics.
type UnknownKind string

// The kinds of unknown things.
const (
	UnknownRecord UnknownKind = "record_type" // type of a record, or of something that makes up a record: a notice, an item, an event
	UnknownBlock  UnknownKind = "block_type"  // type of a part of a message
	UnknownOutput UnknownKind = "tool_output" // form of a tool's output, or of a part of it
	UnknownUsage  UnknownKind = "usage_field" // member beside token counts
	UnknownField  UnknownKind = "field"       // any other member; only normalizers.NormalizeWatched reports it, by its path
)

// UnknownKinds lists the kinds that every reading of a log reports: all but [UnknownField].
var UnknownKinds = []UnknownKind{UnknownRecord, UnknownBlock, UnknownOutput, UnknownUsage}

// Names of an [Unknown] that do not come from a log.
const (
	nameNone  = "none"            // the log has no name in this place
	NameOther = lenient.NameOther // the name is no identifier, or one too many
)

const (
	maxUnknown     = 16 // names per record
	maxUnknownName = 64 // bytes of a name
)

// Unknown is something in a record that its normalizer does not know, and skips or keeps without a meaning. It
// changes no event. It is counted, so that a new version of an agent is noticed before someone misses an event.
type Unknown struct {
	Kind  UnknownKind
	Name  string // as in the log: an identifier of at most 64 bytes, nameNone or [NameOther]
	Count int    // in the record
}

// Unknown notes that the record has something of an unknown type. path is its name, beginning with the outermost type
// that contains it; the parts are joined by slashes.
func (b *Builder) Unknown(kind UnknownKind, path ...lenient.Text) {
	is := Unknown{Kind: kind, Name: unknownName(path), Count: 1}
	for range 2 {
		for i := range b.unknown {
			if b.unknown[i].Kind == kind && b.unknown[i].Name == is.Name {
				b.unknown[i].Count++
				return
			}
		}
		if len(b.unknown) < maxUnknown {
			break
		}
		is.Name = NameOther // there are few kinds
	}
	b.unknown = append(b.unknown, is)
}

// UnknownMembers notes the members that a wire struct does not know. They are the value of its jsontext.Value with
// the option embed; nil for none.
func (b *Builder) UnknownMembers(kind UnknownKind, members jsontext.Value) {
	for _, m := range lenient.ObjectMembers(members) {
		b.Unknown(kind, lenient.Text(m.Name))
	}
}

// unknownName joins the parts of a name. Only what looks like an identifier counts as one, because a log may have
// anything in its place.
func unknownName(path []lenient.Text) string {
	name := ""
	for i, part := range path {
		if i > 0 {
			name += "/"
		}
		if part == "" {
			part = nameNone
		}
		if len(name)+len(part) > maxUnknownName {
			return NameOther
		}
		name += string(part)
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '_', c == '-', c == '.', c == '/', c == ':', c == '$':
		default:
			return NameOther
		}
	}
	return name
}

// OutputForm names the form of a tool's output by its JSON kind alone.
func OutputForm(v jsontext.Value) lenient.Text { return FormOf(v.Kind()) }

// FormOf is [OutputForm] for a kind.
func FormOf(k jsontext.Kind) lenient.Text {
	switch k {
	case '"':
		return "string"
	case '0':
		return "number"
	case 't', 'f':
		return "boolean"
	case '[':
		return "array"
	case '{':
		return "object"
	case 'n':
		return "null"
	default:
		return nameNone
	}
}
