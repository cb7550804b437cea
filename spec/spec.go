// Package spec holds the two files that a user writes, the deployment and the
// workload (NFV-VITAL, section III), in JSON or YAML. Both are read by one
// parser that keeps positions, checked against the JSON Schema that is
// generated from the types here, then checked for meaning. Whatever is wrong is
// a *vitrine.BadInput at its file, line and column; a file's errors are all
// reported, joined in the order of their places.
package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"vitrine"
)

//go:generate go test -run ^TestPublishedSchema$ . -update

// MaxFile is the size of the largest file that is read, in bytes.
const MaxFile = 1 << 20

// Known says what the back ends add to the files. A key is a name that the file
// may use; its value, of the type that the back end decodes its part into, is
// what the part's schema is made from (nil: the part takes no field). A map that
// is nil leaves its names and parts unchecked.
type Known struct {
	Substrates map[string]any // parts are under servers.<name>
	Fabrics    map[string]any // parts are under servers.<name>
	Servers    map[string]any // parts under servers.<name> that go with any of them: "impair"
	Generators map[string]any // the part is the workload's parameters
}

// A File is a file as the user gave it.
type File struct {
	Path   string // as the user named it
	Raw    []byte
	Digest string // SHA-256 of Raw, in hexadecimal
	folder string // absolute; what relative paths in the file start from
}

// BadInput is an error at the value that path leads to, for what is found only
// when the file is put to use.
func (f File) BadInput(found, want string, path ...string) *vitrine.BadInput {
	root, err := parse(f.Path, f.Raw)
	if err != nil { // loading has read it
		return &vitrine.BadInput{File: f.Path, Found: found, Want: want}
	}
	return root.BadInput(found, want, path...)
}

// The kinds of files. A profile is written by Vitrine, and users' programs read it.
const (
	KindDeployment = "deployment"
	KindWorkload   = "workload"
	KindProfile    = "profile"
)

// Kind says which kind of file is at path, by the fields that it has most of.
// One that has none of either kind is a *vitrine.BadInput.
func Kind(path string) (string, error) {
	raw, err := readFile(path)
	if err != nil {
		return "", err
	}
	root, err := parse(path, raw)
	if err != nil {
		return "", err
	}
	deployment, workload := 0, 0
	for field := range fieldsOf[Deployment]() {
		if child(root.node, field) != nil {
			deployment++
		}
	}
	for field := range fieldsOf[Workload]() {
		if child(root.node, field) != nil {
			workload++
		}
	}
	switch {
	case deployment > workload:
		return KindDeployment, nil
	case workload > deployment:
		return KindWorkload, nil
	}
	return "", root.BadInput("neither a deployment nor a workload", "a deployment has vnf_name, components, flavors and mode; a workload has generator, range, increase and duration")
}

// fieldsOf are the names in a file of a struct's fields.
func fieldsOf[T any]() iter.Seq[string] {
	return func(yield func(string) bool) {
		t := reflect.TypeFor[T]()
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
			if name != "" && name != "-" && !yield(name) {
				return
			}
		}
	}
}

// newFile makes the File of what was read from path.
func newFile(path string, raw []byte) (File, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return File{}, fmt.Errorf("find the folder of %s: %w", path, err)
	}
	sum := sha256.Sum256(raw)
	return File{Path: path, Raw: raw, Digest: hex.EncodeToString(sum[:]), folder: filepath.Dir(absolute)}, nil
}

// Resolve makes a path in the file absolute: relative ones start from the
// file's own folder.
func (f File) Resolve(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(f.folder, path)
}

// program resolves a command's program in place: one with a slash is a path; a
// bare name ("vitrine", "kamailio") stays, to be looked up where it runs.
func (f File) program(command Args) {
	if len(command) > 0 && isPath(command[0]) {
		command[0] = f.Resolve(command[0])
	}
}

// isPath says whether a program is named by a path that the file knows, and not
// by a bare name or with a variable in it.
func isPath(program string) bool {
	return strings.ContainsRune(program, '/') && !strings.Contains(program, "${")
}

// readFile reads a file of at most MaxFile bytes.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: reason(err), Want: "name a deployment or workload file that can be read"}
	}
	defer file.Close() // only read from
	raw, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: reason(err), Want: "name a deployment or workload file that can be read"}
	}
	if len(raw) > MaxFile {
		return nil, &vitrine.BadInput{File: path, Found: "larger than 1 MiB", Want: "a deployment or workload file has a few kilobytes; is it the right file?"}
	}
	return raw, nil
}

// reason is the error without the operation and path that the message around
// it already names.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// executable says why the path is no program that can be read and run; empty
// when it is one.
func executable(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return reason(err)
	case !info.Mode().IsRegular():
		return "not a regular file"
	case unix.Access(path, unix.R_OK) != nil:
		return "not readable"
	case unix.Access(path, unix.X_OK) != nil:
		return "not executable"
	}
	return ""
}

// names are the sorted keys of a mapping.
func names[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
