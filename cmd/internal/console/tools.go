package console

// tools answers with the view of that name.
func (r *request) tools() error { return r.page("tools", "Tools", nil) }
