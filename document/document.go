// Package document reads files that users write, in YAML or JSON. One parser
// keeps the position of every value. Each file is checked against the JSON Schema
// generated from the Go type that the file is decoded into. Every error in a file
// is a *vitrine.BadInput with its line and column. All errors are reported
// together, in the order of their positions.
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

// MaxFile is the largest file size that Read accepts, in bytes.
const MaxFile = 1 << 20

// longFactor is how many times larger a file of ReadLong may be. A file of names has up to 65,536
// functions of 100 bytes.
const longFactor = 8

// A File holds a user's file: its bytes and its parsed content.
type File struct {
	Path   string // as the user named it
	Raw    []byte
	Digest string // SHA-256 of Raw, in hexadecimal
	folder string // absolute; relative paths in the file are resolved against it
	root   Node
}

// Read reads the file at path. what names the kind of content in messages, for
// example "a workload".
func Read(path, what string) (File, error) { return read(path, what, 1) }

// ReadLong is like Read for a file that may list all functions of a network. It
// may have 8 MiB.
func ReadLong(path, what string) (File, error) { return read(path, what, longFactor) }

// read reads a file of at most factor times MaxFile.
func read(path, what string, factor int) (File, error) {
	unreadable := func(err error) (File, error) {
		return File{}, &vitrine.BadInput{File: path, Found: reason(err), Want: "name " + what + " file that can be read"}
	}
	file, err := os.Open(path)
	if err != nil {
		return unreadable(err)
	}
	defer file.Close() // opened read-only
	raw, err := io.ReadAll(io.LimitReader(file, int64(factor)*MaxFile+1))
	if err != nil {
		return unreadable(err)
	}
	return parseFile(path, raw, what, factor)
}

// Parse is like Read, but takes the bytes from the caller. Relative paths in them
// are resolved against the folder of path.
func Parse(path string, raw []byte, what string) (File, error) { return parseFile(path, raw, what, 1) }

// parseFile parses a file of at most factor times MaxFile.
func parseFile(path string, raw []byte, what string, factor int) (File, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return File{}, fmt.Errorf("find the folder of %s: %w", path, err)
	}
	root, err := parse(path, raw, what, factor)
	if err != nil {
		return File{}, err
	}
	sum := sha256.Sum256(raw)
	return File{Path: path, Raw: raw, Digest: hex.EncodeToString(sum[:]), folder: filepath.Dir(absolute), root: root}, nil
}

// Root returns the whole content of the file.
func (f File) Root() Node { return f.root }

// BadInput returns an error at the value that path leads to. Callers use it for
// errors that they find only when they use the content.
func (f File) BadInput(found, want string, path ...string) *vitrine.BadInput {
	return f.root.BadInput(found, want, path...)
}

// Resolve makes a path from the file absolute. It resolves relative paths against
// the file's own folder.
func (f File) Resolve(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(f.folder, path)
}

// reason returns the error text without the operation and the path, because the
// surrounding message names them.
func reason(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}
