package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"vitrine"
)

// load reads a description.
func load(t *testing.T, text string) (*Application, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "application.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(file)
}

// tree returns the tree of a description.
func tree(t *testing.T, text string) *Tree {
	t.Helper()
	a, err := load(t, text)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := a.Tree()
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

const sleeper = `
name: sleeper
command: [sleep, "60"]
environment: {B: "2", A: "1"}
configuration: [{target: /etc/sleeper.conf, text: "how=well"}]
`

func TestDigestsCoverAllFiles(t *testing.T) {
	s := Store{Cache: Cache{Dir: t.TempDir()}, Packers: map[string]Packer{"process": Layer{}, "docker": Container{}}}
	build := func(text, substrate string) Image {
		t.Helper()
		a, err := load(t, text)
		if err != nil {
			t.Fatal(err)
		}
		i, err := s.Build(t.Context(), a, substrate)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	first := build(sleeper, "process")
	if first.Program == "" || first.Configuration == "" || first.Tree == "" || first.Size < first.Files/2 {
		t.Fatalf("%+v", first)
	}
	before, err := os.Stat(first.File)
	if err != nil {
		t.Fatal(err)
	}
	build(sleeper, "process")
	if after, err := os.Stat(first.File); err != nil || !os.SameFile(before, after) {
		t.Errorf("built again although nothing has changed: %v", err)
	}
	if other := build(sleeper, "docker"); other.Digests != first.Digests {
		t.Errorf("docker %+v, process %+v", other.Digests, first.Digests)
	}
	for what, text := range map[string]string{
		"text":        strings.ReplaceAll(sleeper, "well", "badly"),
		"argument":    strings.ReplaceAll(sleeper, `"60"`, `"61"`),
		"environment": strings.ReplaceAll(sleeper, `"2"`, `"3"`),
		"place":       strings.ReplaceAll(sleeper, "sleeper.conf", "other.conf"),
	} {
		if i := build(text, "docker"); i.Configuration == first.Configuration || i.Program != first.Program {
			t.Errorf("another %s: %+v, before %+v", what, i.Digests, first.Digests)
		}
	}
	if i := build(strings.ReplaceAll(sleeper, "[sleep", "[cat"), "docker"); i.Program == first.Program {
		t.Error("another program has the same digest")
	}
	const more = sleeper + "files: [{target: /lib/plugin.so, text: old}]\n"
	old := build(more, "docker")
	if i := build(strings.ReplaceAll(more, "old", "new"), "docker"); old.Tree == first.Tree || i.Tree == old.Tree || i.Configuration != first.Configuration {
		t.Errorf("without a library %+v, with it %+v, with another version %+v", first.Digests, old.Digests, i.Digests)
	}
}

// TestBuildWaitsForAnother checks a Build that waits for another build of the same application. It
// must return the image of its own description.
func TestBuildWaitsForAnother(t *testing.T) {
	p := &slowPacker{began: make(chan struct{}), goOn: make(chan struct{})}
	s := Store{Cache: Cache{Dir: t.TempDir()}, Packers: map[string]Packer{"process": p}}
	theirs, err := load(t, sleeper)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := load(t, strings.ReplaceAll(sleeper, "well", "badly"))
	if err != nil {
		t.Fatal(err)
	}
	var other Image
	done := make(chan error)
	go func() {
		var err error
		other, err = s.Build(t.Context(), theirs, "process")
		done <- err
	}()
	<-p.began
	i, err := s.Build(&waiting{Context: t.Context(), goOn: p.goOn}, mine, "process")
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	if now, err := s.Find("sleeper", "process"); err != nil || i.Digests != now.Digests || i.File != now.File || i.Configuration == other.Configuration {
		t.Errorf("my build returned %+v, the other build %+v, and the store has %+v, %v", i, other, now, err)
	}
}

// A checkedPacker calls check before each Pack.
type checkedPacker struct {
	Layer
	check func() error
}

func (p *checkedPacker) Pack(ctx context.Context, a *Application, t *Tree, dir string) (string, error) {
	if err := p.check(); err != nil {
		return "", err
	}
	return p.Layer.Pack(ctx, a, t, dir)
}

// TestFailedBuildKeepsTheImage checks that instances can start from the old image during a build, and
// after one that fails.
func TestFailedBuildKeepsTheImage(t *testing.T) {
	p := &checkedPacker{check: func() error { return nil }}
	s := Store{Cache: Cache{Dir: t.TempDir()}, Packers: map[string]Packer{"process": p}}
	a, err := load(t, sleeper)
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Build(t.Context(), a, "process")
	if err != nil {
		t.Fatal(err)
	}
	isFound := func(when string) {
		t.Helper()
		if now, err := s.Find("sleeper", "process"); err != nil || now.Digests != first.Digests {
			t.Errorf("%s: %+v, %v, want the first image %+v", when, now, err, first)
		}
	}
	broken := errors.New("no space")
	p.check = func() error {
		isFound("during the second build")
		return broken
	}
	changed, err := load(t, strings.ReplaceAll(sleeper, "well", "badly"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Build(t.Context(), changed, "process"); !errors.Is(err, broken) {
		t.Errorf("the second build: %v, want %v", err, broken)
	}
	isFound("after the second build")
	p.check = func() error { return nil }
	second, err := s.Build(t.Context(), changed, "process")
	if now, found := s.Find("sleeper", "process"); err != nil || found != nil || now.Digests != second.Digests || now.Digests == first.Digests {
		t.Errorf("the third build returned %+v, %v, and the store has %+v, %v", second, err, now, found)
	}
	if left, err := filepath.Glob(filepath.Join(s.Cache.Dir, "images-process", ".sleeper.*")); err != nil || len(left) != 1 {
		t.Errorf("beside the image: %q, %v, want only the lock", left, err)
	}
}

// TestDamagedImage checks that an image without its content, as after a crash of the machine, is an
// error, is built again, and can be removed.
func TestDamagedImage(t *testing.T) {
	s := Store{Cache: Cache{Dir: t.TempDir()}, Packers: map[string]Packer{"process": Layer{}}}
	a, err := load(t, sleeper)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(s.Cache.Dir, "images-process", "sleeper")
	damage := func(name string) {
		t.Helper()
		if _, err := s.Build(t.Context(), a, "process"); err != nil {
			t.Fatal(err)
		}
		if i, err := s.Find("sleeper", "process"); err != nil || i.Program == "" {
			t.Errorf("%+v, %v", i, err)
		}
		if err := os.Truncate(filepath.Join(folder, name), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Find("sleeper", "process"); err == nil || vitrine.IsBadInput(err) {
			t.Errorf("an image with an empty %s: %v", name, err)
		}
	}
	damage(builtName)
	damage(LayerName)
	if _, err := s.Build(t.Context(), a, "process"); err != nil {
		t.Error(err)
	}
	damage(builtName)
	if err := s.Remove(t.Context(), "sleeper", "process"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
}

// TestChangedPorts checks that another port makes another image.
func TestChangedPorts(t *testing.T) {
	s := Store{Cache: Cache{Dir: t.TempDir()}, Packers: map[string]Packer{"docker": Container{}}}
	ids := map[string]bool{}
	for _, port := range []int{7, 8} {
		a, err := load(t, sleeper+fmt.Sprintf("ports: {none: %d}\n", port))
		if err != nil {
			t.Fatal(err)
		}
		i, err := s.Build(t.Context(), a, "docker")
		if err != nil {
			t.Fatal(err)
		}
		id, err := ContainerID(i.File)
		if err != nil || i.Ports["none"] != port {
			t.Errorf("got ports %v, %v, want %d", i.Ports, err, port)
		}
		ids[id] = true
	}
	if len(ids) != 2 {
		t.Errorf("the archive did not change with the ports: %v", ids)
	}
}

// A slowPacker holds its first Pack until goOn is closed.
type slowPacker struct {
	Layer
	began, goOn chan struct{}
	first       sync.Once
}

func (p *slowPacker) Pack(ctx context.Context, a *Application, t *Tree, dir string) (string, error) {
	p.first.Do(func() {
		close(p.began)
		<-p.goOn
	})
	return p.Layer.Pack(ctx, a, t, dir)
}

// waiting is a context that closes goOn as soon as a caller waits for the context.
type waiting struct {
	context.Context
	goOn chan struct{}
	once sync.Once
}

func (w *waiting) Done() <-chan struct{} {
	w.once.Do(func() { close(w.goOn) })
	return w.Context.Done()
}

// needs skips the test if a program is missing.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip(&vitrine.Unsupported{What: "an image for this test", Missing: "the program " + program, Do: "run .ci/install"})
	}
}

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

func TestPackages(t *testing.T) {
	a, err := load(t, "name: box\ncommand: [sleep]\npackages: [no-such-package]\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Tree(); !vitrine.IsUnsupported(err) {
		t.Errorf("a package that is not installed: %v", err)
	}
	needs(t, "busybox")
	packed := tree(t, "name: box\ncommand: [busybox, echo]\npackages: [busybox-static]\n")
	if !packed.has("/usr/bin/busybox") && !packed.has("/bin/busybox") {
		t.Error("no busybox")
	}
	for _, e := range packed.Entries() {
		if strings.HasPrefix(e.Path, "/usr/share/man/") || strings.HasPrefix(e.Path, "/usr/share/doc/") {
			t.Errorf("documentation: %s", e.Path)
		}
	}
}

func TestBareOmitsSystemFiles(t *testing.T) {
	packed := tree(t, sleeper+"files: [{target: /etc/hosts, text: mine}]\n")
	bare := packed.Bare()
	if !packed.has("/etc/passwd") || bare.has("/etc/passwd") {
		t.Error("/etc/passwd is in a tree for images that are not from scratch")
	}
	if !bare.has("/etc/hosts") || !bare.has("/etc/sleeper.conf") {
		t.Error("the tree lacks the application's own files")
	}
}

func TestUnpackStaysInItsFolder(t *testing.T) {
	for name, entries := range map[string][]tar.Header{
		"parent": {{Name: "../out", Typeflag: tar.TypeReg}},
		"link":   {{Name: "up", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "up/out", Typeflag: tar.TypeReg}},
		"twice":  {{Name: "out", Typeflag: tar.TypeReg}, {Name: "out", Typeflag: tar.TypeReg}},
		"device": {{Name: "out", Typeflag: tar.TypeChar}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, h := range entries {
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
			}
			dir := t.TempDir()
			file := filepath.Join(dir, "layer.tar")
			if err := errors.Join(w.Close(), os.WriteFile(file, b.Bytes(), 0o600)); err != nil {
				t.Fatal(err)
			}
			if err := Unpack(file, filepath.Join(dir, "root")); err == nil {
				t.Error("no error")
			}
			if _, err := os.Lstat(filepath.Join(dir, "out")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("written outside: %v", err)
			}
		})
	}
}

func TestStoreRefusesPathsAsNames(t *testing.T) {
	s := Store{Cache: Cache{Dir: t.TempDir()}, Packers: map[string]Packer{"process": Layer{}}}
	for _, name := range []string{"", "../x", "a/b", ".hidden", "none"} {
		if _, err := s.Find(name, "process"); !vitrine.IsBadInput(err) {
			t.Errorf("Find(%q): %v", name, err)
		}
		if err := s.Remove(context.Background(), name, "process"); !vitrine.IsBadInput(err) {
			t.Errorf("Remove(%q): %v", name, err)
		}
	}
	a, err := load(t, sleeper)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Build(t.Context(), a, "kube"); !vitrine.IsBadInput(err) {
		t.Errorf("a substrate without images: %v", err)
	}
}
