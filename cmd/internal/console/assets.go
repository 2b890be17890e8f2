package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var staticFiles embed.FS

// assetsPath begins the addresses of assets.
const assetsPath = "/static/"

// assets are the style sheet, the scripts and the images. Their addresses have a digest of them all: browsers keep
// them for ever, and scripts import each other by relative names.
type assets struct {
	files  map[string][]byte
	digest string
}

// contentTypes are the types of files by their extensions, independent of the system.
var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	".md": "text/plain; charset=utf-8", "": "text/plain; charset=utf-8", // licences
}

func loadAssets() (*assets, error) {
	a := &assets{files: map[string][]byte{}}
	sum := sha256.New()
	err := fs.WalkDir(staticFiles, "static", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := staticFiles.ReadFile(file)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(file, "static/")
		a.files[name] = data
		sum.Write([]byte(name + "\x00"))
		sum.Write(data)
		return nil
	})
	a.digest = hex.EncodeToString(sum.Sum(nil)[:8])
	return a, err
}

// address returns the address of an asset. An unknown name is a mistake in a template; a test finds it.
func (a *assets) address(name string) string { return assetsPath + a.digest + "/" + name }

// serve answers with an asset.
func (a *assets) serve(w http.ResponseWriter, r *http.Request) error {
	data, ok := a.files[r.PathValue("name")]
	if !ok || r.PathValue("digest") != a.digest {
		return notFound("there is no such file", "load the page again")
	}
	contentType, ok := contentTypes[path.Ext(r.PathValue("name"))]
	if !ok {
		contentType = "application/octet-stream"
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(data) // fails if the browser has gone away
	return nil
}
