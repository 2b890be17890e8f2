package acp

import (
	"strings"

	"tributary/envelopes"
)

// contentOf returns the content of an artifact whose event has the given text; nil if the text is all of it. Bytes
// that are not text become data, unless the part was buffered, when only their digest is known.
func contentOf(p *envelopes.ACPPart, text *string) *envelopes.FileContent {
	encoded := p.ContentEncoding == envelopes.ACPBase64 && p.Content != nil &&
		(text == nil || *text != "" && *text == *p.Content)
	if text != nil && !encoded && p.ContentType == envelopes.ACPTextPlain {
		return nil
	}
	c := &envelopes.FileContent{Type: p.ContentType, URL: p.ContentURL}
	if encoded && !strings.HasPrefix(*p.Content, digest) {
		c.Data = p.Content
	}
	return c
}
