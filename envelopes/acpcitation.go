package envelopes

// ACPCitation is the source of a range of text in a message. The indices count characters over
// the whole message: see [ACPMessage.ResolveCitations]. They are not validated: any range is
// valid.
type ACPCitation struct {
	StartIndex  *int64  `json:"start_index,omitzero"`
	EndIndex    *int64  `json:"end_index,omitzero"`
	URL         *string `json:"url,omitzero"` // any string
	Title       *string `json:"title,omitzero"`
	Description *string `json:"description,omitzero"`
}

// ACPCitationMode is the way to show a citation.
type ACPCitationMode string

// The modes, by the rule of the SDK for the range of a citation.
const (
	ACPRange       ACPCitationMode = "range"        // for a range of text
	ACPIcon        ACPCitationMode = "icon"         // between two characters
	ACPIconAtPart  ACPCitationMode = "icon_at_part" // at its part
	ACPPartContent ACPCitationMode = "part_content" // for the content of its part
	ACPOutOfRange  ACPCitationMode = "out_of_range" // its indices are beyond the message, or in the wrong order
)

// ResolvedCitation is a citation with its place in the message.
type ResolvedCitation struct {
	Part     int // index of the part with the citation
	Citation *ACPCitation
	Mode     ACPCitationMode
	Text     string // of [ACPRange]
	At       int64  // of [ACPIcon], in code points
}

// ResolveCitations returns the place of each citation of the message, in the order of the
// parts. Indices count Unicode code points over the concatenated contents of all parts of type
// text/*, from 0, the end exclusive. A citation with one index, or with two equal ones, has a
// place and no range. A citation without indices belongs to the content of its part, or to the
// place of a part without content. The method is for consumers that show citations; acceptance
// rows 004-8 and 004-9 (see TestSeed) require it.
func (m *ACPMessage) ResolveCitations() []ResolvedCitation {
	var text []rune
	for i := range m.Parts {
		content, _ := m.Parts[i].Text()
		text = append(text, []rune(content)...)
	}
	var out []ResolvedCitation
	for i := range m.Parts {
		p := &m.Parts[i]
		if c, ok := p.Metadata.(*ACPCitation); ok && c != nil {
			r := ResolvedCitation{Part: i, Citation: c}
			r.resolve(p, text)
			out = append(out, r)
		}
	}
	return out
}

// resolve sets the mode of a citation of part p in a message with this text.
func (r *ResolvedCitation) resolve(p *ACPPart, text []rune) {
	start, end := r.Citation.StartIndex, r.Citation.EndIndex
	switch {
	case start == nil && end == nil && (p.Content != nil || p.ContentURL != nil):
		r.Mode = ACPPartContent
		return
	case start == nil && end == nil:
		r.Mode = ACPIconAtPart
		return
	case start == nil:
		start = end
	case end == nil:
		end = start
	}
	switch {
	case *start < 0 || *end < *start || *end > int64(len(text)):
		r.Mode = ACPOutOfRange
	case *start == *end:
		r.Mode, r.At = ACPIcon, *start
	default:
		r.Mode, r.Text = ACPRange, string(text[*start:*end])
	}
}
