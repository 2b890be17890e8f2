package console

// pipeline answers with the view of that name.
func (r *request) pipeline() error { return r.page("pipeline", "Pipeline", nil) }
