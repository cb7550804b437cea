package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/fabric/fabrictest"
	"vitrine/image"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/substrate"
	"vitrine/substrate/docker/dockertest"
)

// cleanEnv names the folder of runs that the child process cleans.
const cleanEnv = "DOCKER_TEST_CLEAN"

// TestDockerSubstrateCleanElsewhere checks that Clean leaves containers of another host alone. A
// process in its own PID namespace stands for the other host, because it does not see the
// containers either.
func TestDockerSubstrateCleanElsewhere(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(&vitrine.Unsupported{What: "process ids of its own", Missing: "root"})
	}
	t.Setenv("DOCKER_HOST", dockertest.Start(t))
	s, run := open(t, filepath.Join(t.TempDir(), "runs"))
	if _, err := s.Create(t.Context(), substrate.Spec{Run: run.ID, Name: "c-1", Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--fork", "--pid", "--mount-proc", os.Args[0])
	cmd.Env = append(os.Environ(), cleanEnv+"="+s.config.Runs)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "removed []") {
		t.Errorf("Clean in another PID namespace: %v\n%s", err, out)
	}
	if removed, err := s.Clean(t.Context()); err != nil || len(removed) != 2 {
		t.Errorf("Clean removed %q, error %v, want the sandbox and its image", removed, err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDockerSubstrateCleanRecordedEngine: a Cleaner finds the engine that a killed run used. A
// run that closes its substrate leaves no record.
func TestDockerSubstrateCleanRecordedEngine(t *testing.T) {
	const instances = 8 // created at the same time
	host := dockertest.Start(t)
	root := filepath.Join(t.TempDir(), "runs")
	create := func() (*Substrate, *runstate.Run) {
		run := fabrictest.NewRun(t, root)
		s, err := New(t.Context(), Config{Host: host, Runs: root, Run: run})
		hosttest.Need(t, err)
		var group errgroup.Group
		for n := range instances {
			dir := t.TempDir()
			group.Go(func() error {
				_, err := s.Create(t.Context(), substrate.Spec{Run: run.ID, Name: fmt.Sprint("c-", n+1), Dir: dir})
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		return s, run
	}
	closed, ended := create()
	if err := errors.Join(closed.Close(t.Context()), ended.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(ended.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record of a closed substrate was not removed: %v", err)
	}
	killed, dead := create()
	if err := dead.Abandon(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{instances + 1, 0} { // the sandboxes and their image
		if removed, err := (Cleaner{Root: root}).Clean(t.Context()); err != nil || len(removed) != want {
			t.Errorf("Clean removed %q, error %v, want %d", removed, err, want)
		}
	}
	if err := killed.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestMain also runs as the child program that calls Clean where the containers are not visible.
func TestMain(m *testing.M) {
	root := os.Getenv(cleanEnv)
	if root == "" {
		os.Exit(m.Run())
	}
	ctx := context.Background()
	s, err := New(ctx, Config{Host: os.Getenv("DOCKER_HOST"), Runs: root})
	var removed []string
	if err == nil {
		removed, err = s.Clean(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("removed %q\n", removed)
}

// testInstalledCleaned checks that one Clean removes all images of a chain. Each Run before a Start
// makes an image from the one before.
func testInstalledCleaned(b *bed) {
	in, _ := b.create("c-1", b.image)
	for _, file := range []string{"/first", "/second", "/third"} {
		if err := in.Run(b.ctx, vitrine.Command{Args: []string{"/tool", "write", file, "1"}}); err != nil {
			b.Fatal(err)
		}
	}
	if err := b.run.Close(); err != nil {
		b.Fatal(err)
	}
	removed, err := b.s.Clean(b.ctx)
	if err != nil {
		b.Fatal(err)
	}
	if left, err := labelled(b.T, b.run.ID); err != nil || len(left) > 0 {
		b.Errorf("Clean removed %q and left %q, error %v", removed, left, err)
	}
}

// testLoaded checks that Close removes an image that Load gave the engine, and that Clean removes
// it after a killed run. An image that the user had before must stay.
func testLoaded(b *bed) {
	b.s.config.Run, b.s.images.run = b.run, b.run
	archive := b.save(b.image)
	id, err := image.ContainerID(archive)
	if err != nil {
		b.Fatal(err)
	}
	killed := filepath.Join(b.s.config.Runs, "aaaaaaaa")
	for _, tt := range []struct {
		name            string
		had, counts     bool // had: the user has the image; counts: the engine computes the archive's ID for it
		killed, isThere bool
	}{
		{"gone with Close", false, true, false, false},
		{"gone with Close", false, false, false, false},
		{"cleaned", false, false, true, false},
		{"the user's", true, true, false, true},
		{"the user's, by another id", true, false, false, true},
		{"the user's, and cleaned", true, false, true, true},
	} {
		if tt.had {
			err = b.s.images.load(b.ctx, archive)
		} else {
			err = b.s.removeImage(b.ctx, b.image)
		}
		if err != nil {
			b.Fatal(err)
		}
		name := id
		if !tt.counts {
			name = strings.Repeat("0", 64)
		}
		for range 2 { // two instances
			if _, err := b.s.Load(b.ctx, archive, name, b.image); err != nil {
				b.Fatal(err)
			}
		}
		if tt.killed {
			b.s.images.made = nil
			clear(b.s.images.have)
			if err := os.CopyFS(killed, os.DirFS(b.run.Dir())); err != nil {
				b.Fatal(err)
			}
			removed, err := b.s.Clean(b.ctx)
			if err := errors.Join(err, os.RemoveAll(killed), b.s.images.erase(name)); err != nil || len(removed) > 0 == tt.isThere {
				b.Errorf("%s: Clean removed %q, error %v", tt.name, removed, err)
			}
		}
		if err := b.s.images.removeMade(b.ctx); err != nil {
			b.Error(err)
		}
		if _, err := b.s.images.inspect(b.ctx, b.image); cerrdefs.IsNotFound(err) == tt.isThere {
			b.Errorf("%s: got the wrong state of the image at the end: %v", tt.name, err)
		}
		if records, err := os.ReadDir(filepath.Join(b.run.Dir(), b.s.imageKind())); err != nil && !errors.Is(err, os.ErrNotExist) || len(records) > 0 {
			b.Errorf("%s: records left: %v, error %v", tt.name, records, err)
		}
	}
}

// testLoadedByEngine checks that the cleaning of one engine leaves the record of an image that the
// same run gave another engine, so that the other engine is cleaned too.
func testLoadedByEngine(b *bed) {
	b.s.config.Run, b.s.images.run = b.run, b.run
	archive := b.save(b.image)
	id, err := image.ContainerID(archive)
	if err == nil {
		err = b.s.removeImage(b.ctx, b.image)
	}
	if err != nil {
		b.Fatal(err)
	}
	other, err := New(b.ctx, Config{Host: dockertest.Own(b.T).Host, Runs: b.s.config.Runs, Run: b.run})
	hosttest.Need(b, err)
	engines := []*Substrate{b.s, other}
	for _, s := range engines {
		if _, err := s.Load(b.ctx, archive, id, b.image); err != nil {
			b.Fatal(err)
		}
	}
	if err := b.run.Abandon(); err != nil {
		b.Fatal(err)
	}
	for _, s := range engines {
		if removed, err := s.Clean(b.ctx); err != nil || !slices.Contains(removed, "docker image "+b.image) {
			b.Errorf("%s: Clean removed %q, error %v, want the image of the killed run", s.host, removed, err)
		}
	}
	if err := other.Close(b.ctx); err != nil {
		b.Error(err)
	}
}

// testLoadedInUse checks an image of a killed run that a container uses. Clean must leave it without
// an error, and a Clean after the container's end must remove it, also if the run that cleaned first
// has used the image itself.
func testLoadedInUse(b *bed) {
	b.s.config.Run, b.s.images.run = b.run, b.run
	archive := b.save(b.image)
	if err := b.s.removeImage(b.ctx, b.image); err != nil {
		b.Fatal(err)
	}
	name := strings.Repeat("0", 64) // not the engine's ID
	id, err := b.s.Load(b.ctx, archive, name, b.image)
	if err != nil {
		b.Fatal(err)
	}
	b.s.images.made = nil
	user, err := b.s.create(b.ctx, "user-"+b.run.ID, &container.Config{Image: id}, &container.HostConfig{NetworkMode: "none"})
	if err != nil {
		b.Fatal(err)
	}
	hosttest.AtEnd(b, func() error { return b.s.removeContainer(context.Background(), user) })
	killed, records := filepath.Join(b.s.config.Runs, "aaaaaaaa"), filepath.Join(b.run.Dir(), b.s.imageKind())
	clean := func(want ...string) { // moves the records of this run to a killed run first
		b.Helper()
		if err := errors.Join(os.RemoveAll(killed), os.CopyFS(killed, os.DirFS(b.run.Dir())), os.RemoveAll(records)); err != nil {
			b.Fatal(err)
		}
		if removed, err := b.s.Clean(b.ctx); err != nil || !slices.Equal(removed, want) {
			b.Errorf("Clean removed %q, error %v, want %q", removed, err, want)
		}
	}
	clean()
	clear(b.s.images.have)
	if _, err := b.s.Load(b.ctx, archive, name, b.image); err != nil {
		b.Fatal(err)
	}
	if err := b.s.removeContainer(b.ctx, user); err != nil {
		b.Fatal(err)
	}
	clean("docker image " + b.image)
	if err := os.RemoveAll(killed); err != nil {
		b.Error(err)
	}
}

// save writes the engine's image to an archive.
func (b *bed) save(reference string) string {
	b.Helper()
	from, err := b.s.api.ImageSave(b.ctx, []string{reference})
	if err != nil {
		b.Fatal(err)
	}
	defer from.Close()
	to, err := os.Create(filepath.Join(b.TempDir(), "archive"))
	if err != nil {
		b.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		b.Fatal(err)
	}
	return to.Name()
}
