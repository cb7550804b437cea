// Package spec holds the two files that a user writes, the deployment and the
// workload (NFV-VITAL, section III). Package document reads them and checks
// their form; then their meaning is checked here.
package spec

import (
	"errors"
	"iter"
	"os"
	"reflect"
	"strings"

	"golang.org/x/sys/unix"

	"vitrine/document"
)

//go:generate go test -run ^TestPublishedSchema$ . -update

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

// anyKind is what both files are called in messages about their form.
const anyKind = "a deployment or workload"

// The kinds of files. A profile is written by Vitrine, and users' programs read it.
const (
	KindDeployment = "deployment"
	KindWorkload   = "workload"
	KindProfile    = "profile"
)

// Kind says which kind of file is at path, by the fields that it has most of.
// One that has none of either kind is a *vitrine.BadInput.
func Kind(path string) (string, error) {
	file, err := document.Read(path, anyKind)
	if err != nil {
		return "", err
	}
	root := file.Root()
	deployment, workload := 0, 0
	for field := range fieldsOf[Deployment]() {
		if !root.Sub(field).IsZero() {
			deployment++
		}
	}
	for field := range fieldsOf[Workload]() {
		if !root.Sub(field).IsZero() {
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

// program resolves a command's program in place: one with a slash is a path; a
// bare name ("vitrine", "kamailio") stays, to be looked up where it runs.
func (d *Deployment) program(command Args) {
	if len(command) > 0 && isPath(command[0]) {
		command[0] = d.Resolve(command[0])
	}
}

// isPath says whether a program is named by a path that the file knows, and not
// by a bare name or with a variable in it.
func isPath(program string) bool {
	return strings.ContainsRune(program, '/') && !strings.Contains(program, "${")
}

// executable says why the path is no program that can be read and run; empty
// when it is one.
func executable(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return errors.Unwrap(err).Error() // what a *fs.PathError says beside the path
	case !info.Mode().IsRegular():
		return "not a regular file"
	case unix.Access(path, unix.R_OK) != nil:
		return "not readable"
	case unix.Access(path, unix.X_OK) != nil:
		return "not executable"
	}
	return ""
}
