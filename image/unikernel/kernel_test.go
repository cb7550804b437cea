package unikernel

import (
	"debug/elf"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vitrine/image"
	"vitrine/internal/hosttest"
)

// base returns the base from the cache that all tests share. If it is missing, base makes
// it, which takes minutes.
func base(t *testing.T) Base {
	t.Helper()
	cache, err := image.FindCache("", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Builder{Cache: cache, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}.Base(t.Context())
	hosttest.Need(t, err)
	return b
}

func TestNewestSource(t *testing.T) {
	sources := []string{"/usr/src/linux-source-6.12.tar.xz", "/usr/src/linux-source-5.10.tar.xz", "/usr/src/linux-source-6.1.tar.xz"}
	slices.SortFunc(sources, compareVersions)
	if want := []string{"/usr/src/linux-source-5.10.tar.xz", "/usr/src/linux-source-6.1.tar.xz", "/usr/src/linux-source-6.12.tar.xz"}; !slices.Equal(sources, want) {
		t.Errorf("sorted from the oldest to the newest: %q", sources)
	}
}

// TestSourceOfUbuntu checks that the file of Ubuntu's package is a source, and that its compression is no
// part of the version.
func TestSourceOfUbuntu(t *testing.T) {
	const ubuntu, debian = "/usr/src/linux-source-6.8.0.tar.bz2", "/usr/src/linux-source-6.8.0.tar.xz"
	if found, err := filepath.Match(Sources, ubuntu); !found || err != nil {
		t.Errorf("%s is no source: error %v", ubuntu, err)
	}
	if compareVersions(ubuntu, debian) != 0 || sourceName(ubuntu) != "linux-source-6.8.0" {
		t.Errorf("the versions are %v and %v, the name is %s", versionOf(ubuntu), versionOf(debian), sourceName(ubuntu))
	}
}

// TestAnyKernelNeedsNoSource checks that a kernel in the cache is found if this host cannot build one.
// A hidden folder is a build that goes on.
func TestAnyKernelNeedsNoSource(t *testing.T) {
	b := Builder{Cache: image.Cache{Dir: t.TempDir()}, Source: "/no/source"}
	add := func(key string) string {
		dir := filepath.Join(b.Cache.Dir, kernelKind, key)
		file := filepath.Join(dir, "bzImage")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(file, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	add(".linux-source-6.1-00.new")
	if got := b.AnyKernel(); got != "" {
		t.Errorf("got %q during the first build", got)
	}
	if want, got := add("linux-source-6.1-01"), b.AnyKernel(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestOptionsSinceLinux61 checks for options that a kernel since 6.1 has dropped, or that its tinyconfig
// sets: the kernel would be refused, or would have a slow allocator.
func TestOptionsSinceLinux61(t *testing.T) {
	text := string(kernelConfig)
	if strings.Contains(text, "CONFIG_RANDOM_TRUST_CPU") || !strings.Contains(text, "random.trust_cpu=on") {
		t.Error("Linux 6.2 has random.trust_cpu only on the command line")
	}
	if !strings.Contains(text, "# CONFIG_SLUB_TINY is not set\n") {
		t.Error("tinyconfig of Linux 6.2 sets CONFIG_SLUB_TINY")
	}
}

func TestUnikernelBase(t *testing.T) {
	b := base(t)
	kernel, err := os.ReadFile(b.Kernel)
	if err != nil {
		t.Fatal(err)
	}
	if len(kernel) > 4<<20 {
		t.Errorf("the kernel has %d bytes: it is not reduced", len(kernel))
	}
	first, err := elf.Open(b.Init)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for _, p := range first.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the first program is not static")
		}
	}
}
