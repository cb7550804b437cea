package debian

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/image"
	"vitrine/internal/hosttest"
)

// builder returns a Builder with the cache that all tests of this host share.
func builder(t *testing.T) Builder {
	t.Helper()
	cache, err := image.FindCache("", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return Builder{Cache: cache, Environ: os.Environ()}
}

// debugfs reads a disk with the debugfs tool of its file system.
func debugfs(t *testing.T, disk, request string) string {
	t.Helper()
	if _, err := exec.LookPath("debugfs"); err != nil {
		t.Skip(&vitrine.Unsupported{What: "reading a guest's disk", Missing: "the program debugfs", Do: "install e2fsprogs"})
	}
	out, err := exec.CommandContext(t.Context(), "debugfs", "-R", request, disk).CombinedOutput()
	if err != nil {
		t.Errorf("reading %s: %v\n%s", disk, err, out)
	}
	return string(out)
}

func TestQemuGuestBaseIsBuiltOnce(t *testing.T) {
	b := builder(t)
	base, err := b.Base(t.Context(), Options{})
	hosttest.Need(t, err)
	again, err := b.Base(t.Context(), Options{Release: DefaultRelease})
	if err != nil || again != base {
		t.Errorf("the second time %+v, %v; the first time %+v", again, err, base)
	}
	for _, file := range []string{base.Kernel, base.Initrd, base.Disk, base.Tree} {
		if info, err := os.Stat(file); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	if !strings.Contains(base.Version, "cloud") {
		t.Errorf("the kernel's version is %s", base.Version)
	}
	if out := debugfs(t, base.Disk, "ls -p /lib/modules"); !strings.Contains(out, "/"+base.Version+"/") {
		t.Errorf("no modules of %s on the disk:\n%s", base.Version, out)
	}
}

// TestBuildLeavesNoMount checks that the mounts of a killed program end with it.
func TestBuildLeavesNoMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(&vitrine.Unsupported{What: "mounting", Missing: "root"})
	}
	dir := t.TempDir()
	target, mounted := filepath.Join(dir, "target"), filepath.Join(dir, "mounted")
	if err := errors.Join(os.Mkdir(target, 0o755), unix.Mkfifo(mounted, 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = os.ReadFile(mounted)
		cancel()
	}()
	b := builder(t)
	b.Logger = slog.New(slog.DiscardHandler)
	err := b.run(ctx, "/bin/sh", "-euc", `mount -t proc proc "$1"; setsid sleep 3600 & echo > "$2"; sleep 3600`, "sh", target, mounted)
	if errors.Is(err, unix.EPERM) {
		t.Skip(&vitrine.Unsupported{What: "mounting", Missing: err.Error()})
	}
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := os.Remove(target); err != nil {
		t.Error(err)
	}
}

// TestGuestNeedsAMD64 checks that a build on another machine fails before debootstrap runs.
func TestGuestNeedsAMD64(t *testing.T) {
	if err := possible("arm64"); !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "an amd64 host") {
		t.Errorf("on arm64: %v", err)
	}
	if err := possible("amd64"); err != nil && strings.Contains(err.Error(), "an amd64 host") {
		t.Errorf("on amd64: %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{{Release: "Bookworm"}, {Release: "../x"}, {Release: "bullseye"}, {Packages: []string{"--option"}}, {Packages: []string{"a b"}}} {
		if _, err := builder(t).Base(t.Context(), o); !vitrine.IsBadInput(err) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestKeyDependsOnOptions(t *testing.T) {
	keyring := filepath.Join(t.TempDir(), "mirror.gpg")
	with := func(content string) string {
		if err := os.WriteFile(keyring, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return Options{Release: "bookworm", Keyring: keyring}.key()
	}
	keys := []string{
		with("old key"), with("new key"),
		Options{Release: "bookworm"}.key(), Options{Release: "bookworm", Packages: []string{"redis-server"}}.key(),
		Options{Release: "bookworm", Mirror: "file:///srv"}.key(), Options{Release: "trixie"}.key(),
	}
	if slices.Sort(keys); len(slices.Compact(slices.Clone(keys))) != 6 {
		t.Errorf("keys %q", keys)
	}
}

// TestKeyDependsOnRecipe checks that a base of recipe 1, whose archive's signature may not have been
// checked, is not used, and that the lists of packages and modules count.
func TestKeyDependsOnRecipe(t *testing.T) {
	o := Options{Release: "bookworm"}
	unsigned := sha256.Sum256([]byte("1" + initScript + strings.Join(modules, " ") + `{"release":"bookworm"}`))
	now := o.key()
	if now == "bookworm-"+hex.EncodeToString(unsigned[:6]) {
		t.Error("the key is that of recipe 1")
	}
	for _, list := range []*[]string{&included, &modules} {
		kept := *list
		*list = append(slices.Clone(kept), "another")
		if o.key() == now {
			t.Errorf("the key does not depend on %q", kept)
		}
		*list = kept
	}
}

// TestQemuGuestBaseWithPackages checks that packages are installed over the minimal system, which
// stays unchanged and is not built again.
func TestQemuGuestBaseWithPackages(t *testing.T) {
	b := builder(t)
	least, err := b.Base(t.Context(), Options{})
	hosttest.Need(t, err)
	o := Options{Packages: []string{"netcat-openbsd"}}
	base, err := b.Base(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if base.Kernel != least.Kernel || base.Disk == least.Disk {
		t.Errorf("with a package %+v, without %+v", base, least)
	}
	if found, built := b.Built(o); !built || found != base {
		t.Errorf("the cache has %+v, %v", found, built)
	}
	for disk, want := range map[string]bool{base.Disk: true, least.Disk: false} {
		out := debugfs(t, disk, "stat /bin/nc.openbsd")
		if got := strings.Contains(out, "Type: regular"); got != want {
			t.Errorf("%s has the package's program: %v\n%s", disk, got, out)
		}
	}
}

// TestQemuImageHasNoLoaderCache checks that the system's list of libraries is on the system's own disk,
// but not on the disk of an application.
func TestQemuImageHasNoLoaderCache(t *testing.T) {
	hosttest.Need(t, Possible()) // a guest in the cache is not enough: packing needs root too
	b := builder(t)
	base, err := b.Base(t.Context(), Options{})
	hosttest.Need(t, err)
	a, err := image.OfProgram([]string{"sleep", "60"})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := a.Tree()
	if err != nil {
		t.Fatal(err)
	}
	packed, err := Packer{Builder: b}.Pack(t.Context(), a, tree, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for disk, want := range map[string]bool{base.Disk: true, packed: false} {
		out := debugfs(t, disk, "stat /"+loaderCache)
		if got := strings.Contains(out, "Type: regular"); got != want {
			t.Errorf("%s has the list of libraries: %v\n%s", disk, got, out)
		}
	}
}
