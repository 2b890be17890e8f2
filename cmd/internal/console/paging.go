package console

import (
	"net/url"
	"strconv"
)

// paging is the part of a list that a page shows: so many rows behind a place. The place is a text that the view makes and
// reads, such as a position in the stream; with it a list needs no memory of its own between two pages.
type paging struct {
	Limit int
	After string // empty for the first rows
}

// paging reads the paging of the query: limit and after. There are fallback rows in a page that names no limit, and never
// more than most.
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

// pager has the links of a list, for the template "pager". First is empty on the first page, Next on the last.
type pager struct{ First, Next string }

// pager returns the links of a page that ends at a place; empty where nothing is behind it.
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
