package image

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"vitrine"
)

// A Tree is the content of an image: its files by absolute path, and the command that runs in it.
type Tree struct {
	Command       []string // the first is the program, an absolute path in the tree
	Environment   []string // KEY=value, sorted
	Configuration []string // paths of the configuration files

	entries map[string]Entry
}

// An Entry is one file of a tree.
type Entry struct {
	Path string      // absolute and clean
	Mode fs.FileMode // a directory, a regular file or a symbolic link, with permissions
	Link string      // target of a symbolic link
	Size int64       // of a regular file, bytes

	source   string // file of this host; empty: text
	text     string
	fallback bool // used only if the system has no file of that name
}

func (e Entry) open() (io.ReadCloser, error) {
	if e.source == "" {
		return io.NopCloser(strings.NewReader(e.text)), nil
	}
	return os.Open(e.source)
}

// CopyTo writes a regular file's content. It fails if the file's size has changed.
func (e Entry) CopyTo(w io.Writer) error {
	r, err := e.open()
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := io.Copy(w, r)
	if err == nil && n != e.Size {
		err = fmt.Errorf("%s: its size changed from %d to %d bytes", e.Path, e.Size, n)
	}
	return err
}

// Bare returns the tree without the files that only an image from scratch needs, such as
// /etc/passwd. On top of a system, they would replace the system's own files.
func (t *Tree) Bare() *Tree {
	bare := t.clone()
	maps.DeleteFunc(bare.entries, func(_ string, e Entry) bool { return e.fallback })
	return bare
}

// withFile returns a copy of the tree with one more file.
func (t *Tree) withFile(name, text string) *Tree {
	more := t.clone()
	more.addText(name, text)
	return more
}

func (t *Tree) clone() *Tree {
	c := *t
	c.entries = maps.Clone(t.entries)
	return &c
}

func newTree() *Tree { return &Tree{entries: make(map[string]Entry)} }

// Entries returns the tree's files, every folder before its content. The root
// itself is not in the list.
func (t *Tree) Entries() []Entry {
	list := make([]Entry, 0, len(t.entries))
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		list = append(list, t.entries[name])
	}
	return list
}

// Size returns the size of all regular files together, in bytes.
func (t *Tree) Size() int64 {
	var n int64
	for _, e := range t.entries {
		n += e.Size
	}
	return n
}

func (t *Tree) has(name string) bool {
	_, ok := t.entries[name]
	return ok
}

// add adds an entry, and the folders above it.
func (t *Tree) add(e Entry) {
	for dir := path.Dir(e.Path); dir != "/" && !t.has(dir); dir = path.Dir(dir) {
		t.entries[dir] = Entry{Path: dir, Mode: fs.ModeDir | 0o755}
	}
	t.entries[e.Path] = e
}

// addDir adds a folder; mode is as in chmod(1).
func (t *Tree) addDir(name string, mode uint32) {
	m := fs.ModeDir | fs.FileMode(mode&0o777)
	if mode&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	t.add(Entry{Path: name, Mode: m})
}

func (t *Tree) addText(name, text string) {
	t.add(Entry{Path: name, Mode: 0o644, Size: int64(len(text)), text: text})
}

// addSource adds a file of this host, or a folder with its content, each with add. It follows a
// symbolic link at the source itself, but keeps the links within a folder.
func (t *Tree) addSource(target, source string, add func(target, source string, info fs.FileInfo) error) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	followed, err := filepath.EvalSymlinks(source)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return add(target, followed, info)
	}
	return filepath.WalkDir(followed, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return add(path.Join(target, strings.TrimPrefix(name, followed)), name, info)
	})
}

// addOne adds the source itself. It does not follow a link.
func (t *Tree) addOne(target, source string, info fs.FileInfo) error {
	e := Entry{Path: target, Mode: info.Mode() & (fs.ModeType | fs.ModePerm | fs.ModeSticky)}
	switch info.Mode().Type() {
	case fs.ModeDir:
	case fs.ModeSymlink:
		link, err := os.Readlink(source)
		if err != nil {
			return err
		}
		e.Link = link
	case 0:
		f, err := os.Open(source) // reports an unreadable file now, not when the image is written
		if err != nil {
			return err
		}
		f.Close()
		e.source, e.Size = source, info.Size()
	default:
		return fmt.Errorf("%s is neither a file nor a folder: %w", source, fs.ErrInvalid)
	}
	t.add(e)
	return nil
}

// addGiven is like addOne, but refuses a reserved target. It leaves out a folder there, because
// packages have such folders without files.
func (t *Tree) addGiven(target, source string, info fs.FileInfo) error {
	why := reserved(target)
	switch {
	case why == "":
		return t.addOne(target, source, info)
	case info.IsDir():
		return nil
	}
	return &vitrine.BadInput{File: source, Found: fmt.Sprintf("target %q: %s", target, why), Want: "list the files that the application needs, without this one"}
}

// dpkgInfo is where dpkg keeps the file lists of installed packages.
const dpkgInfo = "/var/lib/dpkg/info"

// isDocumentation reports whether the file is documentation or similar, which no program reads at
// run time.
func isDocumentation(name string) bool {
	dirs := []string{"/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/lintian/", "/usr/share/info/", "/lib/systemd/", "/usr/lib/systemd/"}
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(name+"/", dir) })
}

// addPackage adds the files of a Debian package that is installed on this host.
func (t *Tree) addPackage(name string) error {
	list, err := os.Open(filepath.Join(dpkgInfo, name+".list"))
	if errors.Is(err, fs.ErrNotExist) { // packages of several architectures have another file name
		found, _ := filepath.Glob(filepath.Join(dpkgInfo, name+":*.list"))
		if len(found) > 0 {
			list, err = os.Open(found[0])
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &vitrine.Unsupported{What: "the Debian package " + name + " in an image", Missing: "it is not installed", Do: "apt-get install " + name + ", or name the files themselves"}
	}
	if err != nil {
		return fmt.Errorf("the package %s: %w", name, err)
	}
	defer list.Close()
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		file := lines.Text()
		if file == "/." || isDocumentation(file) || t.has(file) { // the program is already in the tree, with its link followed
			continue
		}
		info, err := os.Lstat(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed on this host; documentation often is
		}
		if err != nil {
			return fmt.Errorf("the package %s: %w", name, err)
		}
		if dir, err := os.Stat(file); err == nil && dir.IsDir() {
			info = dir // such as /lib, which is a link on hosts with a merged /usr
		}
		if err := t.addGiven(file, file, info); err != nil {
			return fmt.Errorf("the package %s: %w", name, err)
		}
	}
	return lines.Err()
}
