package console

// overview answers with the view of that name.
func (r *request) overview() error { return r.page("overview", "Overview", nil) }
