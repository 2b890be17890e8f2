package console

// search answers with the view of that name.
func (r *request) search() error { return r.page("search", "Search", nil) }
