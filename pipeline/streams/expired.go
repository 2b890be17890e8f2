package streams

// CountsExpired reports whether every record of the raw stream, from a sequence on, is one of the generation.
func (g *Generation) CountsExpired() bool { return g.Part.Source == "" && g.Part.Session == "" }
