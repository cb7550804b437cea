// Package document reads files that users write, in YAML or JSON. One parser
// keeps the place of every value. A file is checked against the JSON Schema that
// is generated from the Go type it is read into. Every error of a file is a
// *vitrine.BadInput at its line and column. All of them are reported, joined in
// the order of their places.
package document

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"vitrine"
)

// MaxFile is the size of the largest file that is read, in bytes.
const MaxFile = 1 << 20

// A File is a file as the user wrote it.
type File struct {
	Path   string // as the user named it
	Raw    []byte
	Digest string // SHA-256 of Raw, in hexadecimal
	folder string // absolute; relative paths in the file start from it
	root   Node
}

// Read reads the file at path. Messages call its content by what, such as "a
// workload".
func Read(path, what string) (File, error) {
	unreadable := func(err error) (File, error) {
		return File{}, &vitrine.BadInput{File: path, Found: reason(err), Want: "name " + what + " file that can be read"}
	}
	file, err := os.Open(path)
	if err != nil {
		return unreadable(err)
	}
	defer file.Close() // only read from
	raw, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err != nil {
		return unreadable(err)
	}
	if len(raw) > MaxFile {
		return File{}, &vitrine.BadInput{File: path, Found: "larger than 1 MiB", Want: what + " file has a few kilobytes; is it the right file?"}
	}
	return Parse(path, raw, what)
}

// Parse is like Read, but takes the bytes from the caller. Relative paths in them
// start from path's folder.
func Parse(path string, raw []byte, what string) (File, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return File{}, fmt.Errorf("find the folder of %s: %w", path, err)
	}
	root, err := parse(path, raw, what)
	if err != nil {
		return File{}, err
	}
	sum := sha256.Sum256(raw)
	return File{Path: path, Raw: raw, Digest: hex.EncodeToString(sum[:]), folder: filepath.Dir(absolute), root: root}, nil
}

// Root is the whole content of the file.
func (f File) Root() Node { return f.root }

// BadInput makes an error at the value that path leads to. Callers use it for
// errors that show only when the content is used.
func (f File) BadInput(found, want string, path ...string) *vitrine.BadInput {
	return f.root.BadInput(found, want, path...)
}

// Resolve makes a path in the file absolute: relative ones start from the
// file's own folder.
func (f File) Resolve(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(f.folder, path)
}

// reason is the error without the operation and the path: the message around it
// names them.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
