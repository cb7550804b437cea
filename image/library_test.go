package image

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"vitrine"
)

func compile(t *testing.T, dir string, args ...string) {
	t.Helper()
	needs(t, "gcc")
	cmd := exec.CommandContext(t.Context(), "gcc", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestLibraries packs a program that finds a library by a relative path. That library needs
// another library. The test runs the program with only the packed files.
func TestLibraries(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"two.c":  `int two(void) { return 2; }`,
		"one.c":  `int two(void); int one(void) { return two() - 1; }`,
		"main.c": `int one(void); int puts(const char *); int main(void) { return one() == 1 && puts("both found") >= 0 ? 0 : 1; }`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "bin"), 0o755), os.Mkdir(filepath.Join(dir, "lib"), 0o755)); err != nil {
		t.Fatal(err)
	}
	compile(t, dir, "-shared", "-fPIC", "-o", "lib/libtwo.so", "two.c")
	compile(t, dir, "-shared", "-fPIC", "-o", "lib/libone.so", "one.c", "-Llib", "-ltwo", "-Wl,-rpath,$ORIGIN")
	compile(t, dir, "-o", "bin/main", "main.c", "-Llib", "-lone", "-Wl,-rpath,$ORIGIN/../lib", "-Wl,-rpath-link,lib")

	text := "name: found\ncommand: [/opt/found/bin/main]\nprogram: " + filepath.Join(dir, "bin/main") + "\n"
	packed := tree(t, text)
	for _, want := range []string{"/opt/found/bin/main", "/opt/found/lib/libone.so", "/opt/found/lib/libtwo.so"} {
		if !packed.has(want) {
			t.Errorf("no %s", want)
		}
	}
	layer, err := Layer{}.Pack(t.Context(), nil, packed, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "root")
	if err := Unpack(layer, root); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // only root may change the root folder
		// The loader reads the program's own folder, $ORIGIN, from /proc.
		script := `mount --bind /proc "$0/proc" && exec chroot "$0" /opt/found/bin/main`
		out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", script, root).CombinedOutput()
		if err != nil || string(out) != "both found\n" {
			t.Errorf("%q, %v", out, err)
		}
	}

	if err := os.Remove(filepath.Join(dir, "lib/libtwo.so")); err != nil {
		t.Fatal(err)
	}
	a, err := load(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Tree(); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "libtwo.so") {
		t.Errorf("a missing library: %v", err)
	}
}

// TestLibrariesAmongFiles packs a program whose library is next to it in the image but not on this
// host. Packing must not run any program that the program names.
func TestLibrariesAmongFiles(t *testing.T) {
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	for name, text := range map[string]string{
		"one.c":  `int one(void) { return 1; }`,
		"main.c": `int one(void); int main(void) { return one(); }`,
		"loader": "#!/bin/sh\n: > " + ran + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	compile(t, dir, "-shared", "-fPIC", "-o", "libone.so", "one.c")
	compile(t, dir, "-o", "main", "main.c", "-L.", "-lone", "-Wl,-rpath,$ORIGIN/../lib", "-Wl,--dynamic-linker="+filepath.Join(dir, "loader"))
	packed := tree(t, "name: moved\ncommand: [/opt/moved/bin/main]\nprogram: "+filepath.Join(dir, "main")+
		"\nfiles: [{target: /opt/moved/lib/libone.so, source: "+filepath.Join(dir, "libone.so")+"}]\n")
	for _, want := range []string{"/opt/moved/lib/libone.so", filepath.Join(dir, "loader")} {
		if !packed.has(want) {
			t.Errorf("no %s", want)
		}
	}
	if _, err := os.Stat(ran); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("packing ran the program's loader: %v", err)
	}
}

// TestLibraryOfTheLoader has two libraries of one name. The loader of this host takes the one in a folder of
// its configuration. The image has no configuration, so that library must be where its loader looks first.
func TestLibraryOfTheLoader(t *testing.T) {
	self, err := filepath.EvalSymlinks("/proc/self/exe") // compatible with this host's libraries
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir, name := t.TempDir(), "libc.so.6"
	l := linker{tree: newTree(), conf: filepath.Join(dir, "ld.so.conf")}
	if err := errors.Join(os.WriteFile(l.conf, []byte(dir+"\n"), 0o600), os.Symlink(self, filepath.Join(dir, name))); err != nil {
		t.Fatal(err)
	}
	if err := l.find(f, object{source: self}, name, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := l.tree.entries[filepath.Join(standards(runtime.GOARCH)[0], name)].source; got != self {
		t.Errorf("packed from %q, want %q; all entries: %+v", got, self, l.tree.Entries())
	}
}

// TestStandardFolders checks that libraries go where the loader of the architecture looks.
func TestStandardFolders(t *testing.T) {
	general := []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib"}
	for arch, want := range map[string][]string{
		"amd64":   {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"},
		"arm64":   {"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"},
		"loong64": nil,
	} {
		if got := standards(arch); !slices.Equal(got, append(want, general...)) {
			t.Errorf("%s: got %q, want first %q", arch, got, want)
		}
	}
}
