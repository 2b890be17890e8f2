package console

// sessions answers with the view of that name.
func (r *request) sessions() error { return r.page("sessions", "Sessions", nil) }
