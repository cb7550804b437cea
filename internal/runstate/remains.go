package runstate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// EachDead calls clean for every dead run, even after clean failed for one of them. It returns
// everything that clean removed.
func EachDead(root string, clean func(id string) (removed []string, err error)) (removed []string, err error) {
	dead, err := Dead(root)
	for _, id := range dead {
		some, failed := clean(id)
		removed = append(removed, some...)
		if failed != nil {
			err = errors.Join(err, &uncleaned{id, failed})
		}
	}
	return removed, err
}

// uncleaned is the error of cleaning after one run.
type uncleaned struct {
	run string
	err error
}

func (u *uncleaned) Error() string { return fmt.Sprintf("cleaning after run %s: %v", u.run, u.err) }
func (u *uncleaned) Unwrap() error { return u.err }

// Uncleaned returns the dead runs whose cleaning failed, and whether err holds any other error.
func Uncleaned(err error) (ids []string, others bool) {
	switch e := err.(type) { //nolint:errorlint // the whole tree is searched
	case nil:
		return nil, false
	case *uncleaned:
		return []string{e.run}, false
	case interface{ Unwrap() error }:
		return Uncleaned(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			some, other := Uncleaned(one)
			ids, others = append(ids, some...), others || other
		}
		return ids, others
	}
	return nil, true
}

// Undo calls undo for each record of a kind of a dead run, and erases the record if undo succeeds.
// undo returns the name of what it removed, or "" if nothing was left.
func Undo(root, id, kind string, undo func(name string, value []byte) (removed string, err error)) (removed []string, err error) {
	records, err := Records(root, id, kind)
	for name, value := range records {
		what, failed := undo(name, value)
		if failed == nil {
			failed = erase(root, id, kind, name)
		}
		if what != "" {
			removed = append(removed, what)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s %s: %w", kind, name, failed))
		}
	}
	return removed, err
}

// RemoveRecorded removes the files and folders that dead runs recorded under a kind, and then the
// records. It returns the paths that existed. Nothing inside them may be in use.
func RemoveRecorded(root, kind string) (removed []string, err error) {
	return EachDead(root, func(id string) ([]string, error) {
		return Undo(root, id, kind, func(_ string, value []byte) (string, error) {
			path := string(value)
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
				return "", nil
			}
			return path, os.RemoveAll(path)
		})
	})
}
