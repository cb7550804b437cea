package unikernel

import (
	"debug/elf"
	"log/slog"
	"os"
	"slices"
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
