package pipelinetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// NodePackages returns the program of Node, and a folder with these npm packages, each as name@version, below
// node_modules. They are installed once into the user's cache, without running their scripts. It skips the test if
// Node or npm is missing, and in short mode.
func NodePackages(tb testing.TB, packages ...string) (node, folder string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a process of Node, of which the race detector sees nothing")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		tb.Skip("node is not installed")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		tb.Skip(err)
	}
	cache = filepath.Join(cache, "tributary-test")
	folder = filepath.Join(cache, "npm-"+strings.NewReplacer("@", "-", "/", "-").Replace(strings.Join(packages, "-")))
	if _, err := os.Stat(folder); err == nil {
		return node, folder
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		tb.Fatal(err)
	}
	// The folder gets its name when it is complete, because another test may look for it meanwhile.
	unfinished, err := os.MkdirTemp(cache, "unfinished-") //nolint:usetesting // it is renamed, which must not leave the file system
	if err != nil {
		tb.Fatal(err)
	}
	defer os.RemoveAll(unfinished)
	args := append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", unfinished}, packages...)
	if out, err := exec.CommandContext(tb.Context(), "npm", args...).CombinedOutput(); err != nil {
		tb.Skipf("npm cannot install %s: %v\n%s", packages, err, out)
	}
	if err := os.Rename(unfinished, folder); err != nil {
		if _, missing := os.Stat(folder); missing != nil { // else another test has installed them
			tb.Fatal(err)
		}
	}
	return node, folder
}
