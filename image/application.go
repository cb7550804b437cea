package image

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"vitrine"
	"vitrine/document"
)

// An Application is the content of application.yaml, from which the images for all
// substrates are built.
type Application struct {
	Name        string            `yaml:"name" json:"name" jsonschema:"required,pattern=^[a-z0-9][a-z0-9_.-]*$"` // Name of the images.
	Command     []string          `yaml:"command" json:"command" jsonschema:"required,minItems=1"`               // Command that runs in the images; the first word is the program, looked up on this host.
	Environment map[string]string `yaml:"environment" json:"environment,omitempty"`                              // Variables of the command.

	// Program is the executable on this host, if the command does not name it.
	Program string `yaml:"program" json:"program,omitempty"`

	Configuration []File         `yaml:"configuration" json:"configuration,omitempty"` // Files that configure the application; part of the digest by which images are compared.
	Files         []File         `yaml:"files" json:"files,omitempty"`                 // Other files that the application needs; folders with their content.
	Packages      []string       `yaml:"packages" json:"packages,omitempty"`           // Debian packages, installed on this host, with all their files except documentation.
	Ports         map[string]int `yaml:"ports" json:"ports,omitempty"`                 // Ports on which the application listens.

	file document.File
}

// A File is a file of an application: from this host, or with its own text.
type File struct {
	Target string  `yaml:"target" json:"target" jsonschema:"required,pattern=^/"` // Absolute path in the image.
	Source string  `yaml:"source" json:"source,omitempty"`                        // File or folder of this host; relative to the description.
	Text   *string `yaml:"text" json:"text,omitempty"`                            // The file's content, instead of a source.
}

// Load reads and checks a description.
func Load(file string) (*Application, error) {
	read, err := document.Read(file, "an application")
	if err != nil {
		return nil, err
	}
	a := &Application{file: read}
	if err := read.Root().Decode(a); err != nil {
		return nil, err
	}
	return a, a.check()
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)

// OfProgram returns the description of a single program of this host.
func OfProgram(command []string) (*Application, error) {
	if len(command) == 0 {
		return nil, &vitrine.BadInput{File: "command", Found: "no program", Want: "name a program, or an image with a program"}
	}
	name := strings.Trim(strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789_.-", r) {
			return r
		}
		return '-'
	}, strings.ToLower(filepath.Base(command[0]))), "-._")
	return &Application{Name: "of-" + name, Command: command}, nil
}

func (a *Application) check() error {
	var errs []error
	if !namePattern.MatchString(a.Name) {
		errs = append(errs, a.file.BadInput(fmt.Sprintf("name %q", a.Name), "want lower-case letters, digits and . _ - inside", "name"))
	}
	if len(a.Command) == 0 || a.Command[0] == "" {
		errs = append(errs, a.file.BadInput("no command", "name the program that the image runs", "command"))
	}
	for _, list := range a.lists() {
		for i, f := range list.files {
			if bad := f.problem(); bad != "" {
				errs = append(errs, a.file.BadInput(bad, "", list.name, fmt.Sprint(i)))
			}
		}
	}
	for name, port := range a.Ports {
		if port < 1 || port > 65535 {
			errs = append(errs, a.file.BadInput(fmt.Sprintf("port %d", port), "want 1 to 65535", "ports", name))
		}
	}
	return errors.Join(errs...)
}

// A fileList is one of the lists of files in the description.
type fileList struct {
	name  string
	files []File
}

// lists returns the lists in the order in which their files are added. The configuration
// comes last, so that it replaces other files of the same path.
func (a *Application) lists() []fileList {
	return []fileList{{"files", a.Files}, {"configuration", a.Configuration}}
}

func (f File) problem() string {
	switch {
	case !path.IsAbs(f.Target) || path.Clean(f.Target) != f.Target || f.Target == "/":
		return fmt.Sprintf("target %q: want a clean absolute path", f.Target)
	case reserved(f.Target) != "":
		return fmt.Sprintf("target %q: %s", f.Target, reserved(f.Target))
	case (f.Source == "") == (f.Text == nil):
		return fmt.Sprintf("%s: want either a source or a text", f.Target)
	}
	return ""
}

// reserved returns why images cannot have a file at an absolute path; empty: they can.
func reserved(target string) string {
	switch {
	case slices.Contains([]string{"vitrine", "init", "dev", "proc", "sys", "run"}, strings.Split(target, "/")[1]):
		return "the image reserves that path"
	case slices.Contains([]string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}, target), strings.HasPrefix(target+"/", "/var/run/"):
		return "some substrates have their own file or folder there"
	}
	return ""
}

// environment returns the command's variables, sorted, as KEY=value.
func (a *Application) environment() []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(a.Environment)) {
		list = append(list, key+"="+a.Environment[key])
	}
	return list
}

// Tree collects everything that the application needs from this host: its program, its
// configuration and files, the libraries of all executables, and the folders that programs expect.
// If something is missing, the error is a *vitrine.BadInput.
func (a *Application) Tree() (*Tree, error) {
	t := newTree()
	for _, dir := range []string{"/dev", "/proc", "/sys", "/run", "/etc", "/var"} {
		t.addDir(dir, 0o755)
	}
	t.addDir("/tmp", 0o1777)
	if err := a.addProgram(t); err != nil {
		return nil, err
	}
	for _, name := range a.Packages {
		if err := t.addPackage(name); err != nil {
			return nil, err
		}
	}
	for _, list := range a.lists() {
		for i, f := range list.files {
			if err := a.addFile(t, list.name, i, f); err != nil {
				return nil, err
			}
		}
	}
	for target, text := range map[string]string{
		"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"/etc/group":  "root:x:0:\nnogroup:x:65534:\n",
		"/etc/hosts":  "127.0.0.1 localhost\n",
	} {
		if !t.has(target) {
			t.add(Entry{Path: target, Mode: 0o644, Size: int64(len(text)), text: text, fallback: true})
		}
	}
	return t, t.addLibraries()
}

// addProgram adds the program at the path where the command looks for it. A program without
// an absolute path goes to /usr/bin.
func (a *Application) addProgram(t *Tree) error {
	named, source := a.Command[0], a.Program
	target := named
	if !path.IsAbs(named) {
		target = "/usr/bin/" + path.Base(named)
	}
	var err error
	switch {
	case source != "":
		source = a.resolve(source)
	case strings.ContainsRune(named, '/'):
		source = a.resolve(named)
	default:
		source, err = exec.LookPath(named)
	}
	if err == nil {
		t.Command = append([]string{target}, a.Command[1:]...)
		t.Environment = a.environment()
		err = t.addSource(target, source, t.addOne)
	}
	if err != nil {
		at := "command"
		if a.Program != "" {
			at = "program"
		}
		return a.badInput(err.Error(), "want a program on this host", at)
	}
	return nil
}

// badInput returns an error at a position in the description, if the description comes from a
// file.
func (a *Application) badInput(found, want string, path ...string) error {
	if a.file.Path == "" {
		return &vitrine.BadInput{File: a.Name, Found: found, Want: want}
	}
	return a.file.BadInput(found, want, path...)
}

func (a *Application) addFile(t *Tree, list string, i int, f File) error {
	if slices.ContainsFunc(a.Configuration, func(c File) bool { return c.Target == f.Target }) {
		t.Configuration = append(t.Configuration, f.Target)
	}
	if f.Text != nil {
		t.addText(f.Target, *f.Text)
		return nil
	}
	source := a.resolve(f.Source)
	if err := t.addSource(f.Target, source, t.addGiven); err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return a.badInput(err.Error(), "want a file or folder of this host for "+f.Target, list, strconv.Itoa(i), "source")
		}
		return err
	}
	return nil
}

func (a *Application) resolve(source string) string {
	if a.file.Path == "" || filepath.IsAbs(source) {
		return source
	}
	return a.file.Resolve(source)
}
