package console

// session answers with the view of that name.
func (r *request) session() error { return r.page("session", "Session", nil) }

// event answers with the page of one event.
func (r *request) event() error { return r.page("session", "Event", nil) }
