// Package spec defines the two files that a user writes: the deployment and the
// workload (NFV-VITAL, section III). Package document reads the files and checks
// them against their schemas. Package spec then checks what a schema cannot
// express.
package spec

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

//go:generate go test -run ^TestPublishedSchema$ . -update

// Known lists what the back ends add to the files. A key is a name that the file
// may use. Its value has the type that the back end decodes its part into; the
// part's schema is generated from that type. A nil value means that the part takes
// no fields. A nil map leaves its names and parts unchecked.
type Known struct {
	Substrates map[string]any // parts are under servers.<name>
	Fabrics    map[string]any // parts are under servers.<name>
	Servers    map[string]any // parts under servers.<name> that combine with any of these: "impair"
	Generators map[string]any // the part is the workload's parameters
}

// anyKind names both kinds of file in messages about their syntax.
const anyKind = "a deployment or workload"

// The kinds of files. Vitrine writes profiles, and users' programs read them.
const (
	KindDeployment = "deployment"
	KindWorkload   = "workload"
	KindProfile    = "profile"
)

// resolveProgram resolves the program of a command in place. A name with a slash is a
// path. A bare name ("vitrine", "kamailio") stays, because it is looked up where it
// runs.
func (d *Deployment) resolveProgram(command Args) {
	if len(command) > 0 && isPath(command[0]) {
		command[0] = d.Resolve(command[0])
	}
}

// isPath reports whether program is a path that can be resolved now, rather than a
// bare name or a name with a variable.
func isPath(program string) bool {
	return strings.ContainsRune(program, '/') && !strings.Contains(program, "${")
}

// whyNotExecutable returns why the path is not a file that can be read and executed, or
// "" if it is.
func whyNotExecutable(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return errors.Unwrap(err).Error() // the reason in the *fs.PathError, without the path
	case !info.Mode().IsRegular():
		return "not a regular file"
	case unix.Access(path, unix.R_OK) != nil:
		return "not readable"
	case unix.Access(path, unix.X_OK) != nil:
		return "not executable"
	}
	return ""
}
