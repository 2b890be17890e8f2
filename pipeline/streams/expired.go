package streams

// CountsExpired reports whether the generation has every record of the raw stream from some sequence on.
func (g *Generation) CountsExpired() bool { return g.Part.Source == "" && g.Part.Session == "" }
