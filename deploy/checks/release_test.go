package checks

import (
	"os"
	"strings"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
	"github.com/stretchr/testify/require"
)

// TestReleaseConfiguration loads the file with goreleaser's own decoder, which refuses what it
// does not know.
func TestReleaseConfiguration(t *testing.T) {
	t.Parallel()
	project, err := config.LoadReader(strings.NewReader(read(t, ".goreleaser.yaml")))
	require.NoError(t, err)
	require.Len(t, project.Builds, 1)
	require.Equal(t, []string{"linux", "darwin", "windows"}, project.Builds[0].Goos)
	require.Contains(t, project.Builds[0].Env, "CGO_ENABLED=0")
	require.Len(t, project.SBOMs, 1)
	require.Equal(t, "checksums.txt", project.Checksum.NameTemplate)
	require.Len(t, project.DockersV2, 1)
	require.FileExists(t, root+"/"+project.DockersV2[0].Dockerfile)
	require.Len(t, project.Signs, 1)
	require.Equal(t, "checksum", project.Signs[0].Artifacts)
	require.Len(t, project.NFPMs, 1)
	require.Equal(t, []string{"deb", "rpm"}, project.NFPMs[0].Formats)
	for _, c := range project.NFPMs[0].Contents {
		if c.Source != "" {
			_, err := os.Stat(root + "/" + c.Source)
			require.NoError(t, err)
		}
	}
	_, err = config.LoadReader(strings.NewReader("version: 2\nno_such_field: true\n"))
	require.Error(t, err)
}
