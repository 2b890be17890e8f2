package export

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"tributary/envelopes"
	"tributary/pipeline/streams"
)

// FilesOf returns the names of the files of an export, at the Dir or Bucket of cfg, that have events of a source at some
// positions of its generation, see [streams.PlaceOf].
func FilesOf(ctx context.Context, cfg Config, source envelopes.Source, positions streams.Sequences) ([]string, error) {
	p := cfg.place(0)
	data, err := p.load(ctx)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return nil, fmt.Errorf("%s: %w", p, ErrNoExport)
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s: %s/%s is not a manifest", p, controlDir, p.manifest())
	}
	list, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range list {
		s, ok := spanOf(f.name, m.Format)
		if ok && strings.Contains(f.name, "/source="+pathValue(string(source))+"/") && positions.Behind(s.First-1) > positions.Behind(s.Last) {
			names = append(names, f.name)
		}
	}
	return names, nil
}
