// Package runstate records what the host must know about each run: its label, whether it is alive,
// and what to undo once it is dead. Everything that a run makes on the host has its label. So
// cleaning finds what a dead run left, and does not touch what a live run uses.
//
// A run is a folder, <root>/<id>, with a file on which the run holds an flock(2). The kernel
// releases the lock however the run ends. So no dead run looks alive, and no live run looks dead.
package runstate

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockName  = "lock"
	newPrefix = ".new-" // of a folder that New has not named yet
	// New takes milliseconds. A process was killed inside New if its folder is older than newLimit.
	newLimit = time.Hour

	idLength = 8
	idDigits = "abcdefghijklmnopqrstuvwxyz0123456789"
)

var idPattern = regexp.MustCompile(`^[a-z0-9]{8}$`)

// A Run is a run of this process. It is alive from New until Close, Abandon or the end of the
// process.
type Run struct {
	ID   string // label of everything that the run makes: 8 characters of a-z and 0-9
	Root string // parent of the run's own folder

	lock  *os.File
	close sync.Once
	err   error
}

// DefaultRoot returns the folder of the runs. For root it is one folder for the whole host, and
// for another user it is the user's own.
func DefaultRoot() string {
	if os.Geteuid() == 0 {
		return "/run/vitrine"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "vitrine")
	}
	return temporaryRoot()
}

// temporaryRoot returns the folder of an ordinary user's runs without XDG_RUNTIME_DIR.
func temporaryRoot() string {
	return filepath.Join(os.TempDir(), "vitrine-"+strconv.Itoa(os.Geteuid()))
}

// Roots returns the folders to clean: DefaultRoot and, for an ordinary user, the folder of runs without
// XDG_RUNTIME_DIR, such as those of cron, if there is one.
func Roots() []string {
	roots := []string{DefaultRoot()}
	if other := temporaryRoot(); os.Geteuid() != 0 && other != roots[0] && Private(other) == nil {
		roots = append(roots, other)
	}
	return roots
}

// New starts a run. It chooses an unused label and makes the run's folder below root. It makes root
// if it does not exist, and refuses a root that other users can write to.
func New(root string) (*Run, error) {
	if err := MakeRoot(root); err != nil {
		return nil, err
	}
	// New makes the folder under another name, locks it and then renames it, because a folder
	// without a lock looks like a dead run.
	making, err := os.MkdirTemp(root, newPrefix)
	if err != nil {
		return nil, fmt.Errorf("making a folder for the run: %w", err)
	}
	lock, err := hold(filepath.Join(making, lockName))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(making))
	}
	for {
		id := newID()
		err := os.Rename(making, filepath.Join(root, id))
		if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
			continue
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("naming the run's folder: %w", err), lock.Close(), os.RemoveAll(making))
		}
		return &Run{ID: id, Root: root, lock: lock}, nil
	}
}

// Name returns the name of a namespace, container or machine of a run. Cleaning deletes the
// namespaces of a dead run by this prefix, whoever made them.
func Name(run, of string) string { return "vt-" + run + "-" + of }

// Dir returns the run's own folder.
func (r *Run) Dir() string { return filepath.Join(r.Root, r.ID) }

// Close ends the run and removes its folder, unless records still have to be undone. Call it last,
// when everything with the label is removed. It may be called more than once.
func (r *Run) Close() error { return r.end(r.forget) }

// Abandon ends the run but keeps its folder. Use it if something with the label may still exist.
// Cleaning then finds the dead run.
func (r *Run) Abandon() error { return r.end(func() error { return nil }) }

func (r *Run) end(first func() error) error {
	r.close.Do(func() {
		r.err = first()
		if err := r.lock.Close(); err != nil {
			r.err = errors.Join(r.err, fmt.Errorf("releasing run %s: %w", r.ID, err))
		}
	})
	return r.err
}

func (r *Run) forget() error {
	recorded, err := fs.Glob(os.DirFS(r.Dir()), "*/[^.]*")
	if err == nil && len(recorded) == 0 {
		err = os.RemoveAll(r.Dir())
	}
	if err != nil {
		return fmt.Errorf("removing the folder of run %s: %w", r.ID, err)
	}
	return nil
}

// Alive reports whether a process holds the run now. A run whose lock cannot be read counts as
// alive, because callers remove what belongs to a dead run.
func Alive(root, id string) bool {
	held, err := isHeld(filepath.Join(root, id, lockName))
	return held || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// Dead lists the runs below root that no process holds any more. It omits labels without a folder
// below root, because a live run may have its folder elsewhere.
func Dead(root string) ([]string, error) {
	entries, err := list(root)
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, e := range entries {
		if !idPattern.MatchString(e.Name()) {
			continue
		}
		held, err := isHeld(filepath.Join(root, e.Name(), lockName))
		if err == nil && !held {
			dead = append(dead, e.Name())
		}
	}
	return dead, nil
}

// list lists what is in the root. It lists nothing if the root does not exist.
func list(root string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing runs: %w", err)
	}
	return entries, nil
}

// Forget removes the folder of a dead run, with its records. Call it once every back end has
// removed everything with the label. For a live run, it returns an error.
func Forget(root, id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("forgetting run %q: not a valid label", id)
	}
	if Alive(root, id) {
		return fmt.Errorf("forgetting run %s: it is alive", id)
	}
	if err := os.RemoveAll(filepath.Join(root, id)); err != nil {
		return fmt.Errorf("forgetting run %s: %w", id, err)
	}
	return nil
}

// ForgetUnnamed removes the folders of processes that were killed inside New.
func ForgetUnnamed(root string) error {
	entries, err := list(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), newPrefix) || Alive(root, e.Name()) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // New has named it
			continue
		}
		if err == nil && time.Since(info.ModTime()) > newLimit {
			err = os.RemoveAll(filepath.Join(root, e.Name()))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("removing %s: %w", filepath.Join(root, e.Name()), err))
		}
	}
	return errors.Join(errs...)
}

// MakeRoot makes the root. It refuses a root that other users can write to.
func MakeRoot(root string) error {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return fmt.Errorf("making the folder of runs: %w", err)
	}
	return Private(root)
}

// Private returns an error unless the root belongs to this user alone.
func Private(root string) error {
	if err := PrivateFolder(root); err != nil {
		return fmt.Errorf("the folder of runs (below XDG_RUNTIME_DIR, except for root): %w", err)
	}
	return nil
}

// PrivateFolder returns an error unless a folder belongs to this user alone. It is needed because
// anybody can make a folder in /tmp first.
func PrivateFolder(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("looking at %s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK: // a link in a folder of others may lead elsewhere later
		return fmt.Errorf("%s is a symbolic link; name the folder that it leads to", path)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a folder; remove it", path)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, not to user %d; use a folder of your own", path, st.Uid, os.Geteuid())
	case st.Mode&0o022 != 0:
		return fmt.Errorf("%s can be written by others; run chmod 700 on it", path)
	}
	return nil
}

func hold(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the run's lock: %w", err)
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("holding the run's lock: %w", err), f.Close())
	}
	return f, nil
}

func isHeld(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	err = flock(f, unix.LOCK_SH|unix.LOCK_NB)
	if closing := f.Close(); closing != nil {
		return false, closing
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func newID() string {
	var b [idLength]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process first
	for i, c := range b {
		b[i] = idDigits[int(c)%len(idDigits)]
	}
	return string(b[:])
}
