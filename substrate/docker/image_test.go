package docker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/substrate"
	"vitrine/substrate/docker/dockertest"
)

// TestDockerSubstrateImages tests what the suite cannot test, mainly images of the user.
func TestDockerSubstrateImages(t *testing.T) {
	t.Setenv("DOCKER_HOST", dockertest.Start(t))
	tool := hosttest.Built(t, "./testdata/tool")
	tests := map[string]func(*bed){
		"Default":       testImageDefault,
		"Environment":   testImageEnvironment,
		"Missing":       testImageMissing,
		"Install":       testInstall,
		"InstallAgain":  testInstallAgain,
		"RunInside":     testRunInside,
		"RunInsideEnds": testRunInsideCancelled,
		"NotInImage":    testNotInImage,
		"NotStatic":     testNotStatic,
		"MadeOnce":      testStaticMadeOnce,
		"ImageGone":     testStaticGone,
		"ImageReplaced": testImageReplaced,
		"Mounts":        testMounts,
		"HostsStay":     testHostsStay,
		"DefaultSignal": testDefaultSignal,
		"Orphans":       testOrphansReaped,
		"FullDisk":      testFullDisk,
		"HostNetwork":   testHostNetwork,
		"Foreign":       testForeignLeftAlone,
		"Installed":     testInstalledCleaned,
		"Loaded":        testLoaded,
		"LoadedTwice":   testLoadedByEngine,
		"LoadedInUse":   testLoadedInUse,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, run := open(t, filepath.Join(t.TempDir(), "runs"))
			b := &bed{T: t, s: s, run: run, tool: tool, ctx: t.Context()}
			t.Cleanup(func() {
				if err := b.s.Close(context.Background()); err != nil {
					t.Errorf("Close: %v", err)
				}
				if left, err := labelled(t, run.ID); err != nil || len(left) > 0 {
					t.Errorf("containers left: %q, error %v", left, err)
				}
			})
			b.image = b.makeImage()
			test(b)
		})
	}
}

// A bed is the state of one of these tests.
type bed struct {
	*testing.T
	s     *Substrate
	run   *runstate.Run
	ctx   context.Context
	tool  string // path of testdata/tool, built
	image string // has the tool as /tool
}

// makeImage imports an image as a user would, with more lines of a Dockerfile.
func (b *bed) makeImage(lines ...string) string {
	b.Helper()
	program, err := staticFile(b.tool)
	if err != nil {
		b.Fatal(err)
	}
	var layer strings.Builder
	if err := program.writeLayer(&layer); err != nil {
		b.Fatal(err)
	}
	reference := "vitrine-test:" + b.run.ID
	progress, err := b.s.api.ImageImport(b.ctx, image.ImportSource{Source: strings.NewReader(layer.String()), SourceName: "-"}, reference,
		image.ImportOptions{Changes: append(lines, `ENV COLOUR=blue SHAPE=round`, `ENTRYPOINT ["/tool", "read"]`, `CMD ["/etc/hostname"]`)})
	if err != nil {
		b.Fatal(err)
	}
	defer progress.Close()
	if _, err := lastStatus(progress); err != nil {
		b.Fatal(err)
	}
	hosttest.AtEnd(b, func() error { return b.s.removeImage(context.Background(), reference) })
	return reference
}

func (b *bed) create(name, image string) (substrate.Instance, string) {
	b.Helper()
	dir := b.TempDir()
	in, err := b.s.Create(b.ctx, substrate.Spec{Run: b.run.ID, Name: name, Component: "c", Image: image, Dir: dir})
	if err != nil {
		b.Fatalf("Create: %v", err)
	}
	b.Cleanup(func() {
		if err := in.Remove(context.Background()); err != nil {
			b.Errorf("Remove: %v", err)
		}
	})
	return in, dir
}

// output starts the command, waits for its end and returns its standard output.
func (b *bed) output(in substrate.Instance, dir string, env []string, args ...string) string {
	b.Helper()
	file := filepath.Join(dir, "out")
	if err := os.RemoveAll(file); err != nil {
		b.Fatal(err)
	}
	p, err := in.Start(b.ctx, vitrine.Command{Args: args, Env: env, Stdout: file})
	if err != nil {
		b.Fatalf("Start: %v", err)
	}
	<-p.Done()
	if err := p.Err(); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		b.Fatalf("%q: %v\n%s", args, err, log)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func (b *bed) eventually(what string, holds func() bool) {
	b.Helper()
	hosttest.Until(b, time.Minute, what, holds)
}

func contains(file, text string) bool {
	b, err := os.ReadFile(file)
	return err == nil && strings.Contains(string(b), text)
}

func testImageDefault(b *bed) {
	in, dir := b.create("c-1", b.image)
	if got := b.output(in, dir, nil); got != "c-1" {
		b.Errorf("command of the image: got %q, want the hostname c-1", got)
	}
	if got := b.output(in, dir, nil, "/tool", "read", "/etc/hosts"); !strings.Contains(got, "127.0.0.1 localhost") {
		b.Errorf("/etc/hosts has no localhost: %q", got)
	}
}

func testImageEnvironment(b *bed) {
	in, dir := b.create("c-1", b.image)
	got := strings.Split(b.output(in, dir, []string{"SHAPE=square", "SIZE=3"}, "/tool", "environ"), "\n")
	got = slices.DeleteFunc(got, func(v string) bool { return strings.HasPrefix(v, "PATH=") || strings.HasPrefix(v, "HOME=") })
	slices.Sort(got)
	if want := []string{"COLOUR=blue", "SHAPE=square", "SIZE=3"}; !slices.Equal(got, want) {
		b.Errorf("got environment %q, want %q", got, want)
	}
}

func testImageMissing(b *bed) {
	for _, reference := range []string{"localhost:1/no/such:image", "No Reference"} {
		_, err := b.s.Create(b.ctx, substrate.Spec{Run: b.run.ID, Name: "c-1", Image: reference, Dir: b.TempDir()})
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), reference) {
			b.Errorf("%s: got %v, want a BadInput that names it", reference, err)
		}
	}
}

func testInstall(b *bed) {
	in, dir := b.create("c-1", b.image)
	for _, args := range [][]string{
		{"/tool", "write", "/first", "1"},
		{"/tool", "read", "/first", "then", "write", "/second", "2"},
	} {
		if err := in.Run(b.ctx, vitrine.Command{Args: args, Env: []string{"SECRET=x", "SHAPE=flat"}}); err != nil {
			b.Fatal(err)
		}
	}
	if got := b.output(in, dir, nil, "/tool", "read", "/first", "then", "read", "/second"); got != "1\n2" {
		b.Errorf("installed files: got %q", got)
	}
	got := b.output(in, dir, nil, "/tool", "environ")
	if strings.Contains(got, "SECRET") || !strings.Contains(got, "SHAPE=round") {
		b.Errorf("environment of the install script: got %q", got)
	}
	if got := b.output(in, dir, nil); got != "c-1" {
		b.Errorf("command of the image after the installation: got %q", got)
	}
	other, otherDir := b.create("c-2", b.image)
	p, err := other.Start(b.ctx, vitrine.Command{Args: []string{"/tool", "read", "/first"}})
	if err != nil {
		b.Fatal(err)
	}
	<-p.Done()
	if p.Err() == nil || !contains(filepath.Join(otherDir, "log"), "no such file") {
		b.Errorf("another instance has the files that one instance installed: %v", p.Err())
	}
}

func testRunInside(b *bed) {
	in, dir := b.create("c-1", b.image)
	if _, err := in.Start(b.ctx, vitrine.Command{Args: []string{"/tool", "write", "/state", "made", "then", "wait"}, Env: []string{"OWN=1"}}); err != nil {
		b.Fatal(err)
	}
	b.eventually("started", func() bool { return contains(filepath.Join(dir, "log"), "waiting") })
	out := filepath.Join(dir, "ran")
	if err := in.Run(b.ctx, vitrine.Command{Args: []string{"/tool", "read", "/state", "then", "environ"}, Env: []string{"ASKED=1"}, Stdout: out}); err != nil {
		b.Fatal(err)
	}
	if !contains(out, "made\n") || !contains(out, "ASKED=1\n") || contains(out, "OWN=1\n") {
		text, _ := os.ReadFile(out)
		b.Errorf("output of a command that ran beside the function: %q", text)
	}
	err := in.Run(b.ctx, vitrine.Command{Args: []string{"/tool", "read", "/nowhere"}})
	if err == nil || !strings.Contains(err.Error(), "exit status 4") || !strings.Contains(err.Error(), "open /nowhere") {
		b.Errorf("failing command: got %v", err)
	}
	if err := in.Run(b.ctx, vitrine.Command{Args: []string{"/nothing"}}); err == nil || !strings.Contains(err.Error(), "/nothing") {
		b.Errorf("missing program: got %v", err)
	}
}

func testRunInsideCancelled(b *bed) {
	in, dir := b.create("c-1", b.image)
	p, err := in.Start(b.ctx, vitrine.Command{Args: []string{"/tool", "wait"}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	ran := make(chan error, 1)
	mark, out := "mark-"+b.run.ID, filepath.Join(dir, "ran")
	go func() {
		ran <- in.Run(ctx, vitrine.Command{Args: []string{"/tool", "child", "wait", mark, "then", "wait", mark}, Stdout: out})
	}()
	b.eventually("two processes", func() bool {
		text, _ := os.ReadFile(out)
		return strings.Count(string(text), "waiting") == 2
	})
	cancel()
	if err := <-ran; err == nil {
		b.Error("a cancelled Run returned no error")
	}
	b.eventually("the command and its child have ended", func() bool { return ended(mark) })
	select {
	case <-p.Done():
		b.Errorf("the function ended with the command: %v", p.Err())
	default:
	}
}

// ended reports whether no process of this host has the argument.
func ended(mark string) bool {
	running, err := hosttest.WithArgument(mark)
	return err == nil && len(running) == 0
}

func testNotInImage(b *bed) {
	in, _ := b.create("c-1", b.image)
	for _, program := range []string{"/no/such/program", "nosuchprogram", "/tmp"} {
		if _, err := in.Start(b.ctx, vitrine.Command{Args: []string{program}}); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), program) {
			b.Errorf("%s: got %v, want a BadInput that names it", program, err)
		}
	}
}

func testNotStatic(b *bed) {
	in, dir := b.create("c-1", "")
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho hello\n"), 0o755); err != nil {
		b.Fatal(err)
	}
	for program, want := range map[string]string{"/bin/ls": "CGO_ENABLED=0", script: "not an ELF", "/no/such": "/no/such"} {
		_, err := in.Start(b.ctx, vitrine.Command{Args: []string{program}})
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
			b.Errorf("%s: got %v, want a BadInput with %q", program, err, want)
		}
	}
	if _, err := in.Start(b.ctx, vitrine.Command{}); !vitrine.IsBadInput(err) {
		b.Errorf("start without image and command: got %v, want BadInput", err)
	}
}

// madeImages lists the images made by runs in this test's folder.
func (b *bed) madeImages() []string {
	b.Helper()
	images, err := b.s.api.ImageList(b.ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelRoot+"="+b.s.config.Runs))})
	if err != nil {
		b.Fatal(err)
	}
	var all []string
	for _, i := range images {
		all = append(all, fmt.Sprint(i.RepoTags, i.ID))
	}
	slices.Sort(all) // the engine lists images of the same second in any order
	return all
}

func testStaticMadeOnce(b *bed) {
	for _, name := range []string{"c-1", "c-2"} {
		in, dir := b.create(name, "")
		if got := b.output(in, dir, nil, b.tool, "read", "/etc/hostname"); got != name {
			b.Errorf("got output %q", got)
		}
	}
	images := b.madeImages()
	if len(images) != 2 { // of the sandbox and of the tool
		b.Errorf("got images %q, want 2", images)
	}
	other, err := New(b.ctx, b.s.config)
	if err != nil {
		b.Fatal(err)
	}
	in, err := other.Create(b.ctx, substrate.Spec{Run: b.run.ID, Name: "d-1", Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := in.Start(b.ctx, vitrine.Command{Args: []string{b.tool, "wait"}}); err != nil {
		b.Fatal(err)
	}
	if again := b.madeImages(); !slices.Equal(again, images) {
		b.Errorf("another substrate built images again: got %q, want %q", again, images)
	}
	if err := b.s.Close(b.ctx); err != nil {
		b.Errorf("Close while another substrate uses the images: %v", err)
	}
	if err := other.Close(b.ctx); err != nil {
		b.Error(err)
	}
	// The first substrate could not remove images that the other used; Clean does.
	if err := b.run.Close(); err != nil {
		b.Fatal(err)
	}
	if removed, err := b.s.Clean(b.ctx); err != nil || len(removed) != 2 {
		b.Errorf("Clean removed %q, error %v, want the two images", removed, err)
	}
}

func testStaticGone(b *bed) {
	in, dir := b.create("c-1", "")
	for range 2 {
		if got := b.output(in, dir, nil, b.tool, "read", "/etc/hostname"); got != "c-1" {
			b.Errorf("got output %q", got)
		}
		if err := in.Stop(b.ctx, 0); err != nil {
			b.Fatal(err)
		}
		program, err := staticFile(b.tool)
		if err != nil {
			b.Fatal(err)
		}
		p, err := b.s.images.fromStatic(b.ctx, b.run.ID, program)
		if err != nil {
			b.Fatal(err)
		}
		if err := b.s.removeImage(b.ctx, p.id); err != nil { // as another run's Clean would
			b.Fatal(err)
		}
	}
}
