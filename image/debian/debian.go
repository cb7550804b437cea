// Package debian builds what virtual machines boot: a Debian system of the
// least size (debootstrap's minbase) with the packages that are asked for, on a
// disk image, with the distribution's own kernel for virtual machines and a
// first file system that finds the disk. Nothing of it is installed on the host.
//
// The system has no init of its own: the first process is the agent that the
// machine is given on its second disk.
package debian

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"vitrine"
	"vitrine/image"
)

// DefaultRelease is the one that is built when none is named.
const DefaultRelease = "bookworm"

// recipe changes with what a base is made of, so that an old one in the cache is
// not taken for a new one.
const recipe = "1"

// kind is what bases are in the cache.
const kind = "debian"

// Options say what the system has.
type Options struct {
	// Release is Debian's code name; empty: DefaultRelease.
	Release string `yaml:"release,omitempty" json:"release,omitempty"`
	// Mirror is where packages are fetched from; empty: debootstrap's own choice.
	Mirror string `yaml:"mirror,omitempty" json:"mirror,omitempty"`
	// Packages are installed beside the least system, as redis-server.
	Packages []string `yaml:"packages,omitempty" json:"packages,omitempty"`
}

// A Builder builds bases and keeps them.
type Builder struct {
	Cache   image.Cache
	Logger  *slog.Logger // nil: none
	Environ []string     // of the programs that build: PATH, HTTP_PROXY ...
}

// A Base is what machines are started from. Its files are shared: a machine
// writes to an overlay.
type Base struct {
	Kernel  string // file of the Linux kernel
	Initrd  string // its first file system
	Disk    string // raw image of the ext4 file system
	Tree    string // archive (tar) of the least system's files
	Version string // the kernel's release: "6.1.0-56-cloud-amd64"
}

var (
	releasePattern = regexp.MustCompile(`^[a-z]{2,20}$`)
	packagePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,80}$`) // Debian Policy, 5.6.1
)

func (o Options) check() error {
	if !releasePattern.MatchString(o.Release) {
		return &vitrine.BadInput{File: "release", Found: fmt.Sprintf("%q", o.Release), Want: "a code name of Debian, as " + DefaultRelease}
	}
	for _, p := range o.Packages {
		if !packagePattern.MatchString(p) {
			return &vitrine.BadInput{File: "packages", Found: fmt.Sprintf("%q", p), Want: "names of Debian packages"}
		}
	}
	return nil
}

// resolve fills in the default release and orders the packages; plain has none.
func (o Options) resolve() (plain, full Options) {
	o.Release = cmp.Or(o.Release, DefaultRelease)
	o.Packages = slices.Compact(slices.Sorted(slices.Values(o.Packages)))
	plain = o
	plain.Packages = nil
	return plain, o
}

// Base gives the base with the options, which is built if the cache has none.
// Building takes about a minute, a network, and root; where it cannot be done
// the error is a *vitrine.Unsupported.
func (b Builder) Base(ctx context.Context, o Options) (Base, error) {
	plain, o := o.resolve()
	if err := o.check(); err != nil {
		return Base{}, err
	}
	if b.Logger == nil {
		b.Logger = slog.New(slog.DiscardHandler)
	}
	least, err := b.Cache.Once(ctx, kind, plain.key(), func(ctx context.Context, dir string) error { return b.bootstrap(ctx, plain, dir) })
	if err != nil {
		return Base{}, fmt.Errorf("building a Debian guest: %w", err)
	}
	disk := least
	if len(o.Packages) > 0 {
		disk, err = b.Cache.Once(ctx, kind, o.key(), func(ctx context.Context, dir string) error { return b.install(ctx, o, least, dir) })
		if err != nil {
			return Base{}, fmt.Errorf("building a Debian guest with %s: %w", strings.Join(o.Packages, ", "), err)
		}
	}
	return baseIn(least, disk)
}

// key names the base in the cache.
func (o Options) key() string {
	text, _ := json.Marshal(o) // strings alone
	sum := sha256.Sum256(append([]byte(recipe+initScript+strings.Join(modules, " ")), text...))
	return o.Release + "-" + hex.EncodeToString(sum[:6])
}

// Files of a base.
const (
	kernelFile  = "vmlinuz"
	initrdFile  = "initrd"
	diskFile    = "disk.raw"
	treeFile    = "tree.tar" // what the disk holds, for bases with packages
	versionFile = "version"
)

// diskSize is what machines see; the image has holes where nothing is written.
const diskSize = "8G"

// Programs are what building needs of the host.
func Programs() []string { return []string{"debootstrap", "chroot", "mkfs.ext4", "tar"} }

// Possible is nil where this host can build, else a *vitrine.Unsupported.
func Possible() error {
	for _, p := range Programs() {
		if _, err := exec.LookPath(p); err != nil {
			return &vitrine.Unsupported{What: "building a Debian guest", Missing: "the program " + p, Do: "install debootstrap and e2fsprogs"}
		}
	}
	if os.Geteuid() != 0 {
		return &vitrine.Unsupported{What: "building a Debian guest", Missing: "the right to change the root folder", Do: "run as root once; what was built is kept"}
	}
	return nil
}

// bootstrap builds the least system in dir.
func (b Builder) bootstrap(ctx context.Context, o Options, dir string) error {
	if err := Possible(); err != nil {
		return err
	}
	b.Logger.Info("building a Debian guest: about a minute, once", "release", o.Release)
	root := filepath.Join(dir, "root")
	args := []string{"debootstrap", "--variant=minbase", "--include=" + strings.Join(included, ","), o.Release, root}
	if o.Mirror != "" {
		args = append(args, o.Mirror)
	}
	if err := b.run(ctx, args...); err != nil {
		return err
	}
	if err := b.chroot(ctx, root, kernelScript); err != nil {
		return err
	}
	if err := b.initrd(ctx, root); err != nil {
		return err
	}
	for name, from := range map[string]string{kernelFile: "boot/vmlinuz", initrdFile: "boot/initrd", versionFile: "boot/version"} {
		if err := os.Rename(filepath.Join(root, from), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := b.chroot(ctx, root, tidyScript); err != nil {
		return err
	}
	if err := b.run(ctx, "tar", "--create", "--numeric-owner", "--xattrs", "--file", filepath.Join(dir, treeFile), "--directory", root, "."); err != nil {
		return err
	}
	return b.disk(ctx, root, dir)
}

// install builds a system with packages from the least one.
func (b Builder) install(ctx context.Context, o Options, least, dir string) error {
	if err := Possible(); err != nil {
		return err
	}
	b.Logger.Info("installing packages in a Debian guest, once", "packages", o.Packages)
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := b.run(ctx, "tar", "--extract", "--numeric-owner", "--xattrs", "--file", filepath.Join(least, treeFile), "--directory", root); err != nil {
		return err
	}
	// Names of hosts are looked up as the host does.
	if text, err := os.ReadFile("/etc/resolv.conf"); err == nil {
		if err := os.WriteFile(filepath.Join(root, "etc/resolv.conf"), text, 0o644); err != nil {
			return err
		}
	}
	if err := b.chroot(ctx, root, installScript, o.Packages...); err != nil {
		return err
	}
	if err := b.chroot(ctx, root, tidyScript); err != nil {
		return err
	}
	return b.disk(ctx, root, dir)
}

// disk writes the tree to a file system, which needs no mount, and removes it.
func (b Builder) disk(ctx context.Context, root, dir string) error {
	err := b.run(ctx, "mkfs.ext4", "-q", "-F", "-L", "vitrine", "-d", root, "-E", "lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0",
		"-m", "0", filepath.Join(dir, diskFile), diskSize)
	if err != nil {
		return err
	}
	return os.RemoveAll(root)
}

// chroot runs a shell script in the tree.
func (b Builder) chroot(ctx context.Context, root, script string, args ...string) error {
	return b.run(ctx, append([]string{"chroot", root, "/bin/sh", "-euc", script, "sh"}, args...)...)
}

// run runs a program; its error has the end of what it printed. All that it starts
// and mounts, as debootstrap does in its target, ends with it, and it with ours.
func (b Builder) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(slices.Clone(b.Environ), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS, // whose mounts are private
	}
	runtime.LockOSThread() // for Pdeathsig
	defer runtime.UnlockOSThread()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Stdin = io.NopCloser(strings.NewReader(""))
	b.Logger.Debug("building a Debian guest", "command", args[:min(len(args), 4)])
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(out.String())
		return errors.Join(fmt.Errorf("%s: %w", args[0], err), context.Cause(ctx), errors.New(text[max(0, len(text)-1500):]))
	}
	return nil
}

// Built gives the base with the options if the cache has it.
func (b Builder) Built(o Options) (Base, bool) {
	plain, o := o.resolve()
	base, err := baseIn(filepath.Join(b.Cache.Dir, kind, plain.key()), filepath.Join(b.Cache.Dir, kind, o.key()))
	return base, err == nil
}

// baseIn is the base of which the kernel is in the one folder and the disk in
// the other, which may be the same.
func baseIn(least, disk string) (Base, error) {
	base := Base{Kernel: filepath.Join(least, kernelFile), Initrd: filepath.Join(least, initrdFile), Disk: filepath.Join(disk, diskFile), Tree: filepath.Join(least, treeFile)}
	version, err := os.ReadFile(filepath.Join(least, versionFile))
	if err == nil {
		_, err = os.Stat(base.Disk)
	}
	if err != nil {
		return Base{}, fmt.Errorf("reading the Debian guest: %w", err)
	}
	base.Version = strings.TrimSpace(string(version))
	return base, nil
}
