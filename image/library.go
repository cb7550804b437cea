package image

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"vitrine"
)

// addLibraries adds the loader and the shared libraries of the tree's executables and libraries,
// and the libraries that those need in turn (ELF, System V ABI chapter 5, DT_NEEDED). No file
// names the libraries that a program opens with dlopen(3), so they must be among the description's
// files.
func (t *Tree) addLibraries() error {
	l := linker{tree: t, conf: "/etc/ld.so.conf"}
	for _, e := range t.Entries() {
		if e.source != "" {
			l.queue = append(l.queue, object{source: e.source, target: e.Path})
		}
	}
	for len(l.queue) > 0 {
		o := l.queue[0]
		l.queue = l.queue[1:]
		if err := l.add(o); err != nil {
			return err
		}
	}
	return nil
}

// A linker finds libraries in the way of the dynamic linker (ld.so(8)).
type linker struct {
	tree   *Tree
	queue  []object // objects whose libraries are not added yet
	system []string // folders that are searched for every object
	conf   string   // file with folders, in the syntax of ldconfig(8)
}

// An object is an ELF file.
type object struct {
	source string   // on this host
	target string   // in the tree
	rpath  []folder // DT_RPATH of the objects that need this object; applies to this object, too
}

// A folder holds libraries. host and tree differ if the folder is relative to a program
// that has another path in the tree.
type folder struct{ host, tree string }

// add adds the libraries that the object needs. A file that is not ELF needs none.
func (l *linker) add(o object) error {
	f, err := elf.Open(o.source)
	var format *elf.FormatError
	if errors.As(err, &format) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the libraries of %s: %w", o.source, err)
	}
	defer f.Close()
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return nil
	}
	if loader, err := Interpreter(f); err != nil {
		return fmt.Errorf("reading the loader of %s: %w", o.source, err)
	} else if loader != "" {
		if err := l.take(o, loader, loader, nil); err != nil {
			return err
		}
	}
	needed, err := f.ImportedLibraries()
	if err != nil || len(needed) == 0 {
		return nil // a static executable
	}
	search, inherited := searchPath(f, o)
	for _, name := range needed {
		if err := l.find(f, o, name, search, inherited); err != nil {
			return err
		}
	}
	return nil
}

// Interpreter returns the loader that an executable names; empty: it is static.
func Interpreter(f *elf.File) (string, error) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
			return string(bytes.TrimRight(b, "\x00")), err
		}
	}
	return "", nil
}

// searchPath returns the folders to search first for the object's libraries. DT_RUNPATH applies
// only to these libraries. DT_RPATH also applies to the libraries that they need.
func searchPath(f *elf.File, o object) (search, inherited []folder) {
	in := func(dir, origin string) string {
		return path.Clean(strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin).Replace(dir))
	}
	folders := func(tag elf.DynTag) (list []folder) {
		values, err := f.DynString(tag)
		if err != nil {
			return nil
		}
		for _, v := range values {
			for dir := range strings.SplitSeq(v, ":") {
				at := folder{host: in(dir, path.Dir(o.source)), tree: in(dir, path.Dir(o.target))}
				if path.IsAbs(at.tree) {
					list = append(list, at)
				}
			}
		}
		return list
	}
	if run := folders(elf.DT_RUNPATH); len(run) > 0 {
		return run, o.rpath
	}
	all := append(folders(elf.DT_RPATH), o.rpath...)
	return all, all
}

// find finds a library by its name and adds it.
func (l *linker) find(f *elf.File, o object, name string, search, inherited []folder) error {
	if strings.ContainsRune(name, '/') {
		return l.take(o, name, name, inherited)
	}
	for _, dir := range search {
		source, target := path.Join(dir.host, name), path.Join(dir.tree, name)
		if l.tree.has(target) {
			return nil // the queue has the library, because it is one of the files
		}
		if isCompatible(f, source) {
			return l.take(o, source, target, inherited)
		}
	}
	folders, err := l.folders()
	if err != nil {
		return err
	}
	for _, dir := range folders {
		source := path.Join(dir, name)
		if !isCompatible(f, source) {
			continue
		}
		target := source
		if !standard(dir) {
			// An image has no /etc/ld.so.cache, so the library goes where Debian's loader looks first.
			target = path.Join(standards(runtime.GOARCH)[0], name)
		}
		return l.take(o, source, target, inherited)
	}
	return &vitrine.BadInput{File: o.source, Found: "needs the library " + name + ", which this host lacks", Want: "install the package that has the library"}
}

// take adds a library or loader to the tree and to the queue.
func (l *linker) take(by object, source, target string, rpath []folder) error {
	if l.tree.has(target) {
		return nil
	}
	if err := l.tree.addSource(target, source, l.tree.addOne); err != nil {
		return &vitrine.BadInput{File: by.source, Found: fmt.Sprintf("needs %s: %v", source, err), Want: "install the package that has the file"}
	}
	l.queue = append(l.queue, object{source: source, target: target, rpath: rpath})
	return nil
}

// isCompatible reports whether the path is an ELF file for the same machine.
func isCompatible(f *elf.File, file string) bool {
	lib, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer lib.Close()
	return lib.Class == f.Class && lib.Machine == f.Machine
}

// standard reports whether every loader searches the folder by default.
func standard(dir string) bool { return slices.Contains(standards(runtime.GOARCH), dir) }

// standards returns the folders compiled into the loaders of Debian and other distributions, for an
// architecture's name in Go. Debian's come first: /lib/TRIPLET (https://wiki.debian.org/Multiarch/Tuples).
func standards(arch string) []string {
	folders := []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib"}
	triplet := map[string]string{
		"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu", "ppc64le": "powerpc64le-linux-gnu", "riscv64": "riscv64-linux-gnu",
	}[arch]
	if triplet == "" {
		return folders
	}
	return append([]string{"/lib/" + triplet, "/usr/lib/" + triplet}, folders...)
}

// folders returns the folders of the loader's configuration and then the standard ones, which is the
// order of the loader (ldconfig(8)).
func (l *linker) folders() ([]string, error) {
	if l.system != nil {
		return l.system, nil
	}
	var list []string
	err := readLoaderConf(l.conf, 0, func(dir string) { list = append(list, dir) })
	l.system = append(list, standards(runtime.GOARCH)...)
	return l.system, err
}

// readLoaderConf passes the folders of a file in the syntax of ldconfig(8) to found.
func readLoaderConf(name string, depth int, found func(string)) error {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || depth > 8 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the folders of libraries: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 2 && words[0] == "include" {
			pattern := words[1]
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(name), pattern)
			}
			files, err := filepath.Glob(pattern)
			if err != nil {
				return fmt.Errorf("reading the folders of libraries: %s: %w", name, err)
			}
			for _, more := range files {
				if err := readLoaderConf(more, depth+1, found); err != nil {
					return err
				}
			}
			continue
		}
		for _, dir := range words {
			if path.IsAbs(dir) {
				found(path.Clean(dir))
			}
		}
	}
	return nil
}
