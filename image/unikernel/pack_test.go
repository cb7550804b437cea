package unikernel

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/image"
)

// application returns an application that uses shared libraries and prints the paths that it
// finds.
func application(t *testing.T) *image.Application {
	t.Helper()
	file := filepath.Join(t.TempDir(), "application.yaml")
	err := os.WriteFile(file, []byte(`
name: finder
command: [/usr/bin/find, /etc/finder, /proc/self/exe, -name, "*e", -printf, "found %p\n"]
environment: {B: "2", A: "1"}
configuration:
  - {target: /etc/finder/one, text: "1"}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	a, err := image.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestUnikernelImageBoots boots the file without the substrate, as a user may do.
func TestUnikernelImageBoots(t *testing.T) {
	base(t)
	cache, err := image.FindCache("", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := application(t).Tree()
	if err != nil {
		t.Fatal(err)
	}
	file, err := Packer{Builder{Cache: cache}}.Pack(t.Context(), nil, tree, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "q35,accel=tcg", "-m", "256", "-kernel", file, "-append", "console=ttyS0 panic=-1 reboot=t", "-serial", "stdio")
	if qemu.Err != nil {
		t.Skip(&vitrine.Unsupported{What: "virtual machines", Missing: qemu.Err.Error()})
	}
	out, err := qemu.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"found /etc/finder/one\r\n", "found /proc/self/exe\r\n", "vitrine init: exit 0"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestUnikernelSplitReversesJoin(t *testing.T) {
	b := base(t)
	tree, err := application(t).Tree()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	whole, kernel, files, want := filepath.Join(dir, "image"), filepath.Join(dir, "kernel"), filepath.Join(dir, "files"), filepath.Join(dir, "want")
	err = join(b.Kernel, whole, func(w io.Writer) error { return b.writeFiles(w, tree) })
	if err != nil {
		t.Fatal(err)
	}
	if err := b.WriteFiles(want, tree); err != nil {
		t.Fatal(err)
	}
	if err := Split(whole, kernel, files); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{want, kernel, files} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("QEMU's user may not read %s: %+v, error %v", file, info, err)
		}
	}
	same := func(a, b string, from int) bool {
		x, err := os.ReadFile(a)
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(b)
		if err != nil {
			t.Fatal(err)
		}
		return len(x) > from && bytes.Equal(x[from:], y[from:])
	}
	if !same(files, want, 0) {
		t.Error("Split returned other files than join wrote")
	}
	if !same(kernel, b.Kernel, headerEnd) { // the header's fields for the files differ
		t.Error("Split returned another kernel than join wrote")
	}
	if !IsImage(whole) || IsImage(b.Kernel) {
		t.Error("IsImage must accept an image with files, and reject a kernel alone")
	}
	if err := Split(b.Kernel, kernel, files); !vitrine.IsBadInput(err) {
		t.Errorf("Split of a kernel alone: %v", err)
	}
}

func TestContentMatchesTheTree(t *testing.T) {
	b := base(t)
	a := application(t)
	tree, err := a.Tree()
	if err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(t.TempDir(), "image")
	if err := join(b.Kernel, whole, func(w io.Writer) error { return b.writeFiles(w, tree) }); err != nil {
		t.Fatal(err)
	}
	c, err := Packer{}.Content(whole)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Command, a.Command) || !slices.Equal(c.Environment, []string{"A=1", "B=2"}) {
		t.Errorf("%q, %q", c.Command, c.Environment)
	}
}

func TestBadImages(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"empty": "", "text": strings.Repeat("text ", 4096), "cut": "\x7fELF",
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Split(file, file+".k", file+".f"); !vitrine.IsBadInput(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzHeader(f *testing.F) {
	valid := make([]byte, headerEnd)
	copy(valid[magic:], "HdrS\x0f\x02")
	valid[loadFlags] = 1
	f.Add(valid)
	f.Add([]byte("MZ"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHeader("kernel", bytes.NewReader(b))
		if err == nil && (h.setup <= 0 || h.end < h.setup || h.free <= 0 || h.ramBytes > 0 && h.ramdisk < h.end) {
			t.Errorf("%+v", h)
		}
	})
}

func FuzzStart(f *testing.F) {
	f.Add("/bin/x", "A=1", "/d")
	f.Fuzz(func(t *testing.T, arg, env, dir string) {
		if strings.ContainsRune(arg+env+dir, 0) {
			t.Skip("no system call takes a NUL in a text")
		}
		want := Start{Args: []string{arg}, Env: []string{env}, Dir: dir}
		got := parseStart(want.records())
		if !slices.Equal(got.Args, want.Args) || !slices.Equal(got.Env, want.Env) || got.Dir != want.Dir {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
