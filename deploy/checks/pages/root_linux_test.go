package pages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// rootVariable names the folder that becomes the root, in the environment of its first process.
const rootVariable = "PAGES_ROOT"

// cgroupVariable names the cgroup of systemd, for a script that runs as a unit.
const cgroupVariable = "PAGES_CGROUP"

// ownRoot returns the attributes of a process that may prepare its own root. A user who is not root is root there, and
// has no other users.
func ownRoot() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// newCgroup makes a cgroup for the systemd of a script, and removes it at the end. Only root may.
func newCgroup(t *testing.T) *os.File {
	t.Helper()
	if _, err := os.Stat("/usr/lib/systemd/systemd"); err != nil || os.Getuid() != 0 {
		t.Skip("needs root, and systemd: apt-get install systemd")
	}
	hierarchy := "/sys/fs/cgroup"
	if _, err := os.Stat(hierarchy + "/unified"); err == nil { // beside version 1
		hierarchy += "/unified"
	}
	folder, err := os.MkdirTemp(hierarchy, "pages-")
	if err != nil {
		t.Skip("no cgroup of version 2 can be made: ", err)
	}
	// Managers of users look into it.
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var below []string
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				below = append(below, path)
			}
			return err
		})
		for _, path := range slices.Backward(below) {
			err = errors.Join(err, os.Remove(path))
		}
		if err != nil {
			t.Error(err)
		}
	})
	cgroup, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cgroup.Close() })
	return cgroup
}

// etc has the files of /etc that programs expect.
var etc = map[string]string{
	"passwd":        "root:x:0:0::/root:/bin/bash\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n",
	"group":         "root:x:0:\nnogroup:x:65534:\n",
	"shadow":        "root:*:19000:0:99999:7:::\n",
	"hosts":         "127.0.0.1 localhost host\n::1 localhost\n",
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}

// copied has files of the host that its programs need.
var copied = []string{"/etc/ld.so.cache", "/etc/ssl/openssl.cnf", "/etc/login.defs"}

// enter makes the folder of rootVariable the root of this process, and becomes the bash that runs the script.
func enter() error {
	root := os.Getenv(rootVariable)
	for _, folder := range []string{"usr", ".local/bin", "dev", "proc", "sys", "etc/ssl", "etc/alternatives", "tmp", "root/go/bin", "src", "run", "var/lib", "var/log", ".old"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), fs.ModeSticky|0o777); err != nil {
		return err
	}
	if err := os.Chmod(root, 0o755); err != nil {
		return err
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+link, filepath.Join(root, link)); err != nil {
			return err
		}
	}
	if err := writeEtc(filepath.Join(root, "etc")); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount /: %w", err)
	}
	for _, m := range []struct {
		from, to string
		readOnly bool
	}{
		{root, "", false},
		{"/usr", "usr", true},
		{filepath.Join(root, ".local"), "usr/local", false},
		{"/dev", "dev", false},
		{"/sys", "sys", false},
		{os.Getenv("PAGES_SOURCE"), "src", true},
		{os.Getenv("PAGES_PROGRAMS"), "root/go/bin", true},
	} {
		to := filepath.Join(root, m.to)
		if err := unix.Mount(m.from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", to, err)
		}
		if m.readOnly {
			if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				return fmt.Errorf("mount %s read-only: %w", to, err)
			}
		}
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.PivotRoot(root, filepath.Join(root, ".old")); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount("/.old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	if err := os.Chdir("/root"); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("host")); err != nil {
		return fmt.Errorf("name the host: %w", err)
	}
	if err := loopback(); err != nil {
		return fmt.Errorf("start the network: %w", err)
	}
	env := []string{
		"HOME=/root", "USER=root", "LANG=C.UTF-8",
		"PATH=/usr/local/bin:/root/go/bin:/usr/sbin:/usr/bin",
	}
	const folder = "/src/deploy/checks/pages/"
	shell := []string{"/bin/bash", "-c", `. "$0"; . "$1"; finish`, folder + "frame.bash", folder + os.Getenv("SCRIPT")}
	if os.Getenv(cgroupVariable) == "" {
		return syscall.Exec(shell[0], shell, env)
	}
	return boot(shell, env)
}

// boot becomes systemd, which runs the script as a unit, and ends with its exit code.
func boot(shell, env []string) error {
	// The cgroup of this process becomes the root of a namespace for systemd. Only this thread is in the namespace, so it
	// must be the one that mounts and executes.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a namespace of cgroups: %w", err)
	}
	for _, m := range []struct{ kind, to string }{{"cgroup2", "/sys/fs/cgroup"}, {"tmpfs", "/run"}} {
		if err := unix.Mount(m.kind, m.to, m.kind, unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
	}
	// The credentials of a unit are mounted by a process of systemd in a namespace below this one.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the mounts: %w", err)
	}
	unit := "[Unit]\nDefaultDependencies=no\nSuccessAction=exit\nFailureAction=exit\n[Service]\nType=oneshot\nWorkingDirectory=/root\n" +
		"TimeoutStartSec=infinity\nStandardOutput=file:/var/log/page.out\nStandardError=inherit\n"
	for _, variable := range env {
		unit += fmt.Sprintf("Environment=%q\n", variable)
	}
	// "$" is doubled for systemd.
	unit += fmt.Sprintf("ExecStart=%s %s %q %s %s\n", shell[0], shell[1], strings.ReplaceAll(shell[2], "$", "$$"), shell[3], shell[4])
	if err := os.MkdirAll("/etc/systemd/system", 0o755); err != nil {
		return err
	}
	// This root does not need the units of a starting machine (devices, file systems, logs).
	for _, target := range []string{"sysinit", "local-fs", "basic", "sockets", "timers"} {
		units, _ := filepath.Glob("/usr/lib/systemd/system/" + target + ".target.wants/*") // the pattern is valid
		for _, unit := range units {
			if err := os.Symlink("/dev/null", "/etc/systemd/system/"+filepath.Base(unit)); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	if err := os.WriteFile("/etc/systemd/system/page.service", []byte(unit), 0o644); err != nil {
		return err
	}
	const systemd = "/usr/lib/systemd/systemd"
	return syscall.Exec(systemd, []string{systemd, "--system", "--unit=page.service", "--log-target=console", "--log-level=warning", "--show-status=no"}, append(env, "container=pages"))
}

// writeEtc writes the files of /etc.
func writeEtc(folder string) error {
	for name, text := range etc {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, path := range copied {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the host does without
		}
		if err := os.WriteFile(filepath.Join(folder, path[len("/etc/"):]), text, 0o644); err != nil {
			return err
		}
	}
	links, err := os.ReadDir("/etc/alternatives")
	if err != nil {
		return nil // only Debian and its relatives have them
	}
	for _, link := range links {
		target, err := os.Readlink("/etc/alternatives/" + link.Name())
		if err != nil {
			continue // a file of another kind
		}
		if err := os.Symlink(target, filepath.Join(folder, "alternatives", link.Name())); err != nil {
			return err
		}
	}
	return nil
}

// loopback makes 127.0.0.1 an address of the new network.
func loopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}
