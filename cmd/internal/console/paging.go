package console

import (
	"net/url"
	"strconv"
)

// paging is the part of a list on a page: rows after a place. A view writes and parses its places, such as positions
// in the stream, so a list needs no memory between two pages.
type paging struct {
	Limit int
	After string // empty for the first rows
}

// paging parses limit and after of the query. fallback is the default number of rows, most the largest.
func (r *request) paging(fallback, most int) (paging, error) {
	query := r.URL.Query()
	p := paging{Limit: fallback, After: query.Get("after")}
	if len(p.After) > longestValue {
		return p, invalid("after cannot be read", "begin with the first page")
	}
	if value := query.Get("limit"); value != "" {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return p, invalid("limit is no number of rows", "write a number from 1 on")
		}
		p.Limit = min(n, most)
	}
	return p, nil
}

// pager has the links of a list for the template "pager". First is empty on the first page, Next on the last.
type pager struct{ First, Next string }

// pager returns the links of a page that ends at a place; an empty place ends the list.
func (r *request) pager(p paging, end string) pager {
	query := r.URL.Query()
	link := func(after string) string {
		other := url.Values{}
		for name, values := range query {
			if name != "after" && name != "token" {
				other[name] = values
			}
		}
		if after != "" {
			other.Set("after", after)
		}
		return "?" + other.Encode()
	}
	var links pager
	if p.After != "" {
		links.First = link("")
	}
	if end != "" {
		links.Next = link(end)
	}
	return links
}
