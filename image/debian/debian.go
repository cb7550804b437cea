// Package debian builds the files that virtual machines boot from. They are a minimal
// Debian system (debootstrap's minbase) with the requested packages on a disk image, the
// distribution's kernel for virtual machines, and an initrd that finds the disk. Nothing is
// installed on the host.
//
// The system has no init of its own. The first process is the agent on the machine's second disk.
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

// DefaultRelease is the release to build if none is named.
const DefaultRelease = "bookworm"

// recipe changes when Go code changes the content of a base, such as the arguments of debootstrap, so
// that an old base in the cache is not used for a new one. The scripts and lists of this package have
// their own place in the key. Builds with recipe 1 did not always check the archive's signature.
const recipe = "2"

// kind is the kind of bases in the cache.
const kind = "debian"

// Options configure the system.
type Options struct {
	// Release is Debian's code name, from bookworm on; empty: DefaultRelease.
	Release string `yaml:"release,omitempty" json:"release,omitempty"`
	// Mirror is the source of packages; empty: debootstrap's default.
	Mirror string `yaml:"mirror,omitempty" json:"mirror,omitempty"`
	// Keyring is a file of OpenPGP keys, in binary form. One of them must have signed the
	// mirror's archive. Empty: the keys of Debian.
	Keyring string `yaml:"keyring,omitempty" json:"keyring,omitempty"`
	// Packages are installed in addition to the minimal system, such as redis-server.
	Packages []string `yaml:"packages,omitempty" json:"packages,omitempty"`
}

// A Builder builds bases and keeps them in the cache.
type Builder struct {
	Cache   image.Cache
	Logger  *slog.Logger // nil: no log
	Environ []string     // for the programs that build: PATH, HTTP_PROXY ...
}

// A Base is the set of files that machines start from. Machines share them, so each
// machine writes to an overlay.
type Base struct {
	Kernel  string // file of the Linux kernel
	Initrd  string // its initrd
	Disk    string // raw image of the ext4 file system
	Tree    string // archive (tar) of the minimal system's files
	Version string // the kernel's release: "6.1.0-56-cloud-amd64"
}

var (
	releasePattern = regexp.MustCompile(`^[a-z]{2,20}$`)
	packagePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,80}$`) // Debian Policy, 5.6.1
)

func (o Options) check() error {
	if !releasePattern.MatchString(o.Release) {
		return &vitrine.BadInput{File: "release", Found: fmt.Sprintf("%q", o.Release), Want: "a Debian code name, such as " + DefaultRelease}
	}
	if slices.Contains([]string{"jessie", "stretch", "buster", "bullseye"}, o.Release) {
		return &vitrine.BadInput{File: "release", Found: o.Release + ", whose kernel has no cgroup.kill", Want: DefaultRelease + " or newer"}
	}
	for _, p := range o.Packages {
		if !packagePattern.MatchString(p) {
			return &vitrine.BadInput{File: "packages", Found: fmt.Sprintf("%q", p), Want: "names of Debian packages"}
		}
	}
	return nil
}

// resolve fills in the default release and sorts the packages. plain is o without packages.
func (o Options) resolve() (plain, full Options) {
	o.Release = cmp.Or(o.Release, DefaultRelease)
	o.Packages = slices.Compact(slices.Sorted(slices.Values(o.Packages)))
	plain = o
	plain.Packages = nil
	return plain, o
}

// Base returns the base with the options, and builds it if the cache lacks it. Building takes
// about a minute, a network, and root. If this host cannot build it, the error is a
// *vitrine.Unsupported.
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

// key returns the name of the base in the cache. The base has the keys of the mirror, so their content
// counts.
func (o Options) key() string {
	text, _ := json.Marshal(o) // cannot fail: only strings
	if o.Keyring != "" {
		keys, _ := os.ReadFile(o.Keyring) // building reports a file that cannot be read
		text = append(text, keys...)
	}
	made := slices.Concat([]string{recipe, kernelScript, installScript, tidyScript, initrdScript, initScript, diskSize}, included, modules)
	sum := sha256.Sum256(append([]byte(strings.Join(made, " ")), text...))
	return o.Release + "-" + hex.EncodeToString(sum[:6])
}

// Files of a base.
const (
	kernelFile  = "vmlinuz"
	initrdFile  = "initrd"
	diskFile    = "disk.raw"
	treeFile    = "tree.tar" // the disk's content, for bases with packages
	versionFile = "version"
)

// diskSize is the size of the disk in machines. The image file has holes, so it is smaller.
const diskSize = "8G"

// Programs returns the programs of the host that building needs.
func Programs() []string { return []string{"debootstrap", "gpgv", "chroot", "mkfs.ext4", "tar"} }

// Possible returns nil if this host can build a guest, else a *vitrine.Unsupported.
func Possible() error { return possible(runtime.GOARCH) }

func possible(arch string) error {
	const what = "building a Debian guest"
	if err := image.NeedAMD64(arch, what); err != nil {
		return err
	}
	for _, p := range Programs() {
		if _, err := exec.LookPath(p); err != nil {
			return &vitrine.Unsupported{What: what, Missing: "the program " + p, Do: "install debootstrap, gpgv and e2fsprogs"}
		}
	}
	if os.Geteuid() != 0 {
		return &vitrine.Unsupported{What: what, Missing: "the privilege to change the root folder (chroot)", Do: "run as root once; the result is kept"}
	}
	return nil
}

// bootstrap builds the minimal system in dir.
func (b Builder) bootstrap(ctx context.Context, o Options, dir string) error {
	if err := Possible(); err != nil {
		return err
	}
	b.Logger.Info("building a Debian guest: about a minute, once", "release", o.Release)
	root := filepath.Join(dir, "root")
	if err := b.debootstrap(ctx, o, root); err != nil {
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

// install adds packages to a copy of the minimal system.
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
	// The guest resolves the package mirror's name as the host does.
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

// disk writes the tree to a file system, which needs no mount, and removes the tree.
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

// run runs a program. Its error has the end of the program's output. The program's processes and
// mounts end with the program, for example the mounts that debootstrap makes in its target. The
// program ends with this process.
func (b Builder) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(slices.Clone(b.Environ), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS, // its mounts are private
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

// Built returns the base with the options if the cache has it.
func (b Builder) Built(o Options) (Base, bool) {
	plain, o := o.resolve()
	base, err := baseIn(filepath.Join(b.Cache.Dir, kind, plain.key()), filepath.Join(b.Cache.Dir, kind, o.key()))
	return base, err == nil
}

// baseIn returns the base with the kernel in the folder least and the disk in the folder
// disk, which may be the same.
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
