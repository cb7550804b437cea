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
	packed := tree(t, sleeper+"files: [{target: /etc/group, text: mine}]\n")
	bare := packed.Bare()
	if !packed.has("/etc/passwd") || bare.has("/etc/passwd") {
		t.Error("/etc/passwd is in a tree for images that are not from scratch")
	}
	if !bare.has("/etc/group") || !bare.has("/etc/sleeper.conf") {
		t.Error("the tree lacks the application's own files")
	}
}

// TestTargetsOfSubstrates checks that an application cannot have files that only some substrates would show.
func TestTargetsOfSubstrates(t *testing.T) {
	for target, want := range map[string]bool{
		"/run": false, "/run/app/app.conf": false, "/var/run": false, "/var/run/app.conf": false,
		"/etc/hosts": false, "/etc/hostname": false, "/etc/resolv.conf": false,
		"/runner": true, "/var/runner": true, "/etc/hosts.allow": true,
	} {
		_, err := load(t, sleeper+"files: [{target: "+target+", text: mine}]\n")
		if want && err != nil || !want && !vitrine.IsBadInput(err) {
			t.Errorf("target %s: got error %v", target, err)
		}
	}
}

// TestReservedTargetsInside checks the targets that a listed folder or a package brings. An empty folder
// is left out, and a file is an error.
func TestReservedTargetsInside(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	packageOf := func(name, list string) string { // a package that dpkg does not know
		t.Helper()
		file, err := filepath.Rel(dpkgInfo, strings.TrimSuffix(write(name+".list", list), ".list"))
		if err != nil {
			t.Fatal(err)
		}
		return "packages: [" + file + "]\n"
	}
	folder := func(name string) string {
		return "files: [{target: /" + name + ", source: " + filepath.Join(dir, name) + "}]\n"
	}
	hosts, pid := write("etc/hosts", ""), write("var/run/app/pid", "")
	for _, test := range []struct{ text, source, target string }{
		{folder("etc"), hosts, "/etc/hosts"},
		{folder("var"), pid, "/var/run/app/pid"},
		{packageOf("file", "/.\n/run\n/etc/hosts\n"), "/etc/hosts", "/etc/hosts"},
	} {
		a, err := load(t, sleeper+test.text)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%s: target %q: ", test.source, test.target)
		if _, err := a.Tree(); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want bad input with %s", err, want)
		}
	}
	if err := os.Remove(pid); err != nil {
		t.Fatal(err)
	}
	packed := tree(t, sleeper+folder("var")+packageOf("folders", "/.\n/run\n/var/run\n"))
	if packed.has("/var/run") || !packed.has("/run") {
		t.Error("the tree must have /run, which all images have, but not /var/run")
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
