package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A Layer packs an application as a tar archive of its files, to be unpacked where the application
// runs. One of the files, startName, has the command.
type Layer struct{}

var _ Packer = Layer{}

const startName = "/vitrine/start.json"

// A start is the content of startName.
type start struct {
	Command     []string `json:"command"`
	Environment []string `json:"environment,omitempty"` // KEY=value
}

// Key is constant, because the archive holds only the tree.
func (Layer) Key(context.Context) (string, error) { return "1", nil }

// Pack writes the archive.
func (Layer) Pack(_ context.Context, _ *Application, t *Tree, dir string) (string, error) {
	text, err := json.Marshal(start{Command: t.Command, Environment: t.Environment})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, LayerName)
	f, err := os.Create(file)
	if err != nil {
		return "", err
	}
	return file, errors.Join(t.withFile(startName, string(text)).WriteTar(f), f.Close())
}

// Content reads the content of an archive.
func (Layer) Content(file string) (Content, error) {
	var s start
	err := inArchive(file, func(name string, r io.Reader) error {
		if name != startName {
			return nil
		}
		return json.NewDecoder(r).Decode(&s)
	})
	return Content{
		Command: s.Command, Environment: s.Environment,
		Files: func(yield func(string, io.Reader) error) error { return inArchive(file, yield) },
	}, err
}

// WriteTar writes the tree as a tar archive, for a layer of a container image or for a virtual
// machine. The same tree always gives the same bytes.
func (t *Tree) WriteTar(w io.Writer) error {
	archive := tar.NewWriter(w)
	for _, e := range t.Entries() {
		h := &tar.Header{Name: e.Path[1:], Mode: int64(Permissions(e.Mode)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		switch e.Mode.Type() {
		case fs.ModeDir:
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		case fs.ModeSymlink:
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
		default:
			h.Typeflag, h.Size = tar.TypeReg, e.Size
		}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := e.CopyTo(archive); err != nil {
			return err
		}
	}
	return archive.Close()
}

// Permissions returns a mode as in chmod(1).
func Permissions(m fs.FileMode) uint32 {
	p := uint32(m.Perm())
	if m&fs.ModeSticky != 0 {
		p |= 0o1000
	}
	return p
}

// readTar calls yield for the regular files of an archive of WriteTar. An archive without entries is
// damaged.
func readTar(r io.Reader, yield func(name string, content io.Reader) error) error {
	archive := tar.NewReader(r)
	for first := true; ; first = false {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF) && first:
			return errors.New("the archive is empty")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case h.Typeflag != tar.TypeReg:
			continue
		}
		if err := yield("/"+h.Name, archive); err != nil {
			return err
		}
	}
}
