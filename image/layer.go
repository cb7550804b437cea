package image

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"time"
)

// WriteTar writes the tree as a tar archive: that of a container image's layer,
// or to be unpacked in a virtual machine. The same tree gives the same bytes.
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
		if err := e.copyTo(archive); err != nil {
			return err
		}
	}
	return archive.Close()
}

// Permissions is a mode as chmod(1) has it.
func Permissions(m fs.FileMode) uint32 {
	p := uint32(m.Perm())
	if m&fs.ModeSticky != 0 {
		p |= 0o1000
	}
	return p
}

// readTar gives the regular files of what WriteTar wrote.
func readTar(r io.Reader, yield func(name string, content io.Reader) error) error {
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := yield("/"+h.Name, archive); err != nil {
			return err
		}
	}
}
