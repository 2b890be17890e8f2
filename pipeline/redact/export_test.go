package redact

// Most is the work that a record of a size may take.
func Most(size int) int { return baseWork + workPerByte*size }

// Work returns the work that a search of a record takes, and its error.
func (r *Redactor) Work(data []byte) (int, error) {
	s := r.scans.Get().(*scan) //nolint:forcetypeassert // of New
	defer r.scans.Put(s)
	_, err := s.record(nil, data, isJSON(data))
	return s.used, err
}

// Keywords returns the keywords of each rule.
func (r *Redactor) Keywords() map[string][]string {
	list := make(map[string][]string)
	for _, u := range r.rules.rules {
		list[u.id] = u.keywords
	}
	return list
}
