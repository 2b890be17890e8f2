// Package release makes a release with goreleaser, from the configuration in the root of the repository, and looks into
// what it has made.
package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/blakesmith/ar"
	"github.com/cavaliergopher/cpio"
	"github.com/stretchr/testify/require"
)

var (
	long     = flag.Bool("long", false, "make a release, which takes minutes")
	systems  = flag.String("systems", "linux darwin windows", "fewer of them take less time")
	machines = flag.String("machines", "amd64 arm64", "fewer of them take less time")
)

// root is the folder of the repository.
const root = "../../.."

// packed are the files of an archive or package, by their names.
type packed map[string]packedFile

type packedFile struct {
	mode fs.FileMode
	data []byte
}

// TestReleaseOfATag makes the release of a tag in a clone, with a key of its own, but without the image and the SBOMs.
// The archives and packages are whole, their program prints the tag, and the checksums are signed.
func TestReleaseOfATag(t *testing.T) {
	t.Parallel()
	if !*long {
		t.Skip("takes minutes: run it with -long")
	}
	dir := t.TempDir()
	clone, home := filepath.Join(dir, "tributary"), filepath.Join(dir, "gpg")
	run := func(dir, name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GNUPGHOME="+home, "IMAGE=tributary")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %s\n%s", name, args, out)
	}
	run("../tools/goreleaser", "go", "build", "-o", filepath.Join(dir, "goreleaser"), "github.com/goreleaser/goreleaser/v2")
	run(".", "git", "clone", "--quiet", root, clone)
	const version = "1.99.2" // no real tag: go build stamps the tags of versions 0 and 1 alone
	run(clone, "git", "tag", "v"+version)
	skip := "docker,sbom,publish,announce"
	signed := makeKey(t, home, run)
	if !signed {
		t.Log("without gpg the checksums are not signed")
		skip += ",sign"
	}
	run(clone, filepath.Join(dir, "goreleaser"), "release", "--clean", "--skip="+skip, "--config="+configuration(t, dir))

	dist := filepath.Join(clone, "dist")
	if signed {
		run(dist, "gpg", "--batch", "--verify", "checksums.txt.sig", "checksums.txt")
	}
	made := map[string]bool{}
	pages := files(t, "deploy/systemd", "deploy/nats", "README.md", "SECURITY.md", "CHANGELOG.md")
	for _, system := range strings.Fields(*systems) {
		for _, machine := range strings.Fields(*machines) {
			name := fmt.Sprintf("tributary_%s_%s_%s", version, system, machine)
			file := filepath.Join(dist, name)
			if system == "windows" {
				made[name+".zip"] = true
				requireArchive(t, zipped(t, file+".zip"), "/tributary.exe", pages)
				continue
			}
			made[name+".tar.gz"] = true
			archive := tarred(t, open(t, file+".tar.gz"))
			requireArchive(t, archive, "/tributary", pages)
			if system != "linux" {
				continue
			}
			requireVersion(t, machine, archive["/tributary"], version)
			made[name+".deb"], made[name+".rpm"] = true, true
			for _, p := range []packed{debian(t, file+".deb"), redHat(t, file+".rpm")} {
				require.Equal(t, archive["/tributary"].data, p["/usr/bin/tributary"].data, name)
				requirePackage(t, p, pages)
			}
		}
	}
	requireChecksums(t, dist, made)
}

// makeKey makes a key that signs, in the folder home, and returns false where there is no gpg.
func makeKey(t *testing.T, home string, run func(dir, name string, args ...string)) bool {
	t.Helper()
	if _, err := exec.LookPath("gpg"); err != nil {
		return false
	}
	require.NoError(t, os.Mkdir(home, 0o700))
	t.Cleanup(func() {
		if out, err := exec.Command("gpgconf", "--homedir", home, "--kill", "all").CombinedOutput(); err != nil {
			t.Errorf("stop the agent of gpg: %v\n%s", err, out)
		}
	})
	run(home, "gpg", "--batch", "--passphrase", "", "--quick-generate-key", "release@tributary.example", "ed25519", "sign", "1d")
	return true
}

// configuration writes the configuration of the repository, with the systems and machines of the flags.
func configuration(t *testing.T, dir string) string {
	t.Helper()
	text := read(t, ".goreleaser.yaml")
	for key, list := range map[string]string{"goos": *systems, "goarch": *machines} {
		line := regexp.MustCompile(`(?m)^    ` + key + `: \[.*\]$`)
		require.Len(t, line.FindAllString(text, -1), 1)
		text = line.ReplaceAllString(text, "    "+key+": ["+strings.Join(strings.Fields(list), ", ")+"]")
	}
	file := filepath.Join(dir, "goreleaser.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// requireArchive checks that an archive has the program and the pages.
func requireArchive(t *testing.T, archive packed, program string, pages map[string]string) {
	t.Helper()
	require.NotEmpty(t, archive[program].data)
	requireFiles(t, archive, "/", pages)
	requireFiles(t, archive, "/", files(t, "deploy/README.md", "deploy/replay.md"))
}

// requirePackage checks that a package has the program, its units and the pages.
func requirePackage(t *testing.T, p packed, pages map[string]string) {
	t.Helper()
	require.Equal(t, fs.FileMode(0o755), p["/usr/bin/tributary"].mode.Perm())
	require.Equal(t, fs.ModeDir|0o700, p["/etc/tributary"].mode)
	requireFiles(t, p, "/usr/share/doc/tributary/", pages)
	for _, unit := range []string{"system/tributary-run.service", "system/tributary-ship@.service", "user/tributary-ship.service"} {
		require.Equal(t, read(t, "deploy/systemd/"+path.Base(unit)), string(p["/usr/lib/systemd/"+unit].data), unit)
	}
}

// requireVersion runs the program of this machine: it prints its tag.
func requireVersion(t *testing.T, machine string, program packedFile, version string) {
	t.Helper()
	if runtime.GOOS != "linux" || machine != runtime.GOARCH {
		return
	}
	file := filepath.Join(t.TempDir(), "tributary")
	require.NoError(t, os.WriteFile(file, program.data, 0o755))
	out, err := exec.CommandContext(t.Context(), file, "version").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "tributary v"+version+", commit ")
	require.NotContains(t, string(out), "and changes")
}

// requireChecksums checks that the list of checksums has the files that were made, and their checksums.
func requireChecksums(t *testing.T, dist string, made map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dist, "checksums.txt"))
	require.NoError(t, err)
	listed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := os.ReadFile(filepath.Join(dist, name))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%x", sha256.Sum256(data)), sum, name)
		listed[name] = true
	}
	require.Equal(t, made, listed)
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// files reads files and the files of folders of the repository.
func files(t *testing.T, names ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range names {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, name), func(file string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				relative, _ := filepath.Rel(root, file) // both are relative to this folder
				all[relative] = read(t, relative)
			}
			return err
		}))
	}
	return all
}

// requireFiles checks that files are below a folder of a package.
func requireFiles(t *testing.T, p packed, folder string, want map[string]string) {
	t.Helper()
	for name, text := range want {
		f, is := p[folder+name]
		require.True(t, is, "%s%s is missing", folder, name)
		require.Equal(t, text, string(f.data), name)
		require.NotZero(t, f.mode.Perm()&0o004, name)
	}
}

// open returns the content of a file.
func open(t *testing.T, file string) io.Reader {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return bytes.NewReader(data)
}

// unzipped returns the content of a compressed stream.
func unzipped(t *testing.T, r io.Reader) io.Reader {
	t.Helper()
	z, err := gzip.NewReader(r)
	require.NoError(t, err)
	return z
}

// add reads a file of an archive.
func (p packed) add(t *testing.T, name string, mode fs.FileMode, r io.Reader) {
	t.Helper()
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	p[path.Clean("/"+name)] = packedFile{mode, data}
}

func tarred(t *testing.T, r io.Reader) packed {
	t.Helper()
	p := packed{}
	for in := tar.NewReader(unzipped(t, r)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return p
		}
		require.NoError(t, err)
		p.add(t, h.Name, h.FileInfo().Mode(), in)
	}
}

func zipped(t *testing.T, file string) packed {
	t.Helper()
	z, err := zip.OpenReader(file)
	require.NoError(t, err)
	defer z.Close()
	p := packed{}
	for _, f := range z.File {
		r, err := f.Open()
		require.NoError(t, err)
		p.add(t, f.Name, f.Mode(), r)
		require.NoError(t, r.Close())
	}
	return p
}

func debian(t *testing.T, file string) packed {
	t.Helper()
	for in := ar.NewReader(open(t, file)); ; {
		h, err := in.Next()
		require.NoError(t, err, "%s has no data", file)
		if strings.HasPrefix(h.Name, "data.tar.gz") {
			return tarred(t, in)
		}
	}
}

// redHat reads an RPM: a lead, two headers with an index and data each, and a cpio archive.
func redHat(t *testing.T, file string) packed {
	t.Helper()
	in := open(t, file)
	skip := func(n int64) {
		_, err := io.CopyN(io.Discard, in, n)
		require.NoError(t, err)
	}
	skip(96)
	for _, padding := range []int64{8, 1} {
		var h struct{ Magic, Reserved, Entries, Bytes uint32 }
		require.NoError(t, binary.Read(in, binary.BigEndian, &h))
		require.Equal(t, uint32(0x8eade801), h.Magic, file)
		n := 16*int64(h.Entries) + int64(h.Bytes)
		skip((n + padding - 1) / padding * padding)
	}
	p := packed{}
	for in := cpio.NewReader(unzipped(t, in)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return p
		}
		require.NoError(t, err)
		p.add(t, h.Name, h.FileInfo().Mode(), in)
	}
}
