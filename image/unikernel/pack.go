package unikernel

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cavaliergopher/cpio"

	"vitrine/image"
)

// A Packer packs applications into images.
type Packer struct{ Builder Builder }

var _ image.Packer = Packer{}

// Names that the kernel and the first program look for.
const (
	firstName = "init"
	startName = "vitrine/start"
)

// Key identifies the kernel and the first program.
func (p Packer) Key(ctx context.Context) (string, error) {
	base, err := p.Builder.Base(ctx)
	return filepath.Base(filepath.Dir(base.Kernel)) + " " + filepath.Base(filepath.Dir(base.Init)), err
}

// Pack writes the image, one file that QEMU boots with -kernel.
func (p Packer) Pack(ctx context.Context, _ *image.Application, t *image.Tree, dir string) (string, error) {
	base, err := p.Builder.Base(ctx)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "image")
	return file, join(base.Kernel, file, func(w io.Writer) error { return base.writeFiles(w, t) })
}

// WriteFiles writes the initial file system for the base's kernel: the tree, the first
// program, and its command. All users may read the file.
func (b Base) WriteFiles(file string, t *image.Tree) error {
	f, err := create(file)
	if err != nil {
		return err
	}
	return errors.Join(b.writeFiles(f, t), f.Close())
}

// writeFiles writes an archive in the kernel's format for initial file systems
// (Documentation/driver-api/early-userspace/buffer-format.rst).
func (b Base) writeFiles(w io.Writer, t *image.Tree) error {
	out := bufio.NewWriterSize(w, 1<<20)
	archive := cpio.NewWriter(out)
	for _, e := range t.Entries() {
		if err := writeEntry(archive, e); err != nil {
			return err
		}
	}
	first, err := os.ReadFile(b.Init)
	if err != nil {
		return err
	}
	start := Start{Args: t.Command, Env: t.Environment}
	for _, f := range []struct {
		name string
		mode cpio.FileMode
		text []byte
	}{{firstName, 0o755, first}, {startName, 0o644, start.records()}} {
		if dir := filepath.Dir(f.name); dir != "." {
			if err := archive.WriteHeader(&cpio.Header{Name: dir, Mode: cpio.TypeDir | 0o755}); err != nil {
				return err
			}
		}
		if err := archive.WriteHeader(&cpio.Header{Name: f.name, Mode: cpio.TypeReg | f.mode, Size: int64(len(f.text))}); err != nil {
			return err
		}
		if _, err := archive.Write(f.text); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), out.Flush())
}

func writeEntry(archive *cpio.Writer, e image.Entry) error {
	h := &cpio.Header{Name: e.Path[1:], Mode: cpio.FileMode(image.Permissions(e.Mode))}
	switch e.Mode.Type() {
	case fs.ModeDir:
		h.Mode |= cpio.TypeDir
		return archive.WriteHeader(h)
	case fs.ModeSymlink:
		h.Mode |= cpio.TypeSymlink
		h.Size = int64(len(e.Link))
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.WriteString(archive, e.Link)
		return err
	}
	h.Mode |= cpio.TypeReg
	h.Size = e.Size
	if err := archive.WriteHeader(h); err != nil {
		return err
	}
	return e.CopyTo(archive)
}

// Content reads the content of an image.
func (Packer) Content(file string) (image.Content, error) {
	var start Start
	err := inFiles(file, func(name string, r io.Reader) error {
		if name != "/"+startName {
			return nil
		}
		text, err := io.ReadAll(r)
		start = parseStart(text)
		return err
	})
	return image.Content{
		Command: start.Args, Environment: start.Env,
		Files: func(yield func(string, io.Reader) error) error { return inFiles(file, yield) },
	}, err
}

// inFiles calls yield for every regular file in an image.
func inFiles(file string, yield func(name string, r io.Reader) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	h, err := readHeader(file, f)
	if err != nil {
		return err
	}
	archive := cpio.NewReader(bufio.NewReader(io.NewSectionReader(f, h.ramdisk, h.ramBytes)))
	for {
		e, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the files in %s: %w", file, err)
		}
		if e.Mode&^cpio.ModePerm != cpio.TypeReg {
			continue
		}
		if err := yield("/"+strings.TrimPrefix(e.Name, "/"), archive); err != nil {
			return err
		}
	}
}

// A Start is the command of the first program.
type Start struct {
	Args []string
	Env  []string // KEY=value
	Dir  string   // made if it does not exist; empty: the root
}

// records returns a Start in the format of the first program; see guest/init.c.
func (s Start) records() []byte {
	var b bytes.Buffer
	put := func(kind byte, text string) {
		b.WriteByte(kind)
		b.WriteString(text)
		b.WriteByte(0)
	}
	if s.Dir != "" {
		put('d', s.Dir)
	}
	for _, e := range s.Env {
		put('e', e)
	}
	for _, a := range s.Args {
		put('a', a)
	}
	return b.Bytes()
}

// parseStart reads the format of records.
func parseStart(text []byte) Start {
	var s Start
	for record := range bytes.SplitSeq(text, []byte{0}) {
		if len(record) == 0 {
			continue
		}
		rest := string(record[1:])
		switch record[0] {
		case 'd':
			s.Dir = rest
		case 'e':
			s.Env = append(s.Env, rest)
		case 'a':
			s.Args = append(s.Args, rest)
		}
	}
	return s
}

// Handover returns the message that the host sends on the control port when the machine starts. It
// has the command, which replaces the image's command. Without arguments, the image's command
// runs.
func (s Start) Handover() []byte {
	var records []byte
	if len(s.Args) > 0 {
		records = s.records()
	}
	return append(fmt.Appendf(nil, "start %d\n", len(records)), records...)
}
