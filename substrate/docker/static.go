package docker

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"

	"vitrine"
	programs "vitrine/image"
)

// A static program is the only content of its image, besides /tmp.
type static struct {
	name string // its file name, in the root of the image
	key  string // in gallery.have
	size int64
	open func() (io.ReadCloser, error)
}

// staticFile returns the program that a command names, looked up as exec does.
func staticFile(program string) (static, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return static{}, &vitrine.BadInput{File: program, Found: err.Error(), Want: "a program on this host, or an image for the component"}
	}
	info, err := os.Stat(path)
	if err != nil {
		return static{}, fmt.Errorf("docker: the program of the image: %w", err)
	}
	return static{
		name: filepath.Base(path),
		key:  fmt.Sprintf("%s %d %v", path, info.Size(), info.ModTime()),
		size: info.Size(),
		open: func() (io.ReadCloser, error) { return os.Open(path) },
	}, checkStatic(path)
}

// checkStatic rejects a program that cannot run in an image without other files.
func checkStatic(path string) error {
	f, err := elf.Open(path)
	var format *elf.FormatError
	if errors.As(err, &format) || errors.Is(err, io.EOF) {
		return &vitrine.BadInput{File: path, Found: "not an ELF executable, and an image made from it has no interpreter",
			Want: "a static executable, or an image for the component that can run it"}
	}
	if err != nil {
		return fmt.Errorf("docker: read the program of the image: %w", err)
	}
	defer f.Close()
	switch loader, err := programs.Interpreter(f); {
	case loader != "":
		return &vitrine.BadInput{File: path, Found: fmt.Sprintf("dynamically linked (needs %s), and an image made from it has no libraries", loader),
			Want: "a static executable (Go: build with CGO_ENABLED=0; C: link with -static), or an image for the component"}
	case err != nil:
		return fmt.Errorf("docker: read the program of the image: %w", err)
	}
	return nil
}

// forget drops an image that somebody else has removed, so that it is looked up again.
func (g *gallery) forget(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.have, key)
}

// fromStatic finds or makes the image that holds only the program. Its tag is a digest of
// the content, so all callers share one image.
func (g *gallery) fromStatic(ctx context.Context, run string, s static) (localImage, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, ok := g.have[s.key]; ok {
		return p, nil
	}
	digest := sha256.New()
	fmt.Fprintf(digest, "%s\n", s.name)
	if err := s.copy(digest); err != nil {
		return localImage{}, err
	}
	tag := fmt.Sprintf("vitrine/static:%x", digest.Sum(nil)[:8])
	p, err := g.inspect(ctx, tag)
	if cerrdefs.IsNotFound(err) {
		err = g.makeStatic(ctx, run, tag, s)
	}
	if err != nil {
		return localImage{}, err
	}
	p.id, p.cmd = tag, []string{"/" + s.name}
	g.have[s.key] = p
	return p, nil
}

// makeStatic imports the image in one call and streams its layer.
func (g *gallery) makeStatic(ctx context.Context, run, tag string, s static) error {
	layer, writer := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		writer.CloseWithError(s.writeLayer(writer)) // the call returns this error
	}()
	var id string
	progress, err := g.e.api.ImageImport(ctx, image.ImportSource{Source: layer, SourceName: "-"}, tag,
		image.ImportOptions{Changes: []string{fmt.Sprintf("LABEL %s=%s %s=%q", labelRun, run, labelRoot, g.root)}})
	if err == nil {
		id, err = lastStatus(progress)
		progress.Close()
	}
	layer.CloseWithError(io.ErrClosedPipe) // ends the writer if the engine has not read everything
	<-written
	if err == nil {
		g.made = append(g.made, made{id: id})
	}
	return g.e.explain(ctx, "make the image "+tag, err)
}

func (s static) copy(to io.Writer) error {
	f, err := s.open()
	if err == nil {
		_, err = io.Copy(to, f)
		f.Close()
	}
	if err != nil {
		return fmt.Errorf("docker: read the program of the image: %w", err)
	}
	return nil
}

func (s static) writeLayer(to io.Writer) error {
	layer := tar.NewWriter(to)
	if err := layer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return err
	}
	if err := layer.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: s.name, Mode: 0o755, Size: s.size}); err != nil {
		return err
	}
	if err := s.copy(layer); err != nil {
		return err
	}
	return layer.Close()
}
