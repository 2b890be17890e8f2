package genai

import (
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"tributary/envelopes"
)

// labelPrefix begins the attributes of a machine's labels, for which there are no semantic conventions.
const labelPrefix = "tributary.label."

// appendPlace appends attributes of the machine and of version control.
func appendPlace(list []attribute.KeyValue, edge *envelopes.Edge, vcs *envelopes.VCS) []attribute.KeyValue {
	add := func(key attribute.Key, value string) {
		if value != "" {
			list = append(list, key.String(value))
		}
	}
	if edge != nil {
		add(hostName, edge.Host)
		add(userName, edge.User)
		for _, name := range slices.Sorted(maps.Keys(edge.Labels)) {
			add(attribute.Key(labelPrefix+name), edge.Labels[name])
		}
	}
	if vcs == nil {
		return list
	}
	host, path, _ := strings.Cut(vcs.Repository, "/")
	if strings.Contains(host, ".") {
		add(repositoryURL, "https://"+vcs.Repository)
	} else {
		path = vcs.Repository // the vendor states no host
	}
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		add(repositoryOwner, path[:i])
	}
	add(repositoryName, path[strings.LastIndexByte(path, '/')+1:])
	add(headName, vcs.Branch)
	add(headRevision, vcs.Commit)
	add(changeID, vcs.PullRequest[strings.LastIndexByte(vcs.PullRequest, '/')+1:])
	return list
}
